"""The annotations of a finished run, and the encoder that made each, found by what names them.

An annotate stage is named by the fingerprint of the encoder that embedded, so of all encoders of a run the one is found
with which the name comes out: whether it was whitened, initialised, fine-tuned before, another's, or its own start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError

from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.annotate.engine import Engine
from infocse_ray.annotate.share import Share
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder import openvino
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.loop.checks import training_splits, validation_of
from infocse_ray.loop.identity import annotate_identity
from infocse_ray.loop.iteration_stages import engine_in, made_by
from infocse_ray.loop.manifest import folder_in, read_manifest
from infocse_ray.runtime.libraries import installed
from infocse_ray.settings import EngineName, Settings, fingerprint
from infocse_ray.settings.explain import explain
from infocse_ray.stages.stage import Stage, read_stage
from infocse_ray.storage.folder import Storage


class Annotation(NamedTuple):
    """The clusters of one iteration."""

    iteration: int
    stage: Stage
    encoder: EncoderFolder
    documents: TrainingDocuments
    engine: Engine
    """What computed the backbone, where it is at hand."""


class AnnotatedRun(NamedTuple):
    """A finished run."""

    folder: Storage
    settings: Settings
    documents: TrainingDocuments
    """Those that every iteration annotated."""
    tokenizer: EncoderFolder
    """Whose tokenizer the corpus was tokenised with."""
    annotations: list[Annotation]
    """By iteration; none where the method makes no clusters."""


def annotated_run(root: Storage, name: str) -> AnnotatedRun:
    """Read a run's manifest.

    Args:
        root: the storage that runs share.
        name: of the run.

    Raises:
        ValueError: there is no such run, it isn't finished, this version can't do what it did, or an annotation's
            encoder is gone.
    """
    folder = root / name
    try:
        manifest = read_manifest(folder)
    except FileNotFoundError:
        raise ValueError(
            f"name = {name!r}: there is no run in {folder}; `infocse runs --storage {root}` lists those there are"
        ) from None
    if "finished" not in manifest:
        raise ValueError(f"name = {name!r}: that run isn't finished; the command that started it goes on with it")
    try:
        settings = Settings.model_validate({**manifest["settings"], "name": name, "storage": root.uri})
    except ValidationError as error:
        raise ValueError(
            f"name = {name!r}: another version of infocse_ray made that run ({explain(error, Settings)})"
        ) from None
    stages = {key: folder_in(root, entry["folder"]) for key, entry in manifest["stages"].items()}
    store = TokenStore.open(stages["corpus"])
    splits = training_splits(settings, validation_of(settings, store))
    documents = TrainingDocuments(store, splits)
    length = settings.encoder.max_length
    came = EncoderFolder(stages["iteration_0/encoder"] / "model", manifest["inputs"]["encoder"], length)
    encoders = list(_encoders(came, stages, manifest["inputs"], documents))
    annotations: list[Annotation] = []
    for number, stage in _annotate_stages(stages):
        share = Share.of_stage(stage.summary, settings.seed, number)
        named = {
            annotate_identity(settings, store.fingerprint, encoder.fingerprint, splits, engine, share, prompted): (
                encoder,
                read,
            )
            for encoder, read in encoders
            for engine in get_args(EngineName)
            for prompted in (False, True)
        }
        if stage.fingerprint not in named:
            raise ValueError(
                f"name = {name!r}: the encoder that made {stage.folder} isn't found, another version of infocse_ray "
                "did; run the command of the run again under another name"
            )
        graph = stages.get(f"iteration_{number}/graph") if installed(openvino.PACKAGES[False]) else None
        engine = engine_in(None if graph is None else read_stage(graph))
        encoder, read = named[stage.fingerprint]
        read = read._replace(draws=() if share is None else (share,))
        annotations.append(Annotation(number, stage, encoder, read, engine))
    common = documents._replace(draws=[share for one in annotations for share in one.documents.draws])
    return AnnotatedRun(folder, settings, common, came, annotations)


def _annotate_stages(stages: dict[str, Storage]) -> list[tuple[int, Stage]]:
    found = [(re.fullmatch(r"iteration_(\d+)/annotations", key), folder) for key, folder in stages.items()]
    return sorted(((int(match[1]), read_stage(folder)) for match, folder in found if match), key=lambda one: one[0])


def _encoders(
    came: EncoderFolder, stages: dict[str, Storage], inputs: dict[str, Any], documents: TrainingDocuments
) -> Iterator[tuple[EncoderFolder, TrainingDocuments]]:
    """Every encoder of the run, with the documents as it reads them."""
    yield came, documents
    for key, folder in stages.items():
        kind = key.rpartition("/")[2]
        if kind == "whitening":
            name = fingerprint("encoder", read_stage(folder).fingerprint)
            yield EncoderFolder(folder / "model", name, came.max_length), documents
        elif kind == "train" and (made := made_by(read_stage(folder), came.max_length)) is not None:
            yield made, documents
        elif key == "first_encoder":
            length = (read_stage(folder).summary or {})["max_length"]
            own = stages.get("first_encoder/corpus")
            store = None if own is None else TokenStore.open(own)
            other = EncoderFolder(folder / "model", inputs["first_encoder"], length)
            yield other, documents._replace(encoder_store=store)
