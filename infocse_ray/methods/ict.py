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

from typing import Any

import numpy as np
import torch

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import Tokens, offsets_of, places, spans
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.spaced import as_texts, spacing
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.chance import uniforms
from infocse_ray.methods.contrast import Contrast, Encoded, own
from infocse_ray.methods.first_weights import linear
from infocse_ray.methods.method import Counted, Plain
from infocse_ray.methods.opened import Opened, Views
from infocse_ray.settings import ICTSettings, Train


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
        self.behind_a_space = spec.behind_a_space if section.block == "text" else None
        self.query = min(section.query_tokens, spec.longest)
        self.block = min(section.block_tokens, spec.longest)
        self.longest = max(self.query, self.sentence if section.block == "sentences" else self.block)

    def identity(self) -> tuple[Any, ...]:
        """Name and settings."""
        return ("ict", self.section, self.temperature, self.cosine, *spacing(self.behind_a_space))

    def count_identity(self) -> tuple[Any, ...]:
        """Name and what the count depends on."""
        return ("ict",)

    def count(self, documents: Documents) -> Counted:
        """One a sentence."""
        sizes = np.diff(documents.offsets)
        return Counted(sizes, sizes < 3)

    def open(self, documents: Documents) -> Opened:
        """Their sentences."""
        return Opened.of(documents, self.count(documents).examples)

    def views(self, opened: Opened, documents: np.ndarray, numbers: np.ndarray, seeds: np.ndarray) -> Views:
        """The query (0) and its block: one text (1), or its sentences (1 each)."""
        first, end = opened.offsets[documents], opened.offsets[documents + 1]
        query = first + numbers
        # A query that fills the block by itself would leave none of what is around it.
        fits = (opened.texts.lengths[query] < self.block) | (self.section.block == "sentences")
        keep = (uniforms(seeds, 1)[:, 0] < self.section.keep_query) & fits
        lengths = opened.texts.lengths
        if self.section.block == "sentences":
            # Each is encoded by itself, and cut then.
            begin, end = self._around(np.minimum(lengths, self.sentence), first, query, end, keep)
            return self._sentences(opened.texts, begin, query, end, keep)
        begin, end = self._around(lengths, first, query, end, keep)
        offsets = opened.texts.offsets
        # The query, what is before it, and it and what is after it: two ranges of tokens, cut as one text.
        before = np.minimum(offsets[query] - offsets[begin], self.block)
        since = offsets[np.where(keep, query, query + 1)]
        after = np.minimum(offsets[end] - since, self.block - before)
        asked = np.minimum(offsets[query + 1] - offsets[query], self.query)
        at = places(
            np.stack([offsets[query], offsets[begin], since], axis=1).ravel(),
            np.stack([asked, before, after], axis=1).ravel(),
        )
        sizes = np.stack([asked, before + after], axis=1).ravel()
        return Views.alike([0, 1], as_texts(opened.texts, at, offsets_of(sizes), self.behind_a_space))

    def _around(
        self, lengths: np.ndarray, first: np.ndarray, query: np.ndarray, end: np.ndarray, keep: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Blocks grow sentence by sentence: at least one, the rest while they fit whole.

        Args:
            lengths: int64, tokens of all sentences.
            first: int64 [n], the first sentence of each document.
            query: int64 [n], the query.
            end: int64 [n], after the document's last sentence.
            keep: bool [n], whether the query stays in its block.

        Returns:
            int64 [n] twice: the block's first sentence, and the one after its last, the query taken as inside.
        """
        begin, after = query.copy(), query + 1
        room = self.block - np.where(keep, lengths[query], 0)
        forward = np.ones(len(query), bool)
        growing = np.flatnonzero((begin > first) | (after < end))
        while len(growing):
            ahead, behind = after[growing] < end[growing], begin[growing] > first[growing]
            # By turns, from one side only where the other has ended.
            on = ahead & (forward[growing] | ~behind)
            size = lengths[np.where(on, after[growing], begin[growing] - 1)]
            alone = after[growing] - begin[growing] == 1
            fits = alone | (size <= room[growing])
            growing, on, size = growing[fits], on[fits], size[fits]
            after[growing] += on
            begin[growing] -= ~on
            room[growing] -= size
            forward[growing] = ~on
            growing = growing[(begin[growing] > first[growing]) | (after[growing] < end[growing])]
        return begin, after

    def _sentences(
        self, texts: Tokens, begin: np.ndarray, query: np.ndarray, end: np.ndarray, keep: np.ndarray
    ) -> Views:
        sizes = end - begin
        block = places(begin, sizes)
        inside = keep.repeat(sizes) | (block != query.repeat(sizes))
        owner, block = np.arange(len(query)).repeat(sizes)[inside], block[inside]
        owner = np.concatenate([np.arange(len(query)), owner])
        labels = np.repeat([0, 1], [len(query), len(block)])
        order = np.argsort(owner, kind="stable")
        rows = np.concatenate([query, block])[order]
        longest = np.where(labels, self.sentence, self.query)[order]
        return Views(
            owner[order],
            labels[order],
            spans(texts.values, texts.offsets[rows], np.minimum(texts.lengths[rows], longest)),
        )

    def head(self, encoder: SentenceEncoder | None = None) -> torch.nn.Module:
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
