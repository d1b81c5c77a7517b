"""The encoder that vectors are asked of."""

from __future__ import annotations

from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.settings import Encoder
from infocse_ray.settings.embed import Embed


def load(settings: Embed) -> SentenceEncoder:
    """The encoder on this machine, as the settings shape it.

    Raises:
        ValueError: it is none, or doesn't fit them.
    """
    shape = Encoder(
        model=settings.model,
        pooling=settings.pooling,
        max_length=settings.max_length,
        document_prompt=settings.document_prompt,
        query_prompt=settings.query_prompt,
    )
    cosine = settings.similarity == "cosine"
    folder = resolve_encoder(settings.model, "model")
    try:
        return load_encoder(folder, shape, cosine=cosine, setting="model")
    except ValueError as error:
        raise ValueError(str(error).removeprefix("encoder.")) from error  # the settings have these names here
