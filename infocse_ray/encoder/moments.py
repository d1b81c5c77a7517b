"""Count, mean and covariance of sentence vectors, in whole numbers: equal to the bit in whatever order they are added.

1. Vectors of length 1 are rounded to multiples of 2^-20; that is below the error of their own float32 sums.
2. Products of two such numbers are whole numbers up to 2^40: float64 adds 2^13 and int64 2^22 of them without rounding.
3. So moments of parts, merged by any number of actors or workers, are those of the whole; means are taken at the end.
"""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np
import torch

_STEPS = 2**20
"""Multiples of 1/_STEPS are what coordinates are rounded to."""
_EXACT_ROWS = 2**13
_MOST_ROWS = 2**22


class Moments(NamedTuple):
    """Sums over vectors of length 1, in units of 2^-20 and 2^-40."""

    count: int
    first: np.ndarray
    """int64 [d], the sum of the vectors."""
    second: np.ndarray
    """int64 [d, d], the sum of their outer products."""

    @classmethod
    def of(cls, vectors: torch.Tensor) -> Moments:
        """The moments of some vectors, which are scaled to length 1 first.

        Args:
            vectors: float [n, d], on any device; n may be 0.

        Raises:
            ValueError: one isn't finite: as a whole number it would be any.
        """
        unit = torch.nn.functional.normalize(vectors.detach().double(), dim=-1)
        if broken := int((~torch.isfinite(unit).all(1)).sum()):
            raise ValueError(
                f"{broken:,} of {len(unit):,} vectors that whitening is fitted on are not finite; set "
                "encoder.precision to fp32, or look into the encoder's weights"
            )
        whole = (unit * _STEPS).round()
        second = torch.zeros(whole.shape[1], whole.shape[1], dtype=torch.int64, device=whole.device)
        for part in whole.split(_EXACT_ROWS):
            second += (part.mT @ part).to(torch.int64)
        return cls(len(whole), whole.to(torch.int64).sum(0).cpu().numpy(), second.cpu().numpy())

    @property
    def dimension(self) -> int:
        """Of the vectors: d."""
        return len(self.first)

    @property
    def effective_count(self) -> float:
        """All weigh alike."""
        return self.count

    @classmethod
    def none(cls, dimension: int) -> Moments:
        """Those of no vectors."""
        return cls(0, np.zeros(dimension, np.int64), np.zeros((dimension, dimension), np.int64))

    def merged(self, other: Moments) -> Moments:
        """The moments of these vectors and the other's.

        Raises:
            ValueError: they are more than int64 can add up.
        """
        count = self.count + other.count
        if count > _MOST_ROWS:
            raise ValueError(f"moments of {count:,} vectors: at most {_MOST_ROWS:,} add up without rounding")
        return Moments(count, self.first + other.first, self.second + other.second)

    def mean(self) -> np.ndarray:
        """float64 [d]."""
        return self.first / (self.count * _STEPS)

    def covariance(self) -> np.ndarray:
        """float64 [d, d], of the vectors as they are (divided by their count)."""
        mean = self.mean()
        return self.second / (self.count * float(_STEPS) ** 2) - np.outer(mean, mean)

    def to_bytes(self) -> bytes:
        """As .npz."""
        sink = io.BytesIO()
        np.savez(sink, allow_pickle=False, count=np.int64(self.count), first=self.first, second=self.second)
        return sink.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Moments:
        """What `to_bytes` wrote."""
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return cls(int(arrays["count"]), arrays["first"], arrays["second"])
