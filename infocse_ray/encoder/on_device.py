"""Sentences whose token ids lie one after another on a device, where their batches are made.

1. Ids, as narrow as they are, and where each sentence begins go up once for thousands of sentences, from pinned memory.
2. A batch is gathered there: what the host knows of it are its sizes, so that it never waits for the device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.packing import Packed
from infocse_ray.encoder.prompts import Role


class Batch(NamedTuple):
    """Sentences, padded on the right."""

    input_ids: torch.Tensor
    """int64 [b, length]."""
    attention_mask: torch.Tensor
    """int64 [b, length], 1 on real tokens."""


class SentencesOnDevice:
    """Sentences in the order in which they are embedded.

    Attributes:
        lengths: int64 [n], tokens of each, special tokens and prompt included; on the host.
        place: int64 [m], on the device, what was given as such.
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        sentences: Tokens,
        rows: np.ndarray,
        role: Role = "document",
        place: np.ndarray | None = None,
    ) -> None:
        """Send them up.

        Args:
            encoder: on the device; it says which tokens go around a sentence.
            sentences: already cut.
            rows: int64 [n], which of them, in order.
            role: of the sentences.
            place: int64 [m], sent up with them; None: nothing.
        """
        first, last = encoder.around(role)
        body = sentences.lengths[rows]
        place = np.empty(0, np.int64) if place is None else place
        self.lengths = body + len(first) + len(last)
        around = np.array([*first, *last, encoder.pad_id], np.int64)
        known = np.concatenate([sentences.offsets[:-1][rows], body, place, around])
        known_there = sent_up(known, encoder.device)
        n, self._before, self._after = len(rows), len(first), len(last)
        self._begin, self._body, self.place, self._around = known_there.split([n, n, len(place), len(around)])
        values = sentences.values if len(sentences.values) else np.zeros(1, sentences.values.dtype)
        # torch gathers no unsigned integers of more than 8 bits, but those of the same bits.
        self._bits = (1 << 8 * values.itemsize) - 1 if values.dtype.kind == "u" and values.itemsize < 8 else -1
        self._values = sent_up(values.view(f"i{values.itemsize}"), encoder.device)

    def padded(self, begin: int, end: int) -> Batch:
        """Those from `begin` to before `end`, as `SentenceEncoder.pad` has them."""
        width = int(self.lengths[begin:end].max(initial=1))
        column = torch.arange(width, device=self._values.device)
        body = self._body[begin:end, None]
        mask = column < body + (self._before + self._after)
        return Batch(self._ids(self._begin[begin:end, None], body, column), mask.long())

    def packed(self, begin: int, end: int) -> Packed:
        """Those from `begin` to before `end`, one after the other without padding."""
        lengths, device = self.lengths[begin:end], self._values.device
        tokens, longest = int(lengths.sum()), int(lengths.max(initial=0))
        there = self._body[begin:end] + (self._before + self._after)
        bounds = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=device)
        bounds[1:] = there.cumsum(0)
        sentence = torch.repeat_interleave(there, output_size=tokens)
        position = torch.arange(tokens, device=device) - bounds[sentence]
        ids = self._ids(self._begin[begin:end][sentence], self._body[begin:end][sentence], position)
        column = torch.arange(longest, device=device)
        mask = column < there[:, None]
        back = bounds[:-1, None] + torch.minimum(column, there[:, None] - 1)
        return Packed(ids[None], position[None], bounds, longest, back, mask.long())

    def _ids(self, begin: torch.Tensor, body: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        """Token ids at places in sentences, which begin at `begin` of all ids and have `body` of their own."""
        own = column - self._before
        inside = (own >= 0) & (own < body)
        ids = self._values[(begin + own).clamp(0, len(self._values) - 1)].long() & self._bits
        around = torch.where(own < 0, column, self._before + (own - body).clamp(0, self._after))
        return torch.where(inside, ids, self._around[around])


def sent_up(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """On the device, perhaps a little later: who computes there needn't wait."""
    there = torch.from_numpy(np.ascontiguousarray(values))
    return there.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else there.to(device)
