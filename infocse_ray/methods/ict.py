"""Inverse Cloze Task (Lee, Chang and Toutanova 2019; as in Chang et al. 2020): a sentence and the text around it.

1. The query is a sentence, the block the sentences around it, 288 tokens in all; the query stays in it 1 time in 10.
2. In training both vectors go through one linear layer to 128 dimensions, which starts as BERT's, and layer norm.
3. The query is to find its block among those of the batch, one way, by inner product.

Published: CLS pooling, query 64 tokens, block 288, learning rate 1e-4, batch 4096. Deviations: the run's batch, steps
and learning rate, the projection's a rate of its own; an encoder that comes with a pooling keeps it; one encoder and
one projection for query and block, for one encoder is what is wanted; blocks are not cut from the document beforehand
but grow around each query, by turns after and before it, so that none is left empty and every sentence is a query once
a pass. Without the projection the temperature is the run's.

Past the published method: `ict.block = sentences` takes the mean of the vectors of the block's sentences.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from infocse_ray.corpus.store import Documents
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.contrast import Contrast, Encoded, View, own
from infocse_ray.methods.first_weights import linear
from infocse_ray.methods.method import Counted, Document, Plain
from infocse_ray.settings import ICTSettings, Train


class CutOut(NamedTuple):
    """A document each of whose sentences is taken out of its surroundings."""

    document: Document
    section: ICTSettings
    query: int
    """Tokens a query is cut to."""
    block: int
    """Tokens of a block at most."""
    sentence: int
    """Tokens a sentence of a block is cut to where it is encoded by itself."""

    @property
    def examples(self) -> int:
        """One a sentence."""
        return len(self.document.sentences)

    def views(self, number: int, random: np.random.Generator) -> list[View]:
        """The query (0) and its block: one text (1), or its sentences (1 each)."""
        around = self.around(number, random.random() < self.section.keep_query)
        query = View(self.document.sentence(number, self.query), 0)
        if self.section.block == "sentences":
            return [query, *(View(self.document.sentence(n, self.sentence), 1) for n in around)]
        text = np.concatenate([self.document.sentence(n, self.block) for n in around])
        return [query, View(text[: self.block], 1)]

    def around(self, number: int, keep: bool) -> list[int]:
        """The sentences of the block, in order: at least one, the rest while they fit whole."""
        lengths = self.document.sentences.lengths
        block = {number} if keep else set()
        room = self.block - (int(lengths[number]) if keep else 0)
        before, after = number - 1, number + 1
        turn = True
        while before >= 0 or after < len(lengths):
            # By turns, from one side only where the other has ended.
            forward = after < len(lengths) and (turn or before < 0)
            next_one = after if forward else before
            if len(block) > keep and lengths[next_one] > room:
                break
            block.add(next_one)
            room -= int(lengths[next_one])
            before, after, turn = (before, after + 1, False) if forward else (before - 1, after, True)
        return sorted(block)


class ICT(Plain):
    """A sentence and the text around it."""

    pooling = "cls"
    short = "fewer than 3 sentences, so that a block is one sentence"

    def __init__(self, section: ICTSettings, train: Train, spec: EncoderSpec) -> None:
        self.section, self.dimension = section, spec.dimension
        self.cosine = train.similarity == "cosine"
        # Projected vectors are not of length 1 whatever the similarity; published is their plain inner product.
        self.temperature = section.temperature or (1.0 if section.projection else train.temperature)
        self.head_is_new = section.projection > 0
        self.sentence = spec.sentence_tokens
        self.query = min(section.query_tokens, spec.longest)
        self.block = min(section.block_tokens, spec.longest)
        self.longest = max(self.query, self.sentence if section.block == "sentences" else self.block)

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        return ("ict", self.section, self.temperature, self.cosine)

    def count_identity(self) -> tuple[Any, ...]:
        """Name and what the count depends on."""
        return ("ict",)

    def count(self, documents: Documents) -> Counted:
        """One a sentence."""
        sizes = np.diff(documents.offsets)
        return Counted(sizes, sizes < 3)

    def open(self, document: Document) -> CutOut:
        """Each sentence and its surroundings."""
        return CutOut(document, self.section, self.query, self.block, self.sentence)

    def head(self) -> torch.nn.Module:
        """Linear and layer norm, on queries and blocks alike."""
        size = self.section.projection
        if not size:
            return torch.nn.Identity()
        return torch.nn.Sequential(linear(self.dimension, size), torch.nn.LayerNorm(size))

    def contrast(self, encoded: Encoded, head: torch.nn.Module) -> Contrast:
        """Rows are the queries, columns the blocks."""
        asked, text = encoded.where(0), encoded.where(1)
        queries = encoded.side(asked)
        blocks = encoded.means(text, encoded.owner[text], len(asked), self.cosine)
        rows, columns = (side._replace(vectors=head(side.vectors)) for side in (queries, blocks))
        return Contrast(rows, columns, own(len(asked), asked.device), self.temperature)
