"""The texts that training reads of some shards, each once: what a corpus so small that it is read again consists of."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from infocse_ray.corpus.tokens import Tokens, concatenate
from infocse_ray.methods.method import Method
from infocse_ray.sampling.shards import Shards


def different_texts(source: Shards, method: Method, shards: Iterable[int], most: int) -> Tokens | None:
    """The different texts that the examples of shards are made of, in the order in which they stand there.

    Args:
        source: of the examples.
        method: makes them.
        shards: are read, until there are more texts than `most`.
        most: of the texts; None where there are more.
    """
    parts: list[Tokens] = []
    seen = np.zeros(0, np.int64)
    for shard in shards:
        with source.open(shard) as opened:
            for documents in opened.read_all(opened.groups()):
                texts = method.open(documents).texts
                ids, first = np.unique(texts.hashes(), return_index=True)
                new = ~np.isin(ids, seen)
                parts.append(texts.take(np.sort(first[new])))
                seen = np.concatenate([seen, ids[new]])
                if len(seen) > most:
                    return None
    return concatenate(parts) if parts else None
