"""What whitening does to the vectors of a corpus, in figures for people: its spectrum, and recall by power and by cut.

They are of the very moments and vectors that a power is chosen by: a few products of matrices more, and no text is
embedded for them. Nothing is chosen by them.
"""

from __future__ import annotations

from typing import Any

import torch

from infocse_ray.encoder.moments import Moments
from infocse_ray.encoder.whitening_fit import POWERS, fit_whitening, spectrum
from infocse_ray.retrieval.held_out import HeldOut, score_held_out

_LEAST_DIMENSIONS = 8
"""The last of the cuts, which halve the dimensions."""


def whitening_curves(
    moments: Moments, power: float, dimensions: int | None, vectors: torch.Tensor | None, held_out: HeldOut | None
) -> dict[str, Any]:
    """The figures.

    Args:
        moments: of sentences, that the map is fitted on, if not on whole texts, too.
        power: of the map.
        dimensions: of its output; None: all d.
        vectors: float32 [sentences, d] of `held_out`, before whitening; None: nothing was asked.
        held_out: what asks; without a question there are no scores.

    Returns:
        `spectrum` (floats [d], the variances along the directions, descending, shrunk as the map has them) and, where
        something is asked, what `score_held_out` measures without a map (`plain`), by power at the map's dimensions
        (`powers`, of POWERS) and by dimensions at the map's power (`cuts`), each under the number's text.

    Raises:
        ValueError: there is nothing to fit on.
    """
    figures: dict[str, Any] = {"spectrum": [float(f"{value:.6g}") for value in spectrum(moments)]}
    if vectors is None or held_out is None or not len(held_out.true_keys):
        return figures

    def scores(power: float, cut: int | None) -> dict[str, float]:
        return score_held_out(fit_whitening(moments, power, cut)(vectors), held_out).metrics

    full = dimensions or vectors.shape[1]
    cuts = [cut for halvings in range(32) if (cut := full >> halvings) >= min(_LEAST_DIMENSIONS, full)]
    with torch.inference_mode():
        unit = torch.nn.functional.normalize(vectors.float(), dim=-1)
        figures["plain"] = score_held_out(unit, held_out).metrics
        figures["powers"] = {f"{one:g}": scores(one, dimensions) for one in POWERS}
        figures["cuts"] = {str(cut): scores(power, cut) for cut in cuts}
    return figures
