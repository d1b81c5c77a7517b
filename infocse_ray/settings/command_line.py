"""The command line of a command: YAML files and dotted overrides in, refusals in one line."""

from __future__ import annotations

import difflib
import re
import sys
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from infocse_ray.settings.fields import dotted_names, is_section, removed_settings, renamed_settings, settings_of
from infocse_ray.settings.help import full_help, short_help
from infocse_ray.settings.nested import flat, merged, nested, without
from infocse_ray.settings.section import names_of_now, parts
from infocse_ray.settings.yaml_values import load_yaml
from infocse_ray.storage.redact import redacted

Model = TypeVar("Model", bound=BaseModel)


def parse(
    model: type[Model],
    argv: Sequence[str] | None,
    prog: str,
    description: str,
    essentials: Sequence[str] = (),
    unnamed: str | None = None,
) -> Model:
    """Read `--config FILE` and dotted overrides (`--train.batch_size 512`) into a settings model; what is later wins.

    Args:
        model: the settings.
        argv: the arguments, without the program's name; None for those of the process.
        prog: the program's name.
        description: for the help.
        essentials: the settings that the short help has, by dotted name.
        unnamed: the setting that an argument without a name is; None: each needs one.

    Exits with status 2 and one line that names the setting, the value and the fix when they don't fit;
    `--help`, `--help all` and `--print_config` print and exit with status 0.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    for flag in ("-h", "--help"):
        if flag in argv:
            everything = argv[argv.index(flag) + 1 :][:1] == ["all"]
            text = (
                full_help(model, prog, description) if everything else short_help(model, prog, description, essentials)
            )
            print(text)
            raise SystemExit(0)
    try:
        show = "--print_config" in argv
        values = _given(model, [argument for argument in argv if argument != "--print_config"], unnamed)
        if show:
            print(yaml.safe_dump(merged(_defaults(model), values), sort_keys=False, allow_unicode=True), end="")
            raise SystemExit(0)
        return model.model_validate(values)
    except ValidationError as error:
        message = explain(error, model)
    except (ValueError, OSError) as error:
        message = str(error)
    print(f"{prog}: error: {redacted(message)} (see --help)", file=sys.stderr)
    raise SystemExit(2)


def given_by_user(model: type[BaseModel], argv: Sequence[str] | None) -> dict[str, Any]:
    """What options and files of the user's own give, by dotted name; a shipped configuration is for several commands.

    Args:
        model: the settings.
        argv: arguments that `parse` takes.
    """
    return dict(flat(_given(model, list(sys.argv[1:] if argv is None else argv), shipped=False)))


def shipped_configs() -> list[str]:
    """The configurations that come with the package, by the name that `--config` takes."""
    return sorted(file.name.removesuffix(".yaml") for file in _CONFIGS.iterdir() if file.name.endswith(".yaml"))


def read_config(name: str, model: type[BaseModel], setting: str = "--config") -> dict[str, Any]:
    """A configuration as a tree of settings: a file, or one of `shipped_configs`.

    Args:
        name: of either; a file wins.
        model: what it is for.
        setting: that named it, for errors.

    Raises:
        ValueError: there is none of this name, or it is no YAML mapping.
    """
    file = Path(name)
    if _is_shipped(name):
        text = (_CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    elif not file.is_file():
        shipped = ", ".join(shipped_configs())
        raise ValueError(f"{setting} = {name!r}: no such file; the shipped ones are {shipped}")
    else:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{setting} = {name!r}: is no UTF-8 text ({error.reason} at byte {error.start})"
            ) from error
    try:
        values = load_yaml(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{setting} = {name!r}: is no YAML: {_yaml_reason(error)}") from error
    if not isinstance(values, dict):
        raise ValueError(
            f"{setting} = {name!r}: is no YAML mapping of settings to values; `--config adapt --print_config` shows one"
        )
    return as_settings(values, model)


def _is_shipped(name: str) -> bool:
    """Whether `--config` of this name is a shipped configuration; a file wins."""
    return name in shipped_configs() and not Path(name).is_file()


_CONFIGS = files("infocse_ray") / "configs"


def _yaml_reason(error: yaml.YAMLError) -> str:
    """A YAML error and its position, in one line."""
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    reason = " ".join((getattr(error, "problem", None) or str(error)).split())
    return where + (f"{reason}; indent with spaces" if "'\\t'" in reason else reason)


def _given(
    model: type[BaseModel], argv: Sequence[str], unnamed: str | None = None, shipped: bool = True
) -> dict[Any, Any]:
    """What files, `shipped` ones too, and options say, as one tree that isn't checked yet; an option wins anywhere."""
    kinds = {name: field.annotation for name, field in settings_of(model)}
    renamed, removed = dict(renamed_settings(model)), set(removed_settings(model))
    # Of mappings that are settings of another model, those that take text alone; numbers are numbers in YAML, too.
    trees = {
        f"{mapping}.{name}": field.annotation
        for mapping, inner in getattr(model, "trees", {}).items()
        for name, field in settings_of(inner)
        if _admits(field.annotation, str) and not _admits(field.annotation, bool, int, float)
    }
    from_files: dict[Any, Any] = {}
    replaced: list[str] = []
    values: dict[Any, Any] = {}
    arguments = deque(argv)
    while arguments:
        argument = arguments.popleft()
        if argument == "--" and unnamed is not None and arguments:  # what follows is no option, whatever it looks like
            argument = f"--{unnamed}={arguments.popleft()}"
            if arguments:
                raise ValueError(f"{arguments[0]!r} is one word too many: put a {unnamed} of several words into quotes")
        option, equals, text = argument.partition("=")
        name = renamed.get(option.removeprefix("--"), option.removeprefix("--"))
        if not option.startswith("--"):
            if unnamed is not None and unnamed not in values:
                values = merged(values, {unnamed: argument})
                continue
            if unnamed is not None:
                raise ValueError(f"{argument!r} is one word too many: put a {unnamed} of several words into quotes")
            raise ValueError(f"{argument!r} is not an option: settings are given as --SETTING VALUE")
        if not equals:
            if arguments and not arguments[0].startswith("--"):
                text = arguments.popleft()
            elif kinds.get(name) is bool:
                text = "true"
            else:
                raise ValueError(f"{option}: expected a value")
        if name == "config":
            if shipped or not _is_shipped(text):
                from_files = merged(from_files, read_config(text, model))
            continue
        mapping = next((m for m, kind in kinds.items() if get_origin(kind) is dict and name.startswith(f"{m}.")), None)
        if name not in kinds and mapping is None and name not in removed:
            raise ValueError(not_a("setting", name, kinds))
        if name == unnamed:  # as it is taken without its name
            values = merged(values, {name: text})
            continue
        kind = kinds.get(name) if mapping is None else trees.get(name)
        if mapping in getattr(model, "whole", ()):
            replaced.append(name)
            values = without(values, name)
        values = merged(values, nested({name: _value(option, text, kind)}))
    for name in replaced:
        from_files = without(from_files, name)
    return merged(from_files, values)


def _value(option: str, text: str, kind: Any) -> Any:
    """The value of an option: a list (also as `a,b`) or mapping where the setting takes one; text otherwise.

    Where they take text, too, what looks like a list and is none is text: `[ab]*.jsonl`. Settings turn text into
    numbers. `kind` None: YAML.
    """
    if kind is not None and not (text.startswith(("[", "{")) and _admits(kind, list, dict)):
        if text in ("null", "None"):
            return None
        return parts(text) if _admits(kind, list) and not _admits(kind, str, int, float, bool) else text
    try:
        return load_yaml(text)
    except yaml.YAMLError as error:
        if kind is not None and _admits(kind, str):
            return text
        raise ValueError(f"{option} = {text!r}: not a YAML value") from error


def _admits(kind: Any, *types: type) -> bool:
    """Whether a value of one of these types, not an item of it, fits an annotation; Any takes all."""
    origin = get_origin(kind) or kind
    if origin in (list, dict, tuple) or not get_args(kind):
        return origin in types or kind is Any
    return any(_admits(one, *types) for one in get_args(kind))


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    """The tree of defaults; null where a value is required."""
    out: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if is_section(field.annotation):
            out[name] = _defaults(field.annotation)
        else:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            out[name] = default.model_dump(mode="json") if isinstance(default, BaseModel) else default
    return out


def as_settings(values: dict[Any, Any], model: type[BaseModel]) -> dict[str, Any]:
    """What YAML made of a tree of settings, as the settings mean it.

    Names may be dotted (`train.batch_size: 64`), those of earlier versions are today's, so that what is later wins by
    either, and a section with all its lines commented out is left out.
    """
    return _meant({name: section for name, section in nested(values).items() if section is not None}, model)


def _meant(values: dict[Any, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Names of now, and truth values as text where a setting takes none: Python would count `k: true` as one."""
    out = names_of_now(values, getattr(model, "renamed", {}))
    for name, value in out.items():
        if name not in model.model_fields:
            continue
        kind = model.model_fields[name].annotation
        if isinstance(value, dict) and is_section(kind):
            out[name] = _meant(value, kind)
        elif isinstance(value, bool) and bool not in (kind, *get_args(kind)):
            out[name] = str(value).lower()
    return out


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """A refusal of values for `model` in one line: each mistake as `setting = value: what to do`."""
    names, removed = list(dotted_names(model)), set(removed_settings(model))
    reasons: dict[str, list[str]] = {}
    for one in error.errors():
        setting, reason = _explain(one, names, removed)
        if reason not in reasons.setdefault(setting, []):
            reasons[setting].append(reason)
    missing = [setting for setting, texts in reasons.items() if texts == [_REQUIRED]]
    fields = dict(settings_of(model))
    # Of a section that is missing, what it has to have.
    needed = [n for n in names if n in missing or (n.partition(".")[0] in missing and fields[n].is_required())]
    lines = [f"{', '.join(needed)} {'is' if len(needed) == 1 else 'are'} required"] if needed else []
    for setting, texts in reasons.items():
        if setting not in missing:
            lines.append((f"{setting}: " if setting else "") + ", ".join(texts))
    return "; ".join(lines)


_REQUIRED = "is required"


def _explain(error: Any, names: list[str], removed: Collection[str]) -> tuple[str, str]:
    """A mistake's setting with its value, and what is wrong with it."""
    place = [str(part) for part in error["loc"]]
    name = ".".join(place)
    if error["type"] == "extra_forbidden" and name in removed:
        return f"{name} = {error['input']!r}", "is no setting any more; leave it out"
    if error["type"] == "extra_forbidden":
        if isinstance(error["input"], dict) and error["input"]:  # a section: what is in it says more of what was meant
            name = f"{name}.{next(iter(error['input']))}"
        return "", not_a("setting", name, names)
    # Behind a setting's own name pydantic says which kind of value it tried.
    name = next((".".join(place[:n]) for n in range(len(place), 0, -1) if ".".join(place[:n]) in names), name)
    if error["type"] == "missing":
        return name, _REQUIRED
    message = re.sub(r"^(Value error, |Input )", "", error["msg"])
    if error["type"] == "value_error" and isinstance(error["input"], dict):  # of several settings, which it names
        return "", message
    return (f"{name} = {error['input']!r}" if name else name), message


def not_a(kind: str, name: str, names: Iterable[str], otherwise: str = "") -> str:
    """That `name` is none of `names`, with the nearest of them, or with what to say where none is near."""
    names = list(names)
    # In another section it has the same last part: `train.k` is `annotate.k`.
    elsewhere = [known for known in names if known.rpartition(".")[2] == name.rpartition(".")[2]]
    near = elsewhere if len(elsewhere) == 1 else difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"{name} is not a {kind}" + (f": did you mean {near[0]}?" if near else otherwise)


def named_here(message: str, model: type[BaseModel]) -> str:
    """A message with settings called as this command calls them: `model` where it has no `encoder.model`."""
    names = set(dotted_names(model))

    def own(word: re.Match[str]) -> str:
        return word[1] if word[0] not in names and word[1] in names else word[0]

    return re.sub(r"(?<![\w/.-])[a-z]+\.(\w+)\b", own, message)
