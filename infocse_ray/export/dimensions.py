"""Fewer dimensions of an encoder's vectors: the leading components of its whitening, scaled to length 1 again.

Whitening turns vectors into the directions in which the corpus varies, those of most variance first; a cut keeps these
and is what fitting with `encoder.dimensions` gives. Other encoders' dimensions are in no order: a cut would drop
arbitrary ones.
"""

from __future__ import annotations

import copy

from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.whitening import Whitening


def truncated(encoder: SentenceEncoder, dimensions: int) -> SentenceEncoder:
    """The encoder with whitened vectors of fewer dimensions; its weights are shared.

    Args:
        encoder: with whitening.
        dimensions: d_out, of the vectors of what is returned.

    Raises:
        ValueError: its vectors have no order to cut by, or fewer dimensions.
    """
    whitening = encoder.whitening
    if whitening is None:
        raise ValueError(
            f"dimensions = {dimensions}: the encoder isn't whitened, so its {encoder.dimension} dimensions are in no "
            "order to cut by; whiten it in a run with --encoder.dimensions (train.method = none does no more than "
            "that), or, if it was trained for it (Matryoshka), load it with SentenceTransformer(..., truncate_dim=...)"
        )
    if dimensions > whitening.dimension:
        raise ValueError(
            f"dimensions = {dimensions}: the encoder's vectors have {whitening.dimension}; set it to "
            f"{whitening.dimension} or less"
        )
    cut = copy.copy(encoder)
    # A module's parts are in a dictionary, which a shallow copy would share.
    cut._modules = dict(encoder._modules)
    cut.whitening = Whitening(whitening.mean, whitening.matrix[:, :dimensions], whitening.power)
    return cut
