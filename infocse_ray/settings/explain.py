"""What is wrong with settings, in one line that names the setting, the value and the fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from typing import Any

from pydantic import BaseModel, ValidationError

from infocse_ray.settings.fields import dotted_names, removed_settings, settings_of
from infocse_ray.settings.text import brief

_REQUIRED = "is required"


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
            lines.append(f"{setting}: {_alternatives(texts)}" if setting else ", ".join(texts))
    return "; ".join(lines)


def _explain(error: Any, names: list[str], removed: Collection[str]) -> tuple[str, str]:
    """A mistake's setting with its value, and what is wrong with it."""
    place = [str(part) for part in error["loc"]]
    name = ".".join(place)
    if error["type"] == "extra_forbidden" and name in removed:
        return f"{name} = {brief(error['input'])}", "is no setting any more; leave it out"
    if error["type"] == "extra_forbidden":
        if isinstance(error["input"], dict) and error["input"]:  # a section: what is in it says more of what was meant
            name = f"{name}.{next(iter(error['input']))}"
        return "", not_a("setting", name, names)
    # Behind a setting's own name pydantic says which kind of value it tried.
    name = next((".".join(place[:n]) for n in range(len(place), 0, -1) if ".".join(place[:n]) in names), name)
    if error["type"] == "missing":
        return name, _REQUIRED
    if error["type"] == "model_type":
        example = next((f", such as {known}" for known in names if known.startswith(f"{name}.")), "")
        return f"{name} = {brief(error['input'])}", f"is a section; give its settings by name{example}"
    message = re.sub(r"^(Value error, |Input |String )", "", error["msg"])
    message = re.sub(r", unable to (parse string as an? \w+|interpret input)$", "", message)
    if error["type"] == "value_error" and isinstance(error["input"], dict):  # of several settings, which it names
        return "", message
    return (f"{name} = {brief(error['input'])}" if name else name), message


def _alternatives(texts: list[str]) -> str:
    """What is wrong with a value by each of the kinds that it may be of, any of which would do."""
    first, *others = texts
    return ", or ".join([first, *(text.removeprefix("should be ") for text in others)])


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
