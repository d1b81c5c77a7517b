"""Settings that a job takes and doesn't read: whoever gives them is told."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping

from pydantic import BaseModel

from infocse_ray.settings import Settings
from infocse_ray.settings.encoder import OF_CLUSTERING
from infocse_ray.settings.fields import settings_of
from infocse_ray.settings.methods import MethodSections
from infocse_ray.settings.section import FEW_SHOT

Unread = Mapping[str, str]
"""Settings, or whole sections, that a job doesn't read, by dotted name, and what has their place, or why."""

_OF_CLUSTERS = (
    *("annotate.clustering", "annotate.engine", "annotate.share"),
    *(f"annotate.{name}" for names in OF_CLUSTERING.values() for name in names),
)
"""Settings that InfoCSE's own method alone reads."""

_OF_INITIALIZATION = ("loop.initialization_steps", "loop.initialization_tokens", "loop.initialization_patience")

_BY_FINETUNE: Unread = {
    "train.batch_size": "finetune.batch_size is its own",
    "train.learning_rate": "finetune.learning_rate is its own",
    "train.warmup_steps": "it has no warm-up",
    "train.max_steps": "finetune.epochs ends it",
    "train.max_tokens": "finetune.epochs ends it",
    "validate.every": "it validates after each epoch",
    "validate.every_tokens": "it validates after each epoch",
    "validate.patience": "finetune.patience is its own",
    "plusplus": "`infocse plusplus` does",
    **dict.fromkeys(
        (
            *_OF_CLUSTERS,
            "annotate.first_encoder",
            "loop",
            "train.method",
            "train.distillation",
            *MethodSections.model_fields,
        ),
        "`infocse pretrain` does",
    ),
}


def by_pretrain(settings: Settings) -> Unread:
    """What `infocse pretrain` doesn't read."""
    unread = by_plusplus(settings) | dict.fromkeys(FEW_SHOT, "`infocse plusplus` does")
    if not any(_reads_temperature(name, settings) for name in _trained(settings)):  # fine-tuning does
        unread["train.temperature"] = f"train.method {settings.train.method} has its own, or none"
    return unread


def _trained(settings: Settings) -> set[str]:
    """The methods that a run trains with."""
    tried = {"idc", "simcse"} if settings.recipe is not None else set()
    return {settings.train.method, settings.loop.initialization, *tried}


def _reads_temperature(method: str, settings: Settings) -> bool:
    """Whether a method divides similarities by train.temperature."""
    if method == "ict":
        return settings.ict.temperature is None and settings.ict.projection == 0
    if method in ("cpc", "conpono"):
        return getattr(settings, method).temperature is None
    return method == "idc"


def by_finetune(settings: Settings) -> Unread:
    """What `infocse finetune` doesn't read."""
    return _BY_FINETUNE


def by_plusplus(settings: Settings) -> dict[str, str]:
    """What `infocse plusplus` doesn't read: nor does training without labels, as the other settings are."""
    method, initialization = settings.train.method, settings.loop.initialization
    unread: dict[str, str] = {}
    if settings.recipe is None:  # which tries several methods
        others = (name for name in MethodSections.model_fields if name not in (method, initialization))
        unread |= dict.fromkeys(others, f"train.method is {method}")
        unread["loop.pilot_steps"] = "recipe isn't auto"
    if _trained(settings) <= {"idc", "consert", "mirror_bert", "none"}:
        unread["train.head_learning_rate"] = "nothing that is trained has a head that begins untrained"
    if "conpono" in _trained(settings) and settings.conpono.form == "softmax":
        unread["conpono.margin"] = "conpono.form is softmax"
    if initialization == "none":
        unread |= dict.fromkeys(_OF_INITIALIZATION, "loop.initialization is none")
    if method != "idc":
        held = ["train.distillation"] if settings.train.distillation else []  # 0 says what is so
        return unread | dict.fromkeys((*_OF_CLUSTERS, *held), f"train.method is {method}")
    for way, names in OF_CLUSTERING.items():
        if way != (clustering := settings.annotate.clustering):
            unread |= {f"annotate.{name}": f"annotate.clustering is {clustering}" for name in names}
    return unread


def given_for_nothing(settings: BaseModel, given: Collection[str], command: str, unread: Unread) -> list[str]:
    """Which settings were given, and not as their defaults are, and aren't read: a line for each reason.

    Args:
        settings: of the job.
        given: what the user gave of them, by dotted name.
        command: that does the job.
        unread: what it doesn't read.
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
