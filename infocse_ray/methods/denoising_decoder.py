"""The decoder of a denoising auto-encoder: it writes a text from its one vector, in training only.

It is the encoder's own architecture as transformers has it for writing: each token sees those before it and, by
cross-attention in every layer, the sentence vector. Layers start as copies of the encoder's; cross-attention and what
precedes the output layer start untrained. The output layer is the decoder's word embeddings.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

from infocse_ray.encoder.decoder import decoder_config
from infocse_ray.encoder.model import SentenceEncoder

_LOGITS = 2**28
"""Scores of the vocabulary that are held at once, 1 GiB in fp32: of more tokens they are computed in parts, twice."""

_Score = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


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
        for module in self.decoder.modules():  # kinds call their rates by different names
            if isinstance(module, nn.Dropout):
                module.p = 0.0
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
        self._apart = self._ends_with_output_layer()

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
        states, score = self._states(tokens[:, :-1], self.widen(vectors * self.scale)[:, None])
        states, targets = states.flatten(0, 1), tokens[:, 1:].flatten()
        rows = max(1, _LOGITS // self.decoder.config.vocab_size)
        if len(targets) <= rows:
            return score(states, targets)
        parts = zip(states.split(rows), targets.split(rows), strict=True)
        return torch.stack([checkpoint(score, *part, use_reentrant=False) for part in parts]).sum()

    def _states(self, tokens: torch.Tensor, read: torch.Tensor) -> tuple[torch.Tensor, _Score]:
        """What each token's successor is written from, [b, length, d], and what scores such."""
        ids = {"input_ids": tokens.clamp_min(0), "attention_mask": (tokens >= 0).long(), "encoder_hidden_states": read}
        if not self._apart:
            return self.decoder(**ids).logits, _of_logits
        out = self.decoder.get_output_embeddings()
        with _passed_by(out):
            states = self.decoder(**ids).logits
        return states, lambda some, targets: _of_logits(out(some), targets)

    @torch.no_grad()
    def _ends_with_output_layer(self) -> bool:
        """Whether logits are what the output layer makes of what it gets, and nothing comes behind it."""
        out = self.decoder.get_output_embeddings()
        if not isinstance(out, nn.Linear):
            return False
        before = self.decoder.training
        ids = torch.ones(1, 2, dtype=torch.int64, device=out.weight.device)
        read = torch.ones(1, 1, self.decoder.config.hidden_size, device=out.weight.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "encoder_hidden_states": read}
        try:
            expected = self.decoder.eval()(**inputs).logits
            with _passed_by(out):
                states = self.decoder(**inputs).logits
        except RuntimeError:  # a bias that is added to what was passed by
            return False
        finally:
            self.decoder.train(before)
        return states.shape[-1] == out.in_features and torch.allclose(out(states), expected, atol=1e-5)


@contextlib.contextmanager
def _passed_by(layer: nn.Module) -> Iterator[None]:
    """Have a layer give back what it gets."""
    layer.forward = lambda given: given  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        del layer.forward


def _of_logits(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Sum of cross entropies, in fp32, of [n, vocabulary] and int64 [n], but of those that are -100."""
    return nn.functional.cross_entropy(logits.float(), targets, ignore_index=-100, reduction="sum")
