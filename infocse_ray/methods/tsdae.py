"""TSDAE (Wang, Reimers and Gurevych 2021): a sentence is written anew from the vector of what noise left of it.

1. 60 % of a sentence's tokens are deleted, one at least stays; what is left is encoded.
2. A decoder (`DenoisingDecoder`) writes the whole sentence from that one vector; the loss is the mean cross entropy of
   its tokens. Nothing is contrasted, so a batch's texts have nothing to do with each other.

Published: CLS pooling, batch 8, AdamW at 3e-5 (constant), weights of encoder and decoder tied, 100,000 steps.
Deviations: batch, steps, learning rate and length are the run's, for one harness trains all; an encoder that comes with
a pooling keeps it; tokens are deleted where they deleted words; the decoder starts as a copy of the encoder but isn't
tied to it, for the workers would exchange gradients of one weight from two modules at two times, and has no dropout.
Its copied layers learn at `train.learning_rate`, the others at `train.head_learning_rate`. Where tokens are counted
(`train.max_tokens`), a sentence has all of its own: the encoder reads fewer, the decoder reads them all. The decoder
reads vectors before whitening, `train.whitened` or not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.spec import EncoderSpec, own_tokens
from infocse_ray.methods.chance import uniforms
from infocse_ray.methods.contrast import Encoded
from infocse_ray.methods.denoising_decoder import DenoisingDecoder
from infocse_ray.methods.method import EachSentence
from infocse_ray.methods.opened import Opened, Views
from infocse_ray.settings import TSDAESettings


class TSDAE(EachSentence):
    """A sentence, and what is left of it."""

    pooling = "cls"
    head_is_new = True
    changes_inputs = True

    def __init__(self, section: TSDAESettings, spec: EncoderSpec) -> None:
        """Check that there is a decoder.

        Args:
            section: its settings.
            spec: of the encoder.

        Raises:
            ValueError: transformers has none of the encoder's kind.
        """
        if not spec.can_decode:
            raise ValueError(
                f"tsdae: transformers has no decoder with cross-attention for a {spec.kind} encoder (it has for bert, "
                "roberta, xlm-roberta and electra); use another method"
            )
        self.section, self.around = section, spec.around
        self.longest = spec.sentence_tokens

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        return ("tsdae", self.section)

    def views(self, opened: Opened, documents: np.ndarray, numbers: np.ndarray, seeds: np.ndarray) -> Views:
        """Sentence `number`, labelled 0."""
        return Views.alike([0], opened.texts.take(opened.offsets[documents] + numbers))

    def inputs(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: np.ndarray, seeds: np.ndarray
    ) -> dict[str, torch.Tensor]:
        """What is left of each sentence, and the sentence that is to be written."""
        ids, there = input_ids.numpy(), attention_mask.numpy() > 0
        own = own_tokens(there, self.around)
        # By the place in the row: how far it is padded must not change what is deleted.
        drawn = np.where(own, uniforms(seeds, ids.shape[1]), -1.0)
        kept = there & (~own | (drawn >= self.section.deleted) | (drawn == drawn.max(1, keepdims=True)))
        left = kept.sum(1, keepdims=True)
        mask = np.arange(left.max(initial=0)) < left
        short = np.zeros(mask.shape, np.int64)
        short[mask] = ids[kept]
        return {
            "input_ids": torch.from_numpy(short),
            "attention_mask": torch.from_numpy(mask.astype(np.int64)),
            "decoded": torch.from_numpy(np.where(there, ids, -100)),
        }

    def head(self, encoder: SentenceEncoder) -> DenoisingDecoder:
        """The decoder."""
        return DenoisingDecoder(encoder)

    def trained_parameters(self, head: DenoisingDecoder) -> list[torch.nn.Parameter]:
        """What the decoder has of the encoder."""
        return head.copied()

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> None:
        """Nothing."""
        return
