"""The command line of a job: a YAML file and dotted overrides, help like documentation, refusals in one line."""

from __future__ import annotations

import argparse
import difflib
import functools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, get_args, get_origin

import jsonargparse
import yaml
from pydantic import BaseModel, ValidationError

from infocse_ray.settings.nested import merged, nested
from infocse_ray.storage.redact import redacted

Model = TypeVar("Model", bound=BaseModel)


def parse(model: type[Model], argv: Sequence[str] | None, prog: str, description: str) -> Model:
    """Read `--config FILE` and dotted overrides (`--train.batch_size 512`) into a settings model.

    Exits with status 2 and one line that names the setting, the value and the fix when they don't fit;
    `--help` and `--print_config` print and exit with status 0.
    """
    jsonargparse.set_loader("settings", functools.partial(_load_yaml, model=model), (yaml.YAMLError,))
    parser = jsonargparse.ArgumentParser(
        prog=prog,
        usage=f"{prog} [--config FILE] [--SETTING VALUE ...]",
        description=description,
        formatter_class=_Help,
        exit_on_error=False,
        parser_mode="settings",
    )
    parser.add_argument("--config", action="config", help="YAML file of settings; later options override it.")
    parser.add_class_arguments(model, None, sub_configs=False)
    try:
        rest, entries = _entries_of_mappings(model, sys.argv[1:] if argv is None else argv)
        values = parser.parse_args(rest).as_dict()
        values.pop("config", None)
        for name, given in entries.items():
            values[name] = merged(nested(values.get(name) or {}), nested(given))
        return model.model_validate(values)
    except ValidationError as error:
        message = explain(error, model)
    except (jsonargparse.ArgumentError, argparse.ArgumentError, TypeError, ValueError, OSError) as error:
        message = _one_line(str(error), list(dotted_names(model)))
    print(f"{prog}: error: {redacted(message)} (see --help)", file=sys.stderr)
    raise SystemExit(2)


def _entries_of_mappings(model: type[BaseModel], argv: Sequence[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Options such as `--settings.train.batch_size 64`, where `settings` is a mapping, apart from all others.

    The parser would take out of the mapping what else is in `train`.

    Returns:
        The other arguments; by mapping, its entries by the rest of their dotted names.
    """
    mappings = {name for name, field in model.model_fields.items() if get_origin(field.annotation) is dict}
    rest: list[str] = []
    entries: dict[str, dict[str, Any]] = {}
    arguments = iter(argv)
    for argument in arguments:
        option, equals, value = argument.partition("=")
        mapping, _, name = option.removeprefix("--").partition(".")
        if not option.startswith("--") or mapping not in mappings or not name:
            rest.append(argument)
            continue
        if not equals and (value := next(arguments, "--")).startswith("--"):
            raise ValueError(f"{option}: expected a value")
        entries.setdefault(mapping, {})[name] = _value(option, value)
    return rest, entries


def _value(option: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{option} = {text!r}: not a YAML value") from error


class _Help(argparse.RawDescriptionHelpFormatter, jsonargparse.DefaultHelpFormatter):
    """Help with the description's own lines, and types as people write them."""

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        for annotated, words in _WORDS.items():
            text = re.sub(annotated, words, text)
        return text


_WORDS: dict[str, Any] = {
    r"Optional\[Literal\[([^]]*)\]\]": lambda found: "null | " + found[1].replace("'", "").replace(", ", " | "),
    r"Optional\[Annotated\[(\w+) \| null, (.*?)\]\]": r"null | \1, \2",
    r"Annotated\[(\w+), (.*?)\](?=, default|\))": r"\1, \2",
    r"G[et]\(g([et])=([\d.]+)\), L[et]\(l([et])=([\d.]+)\)": r"G\1(g\1=\2) and L\3(l\3=\4)",
    r"Ge\(ge=([\d.]+)\)": r"at least \1",
    r"Gt\(gt=([\d.]+)\)": r"more than \1",
    r"Le\(le=([\d.]+)\)": r"at most \1",
    r"Lt\(lt=([\d.]+)\)": r"less than \1",
    r"type: Literal\[[^]]*\], ": "",  # the choices are shown before
    r"Literal\['(\w+)'\]": r"\1",
    r"Union\[(\w+), (\w+)\]": r"\1 | \2",
    r"Union\[Literal\['(\w+)', '(\w+)'\], (\w+), (.*?)\](?=, default)": r"\1 | \2 | \3, \4",
    r"type: str, MinLen\(min_length=1\)": "type: str",
}


def _load_yaml(text: str, model: type[BaseModel]) -> Any:
    """YAML, but the key `on` is no truth value and a section with all its lines commented out is left out."""
    value = jsonargparse.get_loader("yaml")(text)
    return as_settings(value, model) if isinstance(value, dict) else value


def as_settings(values: dict[Any, Any], model: type[BaseModel]) -> dict[str, Any]:
    """What YAML made of a tree of settings, as the settings mean it: see `_load_yaml`."""
    sections = {
        name: {"on" if key is True else key: v for key, v in section.items()} if isinstance(section, dict) else section
        for name, section in values.items()
        if section is not None
    }
    return _without_stray_truth(sections, model)


def _without_stray_truth(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Truth values as text where a setting takes none: Python would count `k: yes` as one."""
    out = dict(values)
    for name, value in values.items():
        kind = model.model_fields[name].annotation if name in model.model_fields else None
        if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, BaseModel):
            out[name] = _without_stray_truth(value, kind)
        elif isinstance(value, bool) and bool not in (kind, *get_args(kind)):
            out[name] = str(value).lower()
    return out


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """A refusal of values for `model` in one line: each mistake as `setting = value: what to do`."""
    names = list(dotted_names(model))
    return "; ".join(_explain(one, names) for one in error.errors())


def _explain(error: Any, names: list[str]) -> str:
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return not_a("setting", name, names)
    if error["type"] == "missing":
        return f"{name} is required"
    message = re.sub(r"^(Value error, |Input )", "", error["msg"])
    return f"{name} = {error['input']!r}: {message}" if name and not isinstance(error["input"], dict) else message


def _one_line(message: str, names: list[str]) -> str:
    """The parser's message without line breaks and web addresses, and with the nearest known setting."""
    if message.startswith("Unexpected config"):
        return "--config: the file is no YAML mapping of settings to values; infocse_ray/configs/adapt.yaml shows one"
    message = re.sub(r"\s+", " ", re.sub(r"For further information visit \S+", ".", message)).strip()
    if found := re.match(r'Parser key "([\w.]+)": (?:\d+ validation errors? for \S+ )?(.*)', message):
        message = f"{found[1]}: {found[2]}"
        message = re.sub(r"\s*\[type=\w+, input_value=.*?, input_type=\w+\]\s*\.*", ". ", message)
    unknown = re.search(r"Group '([\w.]+)' does not accept option '([\w.]+)'", message)
    key = f"{unknown[1]}.{unknown[2]}" if unknown else ""
    if found := re.search(r"unrecognized arguments: --([\w.]+)|Option '([\w.]+)' is not accepted", message):
        key = found[1] or found[2]
    return not_a("setting", key, names) if key and key not in names else message


def not_a(kind: str, name: str, names: Iterable[str], otherwise: str = "") -> str:
    """That `name` is none of `names`, with the nearest of them, or with what to say where none is near."""
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"{name} is not a {kind}" + (f": did you mean {near[0]}?" if near else otherwise)


def named_here(message: str, model: type[BaseModel]) -> str:
    """A message with settings called as this job calls them: `model` where its settings have no `encoder.model`."""
    names = set(dotted_names(model))

    def own(found: re.Match[str]) -> str:
        return found[1] if found[0] not in names and found[1] in names else found[0]

    return re.sub(r"(?<![\w/.-])[a-z]+\.(\w+)\b", own, message)


def dotted_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every setting by its name on the command line."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from dotted_names(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name
