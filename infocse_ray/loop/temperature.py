"""Whether a temperature fits an encoder.

Similarities are divided by the temperature, and encoders differ in how far their similarities lie apart: where all lie
within a few hundredths, as of encoders that were themselves trained at a temperature of 0.01, dividing by 0.05 leaves a
softmax that is nearly flat, over batches and over what distillation holds on to.
"""

from __future__ import annotations

from infocse_ray.settings import Settings
from infocse_ray.settings.unread import reads_temperature

_SHARE = 0.5
"""Of the standard deviation of cosines: 0.05 where that is 0.1, as all-MiniLM-L6-v2's is (docs/tried.md)."""
_TOO_HIGH = 2.0
"""Times as high as that."""


def temperature_doubts(settings: Settings, spread: float | None) -> list[str]:
    """A line that warns of `train.temperature`, where it is high for the encoder; none if not.

    Args:
        settings: of the run.
        spread: standard deviation of the cosine of two sentences, by the encoder that the run starts from; None: it
            isn't known.
    """
    train = settings.train
    if spread is None or train.similarity != "cosine" or train.whitened or not reads_temperature(settings):
        return []
    fitting = _SHARE * spread
    if not 0.0 < fitting * _TOO_HIGH <= train.temperature:
        return []
    return [
        f"train.temperature = {train.temperature:g} is high for this encoder, whose similarities lie close together "
        f"(their standard deviation is {spread:.3f}): {fitting:.2g} is as sharp for it as 0.05 is where that is 0.1"
    ]
