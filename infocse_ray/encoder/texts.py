"""Texts that are no tokenised corpus, such as scored pairs and queries, as vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE, embed
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.prompts import Role


def tokenised(encoder: SentenceEncoder, texts: Sequence[str], role: Role = "document") -> Tokens:
    """Token ids of n texts, whole and without special tokens, as a corpus for the encoder has them."""
    tokenizer = encoder.corpus_tokenizer().ready()
    ids = (tokenizer.counterparts if role == "query" else tokenizer.sentences)(texts)
    return Tokens.of(ids, np.uint32)


class TextEncoder:
    """An encoder that reads texts."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        """Take an encoder in evaluation mode, in the precision to use."""
        self.encoder = encoder

    def vectors(self, texts: Sequence[str], role: Role = "document") -> torch.Tensor:
        """float32 [n, d] on the encoder's device, each text cut to the encoder's `max_length`."""
        parts = [torch.empty(0, self.encoder.dimension, device=self.encoder.device)]
        for begin in range(0, len(texts), SENTENCES_AT_ONCE):
            tokens = tokenised(self.encoder, texts[begin : begin + SENTENCES_AT_ONCE], role)
            parts.append(embed(self.encoder, tokens, role=role).vectors)
        return torch.cat(parts)
