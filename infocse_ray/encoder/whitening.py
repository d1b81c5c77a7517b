"""An affine map after which sentence vectors vary alike in all directions.

With the mean mu and the covariance V diag(l) V' of unit sentence vectors, power p maps x to
V diag(l)^(-p/2) V' (x - mu), scaled to length 1; p = 1 is BERT-whitening (Su et al. 2021). Here is the map, not its
fitting.
"""

from __future__ import annotations

import torch
from torch import nn


class Whitening(nn.Module):
    """normalize((normalize(x) - mean) @ matrix), in fp32.

    Attributes:
        mean: float32 [d], of unit sentence vectors.
        matrix: float32 [d, d_out].
        power: what the matrix was made with; the map itself doesn't need it.
    """

    mean: torch.Tensor
    matrix: torch.Tensor

    def __init__(self, mean: torch.Tensor, matrix: torch.Tensor, power: float) -> None:
        """Take the map over, in fp32.

        Args:
            mean: float [d].
            matrix: float [d, d_out].
            power: what it was made with.

        Raises:
            ValueError: the shapes don't fit each other.
        """
        super().__init__()
        if mean.ndim != 1 or matrix.ndim != 2 or len(mean) != len(matrix):
            raise ValueError(f"whitening: a mean {list(mean.shape)} doesn't go with a matrix {list(matrix.shape)}")
        self.register_buffer("mean", mean.detach().float().clone())
        self.register_buffer("matrix", matrix.detach().float().clone())
        self.power = float(power)

    @property
    def dimension(self) -> int:
        """d_out, the length of the vectors that come out."""
        return self.matrix.shape[1]

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Unit vectors, float32 [n, d_out], of sentence vectors of any length, float [n, d]."""
        with torch.autocast(vectors.device.type, enabled=False):
            unit = nn.functional.normalize(vectors.float(), dim=-1)
            return nn.functional.normalize((unit - self.mean) @ self.matrix, dim=-1)

    def bias(self) -> torch.Tensor:
        """-mean @ matrix, float32 [d_out]: with it the map is one linear layer."""
        return -(self.mean.double() @ self.matrix.double()).float()
