"""The encoders that `infocse evaluate` is given: loaded as its settings say, and saved where workers find them."""

from __future__ import annotations

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.settings import Encoder, fingerprint
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.stages.stage import run_stage
from infocse_ray.storage.folder import Storage


def load_named(settings: Evaluate) -> dict[str, SentenceEncoder]:
    """The encoders by the setting that names them: `model` and, where it is given, `compare`.

    Raises:
        ValueError: one is no encoder, or doesn't fit the settings.
    """
    named = {"model": settings.model} | ({} if settings.compare is None else {"compare": settings.compare})
    return {setting: _load(settings, setting, model) for setting, model in named.items()}


def _load(settings: Evaluate, setting: str, model: str) -> SentenceEncoder:
    shape = Encoder(
        model=model,
        pooling=settings.pooling,
        max_length=settings.max_length,
        document_prompt=settings.document_prompt,
        query_prompt=settings.query_prompt,
    )
    cosine = settings.similarity == "cosine"
    return load_encoder(resolve_encoder(model, setting), shape, cosine=cosine, setting=setting)


def save_shared(root: Storage, encoder: SentenceEncoder) -> EncoderFolder:
    """The encoder in the storage that runs share, saved once."""
    name = encoder.fingerprint()
    saved = run_stage(
        root,
        root / "encoders" / name,
        "encoder",
        fingerprint("encoder", name),
        lambda stage: {"max_length": EncoderFolder.save(encoder, stage.folder / "model").max_length},
    )
    return EncoderFolder(saved.folder / "model", name, encoder.max_length)
