"""The decoder of a denoising auto-encoder: it writes a text from its one vector, in training only.

It is the encoder's own architecture as transformers has it for writing: each token sees those before it and, by
cross-attention in every layer, the sentence vector. Layers start as copies of the encoder's; cross-attention and what
precedes the output layer start untrained. The output layer is the decoder's word embeddings.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from infocse_ray.encoder.decoder import decoder_config
from infocse_ray.encoder.model import SentenceEncoder


class DenoisingDecoder(nn.Module):
    """A decoder with weights of its own: those of an encoder can't be read by two passes that workers exchange."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        """Make it from an encoder.

        Args:
            encoder: whose backbone `can_decode`; on any device, and left as it is.
        """
        super().__init__()
        backbone = encoder.backbone
        self.decoder: Any = AutoModelForCausalLM.from_config(decoder_config(backbone.config), dtype=torch.float32)
        inner = self.decoder.base_model
        own = backbone.state_dict()
        shared = {name for name in inner.state_dict() if name in own}
        inner.load_state_dict({name: own[name] for name in shared}, strict=False)
        self._copied = shared
        hidden = backbone.config.hidden_size
        size = encoder.base_dimension
        self.widen = nn.Identity() if size == hidden else nn.Linear(size, hidden)
        # Layers are used to vectors whose elements are about 1.
        self.scale = math.sqrt(size) if encoder.base_normalize else 1.0

    def copied(self) -> list[nn.Parameter]:
        """Those that began as the encoder's."""
        return [one for name, one in self.decoder.base_model.named_parameters() if name in self._copied]

    def token_loss(self, vectors: torch.Tensor, inputs: dict[str, torch.Tensor], _: torch.Tensor) -> torch.Tensor:
        """Sum of the cross entropies of every token but the first, by the vector and the tokens before it.

        Args:
            vectors: float [b, d], of texts as they were encoded, before whitening.
            inputs: `decoded` int64 [b, length] among them, the tokens, -100 behind a text's last.
        """
        tokens = inputs["decoded"]
        written = self.decoder(
            input_ids=tokens[:, :-1].clamp_min(0),
            attention_mask=(tokens[:, :-1] >= 0).long(),
            encoder_hidden_states=self.widen(vectors * self.scale)[:, None],
        ).logits
        targets = tokens[:, 1:].flatten()
        return nn.functional.cross_entropy(written.flatten(0, 1).float(), targets, ignore_index=-100, reduction="sum")
