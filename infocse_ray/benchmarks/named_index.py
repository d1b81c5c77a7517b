"""The index that --index names."""

from __future__ import annotations

from infocse_ray.embedding.index import Embedding, read_embedding
from infocse_ray.storage.folder import Storage


def embedding_of(folder: str) -> Embedding:
    """What an index has.

    Raises:
        ValueError: there is none.
    """
    try:
        return read_embedding(Storage.open(folder))
    except FileNotFoundError:
        raise ValueError(f"--index = {folder!r}: no vectors are there; name what `infocse embed` wrote") from None
