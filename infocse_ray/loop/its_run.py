"""The run that a model folder is the result of: what judges its encoder, how it was read, what it was trained on."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.reading import ReadAs
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.errors import DamagedFile
from infocse_ray.loop.checks import training_splits, validation_of
from infocse_ray.loop.manifest import Manifest, folder_in
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Metric, Settings, Validate
from infocse_ray.settings.embed import Embed
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.storage.folder import Storage, is_remote
from infocse_ray.storage.redact import redacted


class RunOf(NamedTuple):
    """The run that made a model."""

    root: Storage
    """The storage that runs share."""
    manifest: Manifest
    settings: Settings


def run_of(model: str) -> RunOf | None:
    """The run that a model folder is the result of; None: no run's.

    Args:
        model: as the user named it.
    """
    uri, mark, query = model.partition("?") if is_remote(model) else (Storage.open(model).root, "", "")
    folder, _, last = uri.rstrip("/").rpartition("/")
    base, _, name = folder.rpartition("/")
    if last != "model" or not name:
        return None
    root = Storage.open((base or "/") + mark + query)
    with contextlib.suppress(OSError, ValueError):
        manifest = Manifest(root / name)
        settings = manifest.before["settings"]
        return RunOf(root, manifest, Settings.model_validate(settings)) if settings else None
    return None


def judging_metric(asked: Metric | None, *runs: RunOf | None) -> Metric:
    """What two encoders are compared by; said where nobody asked for one.

    Args:
        asked: what the command was given.
        runs: that made the encoders; the first that there is judges.
    """
    if asked is not None:
        return asked
    run = next((run for run in runs if run is not None), None)
    metric = (Validate() if run is None else run.settings.validate).metric
    whose = "as runs are unless they say else" if run is None else f"as the run {run.settings.name} was"
    say(f"judged by {metric}, {whose}; --metric takes another")
    return metric


_ITS_NAMES = {"reading": "validate.reading", "max_length": "encoder.max_length", "similarity": "train.similarity"}


def as_read_by(had: Settings) -> ReadAs:
    """How a run makes and compares vectors."""
    return ReadAs(
        reading=had.validate.reading,  # pyright: ignore
        max_length=had.encoder.max_length,
        similarity=had.train.similarity,
        language=had.corpus.language,
    )


def how_read(model: str, setting: str = "model") -> ReadAs | None:
    """How documents were read by what made an encoder: as its run had it, or as its folder says; None: nobody does.

    Args:
        model: as the user named it.
        setting: what named it.

    Raises:
        ValueError: there is no such folder, or what it says can't be read.
    """
    if (run := run_of(model)) is not None:
        return as_read_by(run.settings)
    # Of a folder elsewhere that one file is fetched; its weights are whoever loads it's.
    folder = Storage.open(model) if is_remote(model) else Storage.open(str(resolve_encoder(model, setting)))
    return ReadAs.of(folder, setting)


def say_unlike_its_run(settings: Embed | Evaluate, reading: bool = True, besides: str = "") -> None:
    """Say what the run that made `settings.model`, if it is known, had otherwise, and nobody said how it is to be.

    Args:
        settings: of the command.
        reading: whether documents are read as its setting `reading` says.
        besides: what else another value takes, for people.
    """
    unsaid = _ITS_NAMES.keys() - settings.model_fields_set
    try:
        read = how_read(settings.model) if unsaid else None
    except ValueError as error:
        say(f"warning: {error}")
        return
    if read is None:
        return
    its = read.model_dump(include=set(_ITS_NAMES))
    unlike = {name: its[name] for name in its if name in unsaid and getattr(settings, name) != its[name]}
    if not reading:
        unlike.pop("reading", None)
    if unlike:
        there = ", ".join(f"{_ITS_NAMES[name]} = {value}" for name, value in unlike.items())
        here = ", ".join(f"{name} = {getattr(settings, name)}" for name in unlike)
        give = " ".join(f"--{name} {value}" for name, value in unlike.items())
        say(f"note: the encoder came with {there}, and here {here}; for vectors like those give {give}{besides}")


def say_what_it_saw(settings: Evaluate, source: str, stores: Sequence[TokenStore]) -> None:
    """Warn of encoders that are asked, without labels, by documents that they were trained on.

    Args:
        settings: of the command.
        source: fingerprint of the corpus' files.
        stores: of the corpus, one for each tokenizer.
    """
    for setting, model in (("model", settings.model), ("compare", settings.compare)):
        if model is None or (run := run_of(model)) is None or run.manifest.before["inputs"].get("corpus") != source:
            continue
        had = run.settings
        if run.manifest.job == "pretrain" and {had.train.method, had.loop.initialization} == {"none"}:
            continue
        its = _corpus_of(run)
        same = next((store for store in stores if store.fingerprint == its), None)
        # Where documents are in other splits than in the run, any of them may have been trained on.
        trained = None if same is None else training_splits(had, validation_of(had, same))
        if trained is None or settings.place in trained:
            held_out = trained is None or "valid" not in trained
            valid = "--split valid, with the corpus settings of that run, or " if held_out else ""
            say(
                f"warning: {setting} = {redacted(model)!r}: the run {had.name} trained it on these documents, which "
                f"without labels ask for what they taught it: its score doesn't say how it does on others; give {valid}"
                "other documents"
            )


def _corpus_of(run: RunOf) -> str | None:
    """What names what a run's corpus holds; None: it is gone, or not as it was written."""
    entry = run.manifest.before["stages"].get("corpus")
    with contextlib.suppress(FileNotFoundError, DamagedFile):
        return TokenStore.open(folder_in(run.root, entry["folder"])).fingerprint if entry else None
    return None
