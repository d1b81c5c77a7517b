"""What is trained: the encoder as training calls it, the strategy's head, and the optimiser of both.

The head sees vectors, after DDP's encoder, so that gradient caching serves heads that look at many texts at once; its
gradients are averaged here, as DDP averages the encoder's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from infocse_ray.collective import total, workers
from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.embed import length_buckets
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.positives.document import mix
from infocse_ray.positives.strategy import Strategy
from infocse_ray.positives.stream import Batch
from infocse_ray.settings import Settings
from infocse_ray.train.cached import Chunk
from infocse_ray.train.memory import ChunkMemory


class _Cut:
    """What an embedding layer's hook multiplies by; apart from the module, so that a copy of the encoder holds no other
    copy of it, in a cycle that memory would wait for.
    """

    keep: torch.Tensor | None = None

    def __call__(self, _: Any, __: Any, embedded: torch.Tensor) -> torch.Tensor:
        return embedded if self.keep is None else embedded * self.keep


class _InTraining(torch.nn.Module):
    """The encoder with what a strategy may change inside it."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self._cut = _Cut()
        if (layer := getattr(encoder.backbone, "embeddings", None)) is not None:
            layer.register_forward_hook(self._cut)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        keep: torch.Tensor | None = None,
        guess: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Vectors [b, d], and the states [m, d] of the tokens to guess; see `Strategy.inputs`."""
        self._cut.keep = keep
        try:
            hidden = self.encoder.hidden(input_ids, attention_mask, position_ids)
        finally:
            self._cut.keep = None
        vectors = self.encoder.pool(hidden, attention_mask)
        return vectors, hidden[guess >= 0] if guess is not None else hidden[:0, 0]


class Trainee:
    """An encoder in training."""

    def __init__(self, encoder: SentenceEncoder, strategy: Strategy, settings: Settings, seed: int) -> None:
        """Prepare for training.

        Args:
            encoder: on its device; every worker has the same.
            strategy: whose head, dropout and augmentation it gets.
            settings: of the run.
            seed: of the head's first weights.
        """
        self.encoder, self.strategy, self.settings = encoder, strategy, settings
        self.memory = ChunkMemory(settings.train.chunk_tokens, encoder.device)
        freeze_unused(encoder)
        if strategy.dropout is not None:
            set_dropout(encoder, strategy.dropout)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(seed, 4) >> 1)
            self.head: Any = strategy.head().to(encoder.device)
        self.model: torch.nn.Module = _InTraining(encoder)
        if workers() > 1:
            # Several chunks may go forward before one backward: buffers, which never change, must not be sent between.
            devices = [encoder.device] if encoder.device.type == "cuda" else None
            self.model = DistributedDataParallel(self.model, device_ids=devices, broadcast_buffers=False)
        train = settings.train
        self.optimizer: torch.optim.Optimizer = torch.optim.Adam(
            self.parameters(),
            lr=train.learning_rate,
            betas=(train.adam_beta1, train.adam_beta2),
            eps=train.adam_epsilon,
            fused=True,  # on CPUs an eighth of the default's time, which for small batches is a good part of a step
        )

    def parameters(self) -> list[torch.nn.Parameter]:
        """All that is trained."""
        return [p for p in [*self.encoder.parameters(), *self.head.parameters()] if p.requires_grad]

    def chunks(self, batch: Batch) -> list[Chunk]:
        """A batch's texts, sorted by length, in chunks of at most `memory.tokens` tokens with padding."""
        encoder, device = self.encoder, self.encoder.device
        longest = self.longest
        found = []
        for rows in length_buckets(encoder.lengths(batch.texts, longest), self.memory.tokens):
            input_ids, attention_mask = encoder.pad(batch.texts.take(rows), longest)
            inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
            inputs |= self.strategy.inputs(input_ids, attention_mask, batch.labels[rows], batch.seeds[rows])
            on_device = {name: tensor.to(device) for name, tensor in inputs.items()}
            found.append(Chunk(torch.from_numpy(rows).to(device), on_device))
        return found

    @property
    def longest(self) -> int:
        """Tokens of the longest text, special tokens included."""
        return self.strategy.longest + len(self.encoder.prefix) + len(self.encoder.suffix)

    def tokens(self, texts: Tokens) -> np.ndarray:
        """int64 [n]: tokens of each text as encoded."""
        return self.encoder.lengths(texts, self.longest)

    def tokens_of_all(self, batch: Batch, stop: bool) -> tuple[int, bool]:
        """Tokens of the global batch, of all workers, padding not counted; and whether any worker said `stop`."""
        here = [int(self.tokens(batch.texts).sum()), int(stop)]
        tokens, stops = total(torch.tensor(here, device=self.encoder.device)).tolist()
        return tokens, stops > 0

    def average_head(self) -> None:
        """Average the head's gradients over workers, as DDP does the encoder's."""
        there = list(self.head.parameters())
        for parameter in there:
            # Where no worker used it, too: Adam skips what has no gradient, with one worker as with many.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if workers() == 1 or not there:
            return
        gradients = [p.grad for p in there if p.grad is not None]
        together = total(torch.cat([g.flatten() for g in gradients])) / workers()
        for parameter, part in zip(there, together.split([p.numel() for p in there]), strict=True):
            parameter.grad = part.view_as(parameter).clone()


def set_dropout(encoder: SentenceEncoder, rate: float) -> None:
    """Set every dropout rate of an encoder: its layers', and those that attention keeps as a number (ModernBERT's)."""
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = rate
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), (int, float)):
                setattr(module, name, rate)


def freeze_unused(encoder: SentenceEncoder) -> None:
    """Freeze parameters that don't reach the sentence vector (such as BERT's pooler), for which DDP would wait."""
    encoder.eval()
    ids, mask = torch.full((1, 4), encoder.pad_id), torch.ones(1, 4, dtype=torch.int64)
    encoder(ids.to(encoder.device), mask.to(encoder.device)).sum().backward()
    for parameter in encoder.parameters():
        parameter.requires_grad_(parameter.grad is not None)
        parameter.grad = None
