"""First weights of heads on vectors that mean something already.

torch draws a layer's biases as large as its weights. On vectors of length 1 a bias is then as long as what the layer
makes of the vector: all texts are projected near one point, and training pulls apart, in the encoder, what the head
has pushed together. BERT's layers, and those that the methods publish, start without.
"""

from __future__ import annotations

import torch

_DEVIATION = 0.02  # BERT's initializer_range (Devlin et al. 2019)


def linear(inputs: int, outputs: int) -> torch.nn.Linear:
    """A linear layer that starts as BERT's: weights from N(0, 0.02^2), biases 0."""
    layer = torch.nn.Linear(inputs, outputs)
    torch.nn.init.normal_(layer.weight, std=_DEVIATION)
    torch.nn.init.zeros_(layer.bias)
    return layer


def without_biases(recurrent: torch.nn.GRU) -> torch.nn.GRU:
    """The same module, with its biases set to 0."""
    for name, parameter in recurrent.named_parameters():
        if name.startswith("bias"):
            torch.nn.init.zeros_(parameter)
    return recurrent
