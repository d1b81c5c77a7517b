"""Settings that a job takes and doesn't read: whoever gives them is told."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping

from pydantic import BaseModel

from infocse_ray.settings.fields import settings_of
from infocse_ray.settings.section import FEW_SHOT

BY_PRETRAIN: Mapping[str, str] = dict.fromkeys(FEW_SHOT, "`infocse plusplus` does")
"""By name, or by section, and what has their place."""

BY_FINETUNE: Mapping[str, str] = {
    "train.batch_size": "finetune.batch_size is its own",
    "train.learning_rate": "finetune.learning_rate is its own",
    "train.warmup_steps": "it has no warm-up",
    "train.max_steps": "finetune.epochs ends it",
    "train.max_tokens": "finetune.epochs ends it",
    "validate.every": "it validates after each epoch",
    "validate.every_tokens": "it validates after each epoch",
    "validate.patience": "finetune.patience is its own",
    "plusplus": "`infocse plusplus` does",
}


def given_for_nothing(
    settings: BaseModel, given: Collection[str], command: str, unread: Mapping[str, str]
) -> list[str]:
    """Which settings were given, and not as their defaults are, and aren't read: a line for each reason.

    Args:
        settings: of the job.
        given: what the user gave of them, by dotted name.
        command: that does the job.
        unread: what it doesn't read, and why.
    """
    reasons: dict[str, list[str]] = {}
    for name, field in settings_of(type(settings)):
        reason = unread.get(name) or unread.get(name.partition(".")[0])
        value = operator.attrgetter(name)(settings)
        if reason and name in given and value != field.get_default(call_default_factory=True):
            reasons.setdefault(reason, []).append(f"{name} = {value}")
    return [
        f"{', '.join(names)}: `{command}` doesn't read {'it' if len(names) == 1 else 'them'}; {reason}"
        for reason, names in reasons.items()
    ]


def names_given(settings: BaseModel, at: str = "") -> Iterator[str]:
    """The settings that were named when these were made, by dotted name."""
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from names_given(value, f"{at}{name}.")
        else:
            yield f"{at}{name}"
