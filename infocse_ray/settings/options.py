"""Options of a command line, and the files that `--config` names, as one tree of settings that isn't checked yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, get_args, get_origin

import yaml
from pydantic import BaseModel

from infocse_ray.settings.configurations import is_shipped, read_config
from infocse_ray.settings.explain import not_a
from infocse_ray.settings.fields import removed_settings, renamed_settings, settings_of
from infocse_ray.settings.nested import merged, nested, without
from infocse_ray.settings.section import parts
from infocse_ray.settings.yaml_values import load_yaml

_TRUTH_VALUES = ("true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n")
"""As settings take them."""


def given(
    model: type[BaseModel], argv: Sequence[str], unnamed: str | None = None, shipped: bool = True
) -> dict[Any, Any]:
    """What files and options say; what is later wins, an option over all files.

    Args:
        model: the settings.
        argv: the arguments.
        unnamed: the setting that an argument without a name is (several, of a list); None: each needs one.
        shipped: whether configurations that come with the package count.

    Raises:
        ValueError: an argument is no option, a name no setting, or a file no configuration.
        OSError: a file can't be read.
    """
    known = _Known.of(model)
    from_files: dict[Any, Any] = {}
    values: dict[Any, Any] = {}
    replaced: list[str] = []
    for option, name, text in _options(argv, known, unnamed):
        if name == "config":
            if shipped or not is_shipped(text):
                from_files = merged(from_files, read_config(text, model))
            continue
        mapping = known.mapping_of(name)
        if name not in known.kinds and mapping is None and name not in known.removed:
            raise ValueError(not_a("setting", name, known.all))
        if mapping in known.whole:
            replaced.append(name)
            values = without(values, name)
        kind = known.kinds.get(name) if mapping is None else known.trees.get(name)
        if name != unnamed:
            value = _value(option, text, kind)
        elif _admits(kind, list):
            value = [*(values.get(name) or []), *(_value(option, text, kind) or [])]
        else:  # text, however it is given
            value = text
        values = merged(values, nested({name: value}))
    for name in replaced:
        from_files = without(from_files, name)
    return merged(from_files, values)


class _Known(NamedTuple):
    """What options may name."""

    kinds: dict[str, Any]
    """The settings' types, by dotted name."""
    all: Collection[str]
    """Their names, and those of sections in mappings that are settings of another model."""
    renamed: dict[str, str]
    """Names of earlier versions."""
    removed: set[str]
    """Settings of earlier versions that are gone."""
    trees: dict[str, Any]
    """Of mappings that are settings of another model, those that take text alone; numbers are numbers in YAML, too."""
    whole: Collection[str]
    """Mappings whose items replace those of files."""

    @classmethod
    def of(cls, model: type[BaseModel]) -> _Known:
        """What these settings have."""
        kinds = {name: field.annotation for name, field in settings_of(model)}
        inside = {
            f"{mapping}.{name}": field.annotation
            for mapping, inner in getattr(model, "trees", {}).items()
            for name, field in settings_of(inner)
        }
        trees = {
            name: kind for name, kind in inside.items() if _admits(kind, str) and not _admits(kind, bool, int, float)
        }
        return cls(
            kinds,
            [*kinds, *(name for name in inside if name.count(".") > 1)],
            dict(renamed_settings(model)),
            set(removed_settings(model)),
            trees,
            getattr(model, "whole", ()),
        )

    def mapping_of(self, name: str) -> str | None:
        """The setting that is a mapping, of which this is an item; None: it is none."""
        return next(
            (m for m, kind in self.kinds.items() if get_origin(kind) is dict and name.startswith(f"{m}.")), None
        )


def _options(argv: Sequence[str], known: _Known, unnamed: str | None) -> Iterator[tuple[str, str, str]]:
    """Each option as it is typed (a word without one as that of `unnamed`), the name of its setting, and its text.

    Raises:
        ValueError: an argument is no option, a word is one too many, or a value is missing.
    """
    arguments, taken, words_follow = deque(argv), False, False
    while arguments:
        argument = arguments.popleft()
        if argument == "--" and unnamed is not None and arguments and not words_follow:
            words_follow = True  # which are no options, whatever they look like
            continue
        if words_follow or not argument.startswith("--"):
            if unnamed is None:
                raise ValueError(f"{argument!r} is not an option: settings are given as --SETTING VALUE")
            if taken and not _admits(known.kinds[unnamed], list):
                said = f"is one word too many: put a {unnamed} of several words into quotes"
                raise ValueError(f"{argument!r} {said}")
            argument = f"--{unnamed}={argument}"
        option, equals, text = argument.partition("=")
        name = known.renamed.get(option.removeprefix("--"), option.removeprefix("--"))
        taken = taken or name == unnamed
        if not equals:
            switch = known.kinds.get(name) is bool
            # Behind a switch a word is the setting that needs no name, unless it is a truth value.
            apart = switch and unnamed is not None and bool(arguments) and arguments[0].lower() not in _TRUTH_VALUES
            if arguments and not arguments[0].startswith("--") and not apart:
                text = arguments.popleft()
            elif switch:
                text = "true"
            else:
                raise ValueError(f"{option}: expected a value")
        yield option, name, text


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
