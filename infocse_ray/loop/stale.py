"""What is stale since the last run of a name: the inputs or settings that changed, and the stages that depend on them.

A change makes stale the stages that read it and all that is made of these. Stages are named by content, so nothing
stale is ever used; this is for the user, who may not have meant the change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from infocse_ray.annotate.enough import FEWEST_DOCUMENTS
from infocse_ray.annotate.share import Share
from infocse_ray.errors import DamagedFile
from infocse_ray.loop.identity import methods_used
from infocse_ray.loop.manifest import folder_in
from infocse_ray.methods.registry import METHODS
from infocse_ray.settings import Settings
from infocse_ray.settings.encoder import OF_CLUSTERING
from infocse_ray.settings.section import HOW_NOT_WHAT
from infocse_ray.stages.stage import read_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted_json

_INPUTS = {
    "corpus": "the corpus' files",
    "encoder": "the encoder",
    "tokenizer": "the tokenizer",
    "first_encoder": "the first encoder",
}
_SILENT = {
    "name",
    "storage",
    "plusplus.max_rounds",
    "explorer",
    "tracking",
    "corpus.source",
    "corpus.labels",
    "encoder.model",
    "annotate.first_encoder",
}
"""Settings of which the inputs' fingerprints say more, or that change no stage."""

_ENDS = {"loop.max_iterations", "loop.early_stop"}
"""Settings that say how many stages there are, not what comes of one."""

_ENCODER = ("encoder.precision", "encoder.whiten", "encoder.dimensions")
"""Settings of how the encoder is used, not of what it is."""

_VALIDATES = tuple(f"validate.{name}" for name in ("on", "reading", "max_documents", "max_candidates"))
"""Settings of what validation asks."""

_READ: dict[str, tuple[str, ...]] = {
    "corpus": ("corpus", "tokenizer"),
    "labels": ("labels", "seed"),
    "first_encoder": ("first_encoder",),
    "encoder": ("encoder",),
    "whitening": ("encoder", "corpus.unlabelled", "validate.reading", "seed"),
    "annotations": ("annotate", "first_encoder", "corpus.unlabelled", "encoder.precision"),
    "examples": ("train.method", "corpus.unlabelled", *METHODS),
    "labelled_documents": ("labels", "seed"),
    "train": ("minutes", "train", "validate", "seed", *_ENCODER, *METHODS),
    "valid": ("encoder.precision", *_VALIDATES, "seed"),
    "test": ("encoder.precision", "validate.reading"),
    "test_plain": ("encoder.precision", "validate.reading"),
    "sts": ("encoder.precision", "validate.sts"),
}
"""Inputs and settings (or whole sections) that a stage depends on, by the last part of its name in the run."""

_NOT_READ = {"corpus": ("corpus.unlabelled",), "encoder": _ENCODER, "train": ("validate.sts",)}

_SHOWN = 6
"""Changes and stages that a line names at most."""


_SHARE = ("seed", "train.max_steps", "train.max_tokens", "train.batch_size")
"""What may say which documents are annotated, and how many, where it isn't all of them."""


def may_draw(before: dict[str, Any], root: Storage) -> bool:
    """Whether a share of the corpus was annotated, of what `Manifest.before` says, or may be now.

    No, where that can't be read any more, or where as many documents are annotated at least as the corpus has.
    """
    for name, stage in before["stages"].items():
        if name == "corpus" or name.endswith("/annotations"):
            with contextlib.suppress(FileNotFoundError, DamagedFile):
                summary = read_stage(folder_in(root, stage["folder"])).summary or {}
                if Share.of_stage(summary, 0, 0) is not None:
                    return True
                if sum(summary["documents"].values() if name == "corpus" else ()) > FEWEST_DOCUMENTS:
                    return True
    return False


def stale(before: dict[str, Any], settings: Settings, inputs: dict[str, str | None], draws: bool = False) -> list[str]:
    """What to tell the user before work starts.

    Args:
        before: what `Manifest.before` says.
        settings: of the run now.
        inputs: fingerprints of what the paths in them lead to.
        draws: what `may_draw` says.

    Returns:
        A line or none.
    """
    if not before["settings"]:
        return []
    unread = _unread(settings)
    changed = list(_changed_inputs(before["inputs"], inputs)) + [
        (what, said)
        for what, said in _changed_settings(before["settings"], redacted_json(settings.model_dump(mode="json")))
        if not any(what == name or what.startswith(f"{name}.") for name in unread)
    ]
    few_shot = "labels" in before["stages"]
    stages = [name for name in before["stages"] if any(_reads(name, what, few_shot) for what, _ in changed)]
    annotations = {name for name in before["stages"] if name.endswith("/annotations")}
    perhaps = draws and annotations - set(stages) and any(what in _SHARE for what, _ in changed)
    if not changed or not (stages or perhaps):
        return []
    parts = []
    if stages:
        unless = ", unless the documents turn out to be the same" if stages == ["corpus"] else ""
        named = f"{_shortened(sorted(stages))} and what is made of these"
        parts.append(f"Stale: {named}{unless}; they are made anew, beside the old ones")
    if perhaps:
        parts.append("Annotations are, too, where another share of the corpus is annotated now (annotate.share)")
    return [". ".join([f"changed since this name was last run: {_shortened([said for _, said in changed])}", *parts])]


def _unread(settings: Settings) -> set[str]:
    """Settings, or whole sections, that no stage of a run with these settings reads."""
    others = (names for way, names in OF_CLUSTERING.items() if way != settings.annotate.clustering)
    return (METHODS.keys() - methods_used(settings)) | {f"annotate.{name}" for names in others for name in names}


def _shortened(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _changed_inputs(before: dict[str, Any], now: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    for name, said in _INPUTS.items():
        if name in before and before[name] != now[name]:
            yield name, said


def _changed_settings(before: Any, now: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """The dotted names of settings that are others and can change a stage, with what to say of them."""
    for name in sorted({*before, *now}):
        dotted = f"{at}.{name}" if at else name
        # A setting that a later version brought is there as its default.
        if dotted in _SILENT | _ENDS or name not in before or name not in now or before[name] == now[name]:
            continue
        if at in ("train", "annotate") and name in HOW_NOT_WHAT:
            continue
        if isinstance(before[name], dict) and isinstance(now[name], dict):
            yield from _changed_settings(before[name], now[name], dotted)
        else:
            yield dotted, f"{dotted} = {now[name]!r}, was {before[name]!r}"


def _reads(stage: str, what: str, few_shot: bool) -> bool:
    """Whether the stage of this name in the run, perhaps one with labels, reads an input or a setting itself."""
    phase, _, kind = stage.rpartition("/")
    read = _READ.get(kind, ())
    if phase == "iteration_0" and kind in ("examples", "train"):
        read += ("loop",)
    if phase.startswith("pilot"):
        read += ("loop.pilot_steps",)
    if few_shot and phase.startswith("iteration") and phase != "iteration_0" and kind == "train":
        read += ("plusplus",)
    if phase.startswith("fine_tuning"):
        read += ("labels", "finetune") if kind == "train" else ("labels",)
    return what not in _NOT_READ.get(kind, ()) and any(what == name or what.startswith(f"{name}.") for name in read)
