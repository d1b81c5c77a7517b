"""What the encoder made of texts when training began: what `train.distillation` holds on to.

1. A frozen copy of the encoder, as it is used for inference, embeds the texts of each batch.
2. A training that reads the texts of its documents several times has them all embedded once, before its first step, and
   looks them up from then on. They are embedded together, in the corpus' order, so that a training which is resumed
   holds on to the same vectors, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.on_device import sent_up
from infocse_ray.encoder.prompts import Role

_BYTES = 2**28
"""Of the vectors that are kept on the device, at most."""

TIMES = 2
"""Texts are embedded once where training would embed so many times as many: with fewer it gains next to nothing."""

_AT_ONCE = 4_096
"""Texts: some seconds on CPUs, after which a request to stop is heard."""


def most_kept(dimension: int) -> int:
    """How many texts of a worker are embedded once at most."""
    return _BYTES // (4 * dimension)


class StartVectors:
    """Vectors of the encoder with which a training begins, embedded when they are asked for, or before.

    Attributes:
        dimension: of the vectors.
        device: that they are on.
    """

    def __init__(self, encoder: SentenceEncoder) -> None:
        """Of an encoder for inference, which nobody trains."""
        self._encoder = encoder
        self.dimension, self.device = encoder.dimension, encoder.device
        self._ids, self._vectors = np.zeros(0, np.int64), torch.empty(0, encoder.dimension, device=encoder.device)

    def of(self, texts: Tokens, ids: np.ndarray, role: Role) -> torch.Tensor:
        """Vectors of texts, float32 [n, d].

        Args:
            texts: n.
            ids: int64 [n], their hashes.
            role: of the texts, which says what prompt they get.

        Raises:
            OutOfMemory: a single text doesn't fit.
        """
        if role != "document" or not self.known:
            return embed(self._encoder, texts, role=role).vectors
        places = np.minimum(np.searchsorted(self._ids, ids), self.known - 1)
        new = np.flatnonzero(self._ids[places] != ids)
        vectors = self._vectors[sent_up(places, self.device)]
        if len(new):
            vectors[sent_up(new, self.device)] = embed(self._encoder, texts.take(new), role=role).vectors
        return vectors

    @property
    def known(self) -> int:
        """How many texts are embedded already."""
        return len(self._ids)

    def most(self, read: float) -> int:
        """How many different texts may be embedded once by a training that reads so many, counted as often as read."""
        return min(int(read / TIMES), most_kept(self.dimension))

    def embed_once(self, texts: Tokens, stop: Callable[[], bool] = lambda: False) -> bool:
        """Embed documents' texts, each another; `of` looks them up from now on.

        Args:
            texts: n.
            stop: whether to leave off; asked now and then.

        Returns:
            Whether it was left off; then none of them is known.

        Raises:
            OutOfMemory: a single text doesn't fit.
        """
        vectors = torch.empty(len(texts), self.dimension, device=self.device)
        for begin in range(0, len(texts), _AT_ONCE):
            if stop():
                return True
            rows = np.arange(begin, min(begin + _AT_ONCE, len(texts)))
            vectors[begin : begin + len(rows)] = embed(self._encoder, texts.take(rows)).vectors
        ids = texts.hashes()
        order = np.argsort(ids)
        self._ids, self._vectors = ids[order], vectors[sent_up(order, self.device)]
        return False
