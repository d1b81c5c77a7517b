"""Texts that are no tokenised corpus, such as scored pairs and queries, as vectors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from tokenizers import Tokenizer

from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE, embed
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.prompts import Role


class TextEncoder:
    """An encoder that reads texts."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        """Take an encoder in evaluation mode, in the precision to use."""
        self.encoder = encoder
        self._tokenizer = Tokenizer.from_str(encoder.corpus_tokenizer())
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def tokens(self, texts: Sequence[str]) -> Tokens:
        """Token ids of each text, whole, without special tokens and prompts."""
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
        flat = np.fromiter(itertools.chain.from_iterable(ids), np.uint32)
        return Tokens(flat, offsets_of(np.array([len(row) for row in ids], np.int64)))

    def vectors(self, texts: Sequence[str], role: Role = "document") -> torch.Tensor:
        """float32 [n, d] on the encoder's device, each text cut to the encoder's `max_length`."""
        parts = [torch.empty(0, self.encoder.dimension, device=self.encoder.device)]
        for begin in range(0, len(texts), SENTENCES_AT_ONCE):
            tokens = self.tokens(texts[begin : begin + SENTENCES_AT_ONCE])
            parts.append(embed(self.encoder, tokens, role=role).vectors)
        return torch.cat(parts)
