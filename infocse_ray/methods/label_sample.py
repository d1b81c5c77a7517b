"""Which labelled examples are trained on: the first N by a seeded hash, so that smaller sets are inside larger ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.corpus.tokens import owners, sample_hashes

_PURPOSE = 0x1ABE15
"""Sets these hashes apart from others of the same seed."""


class LabelSample(NamedTuple):
    """A set of labelled examples: documents, each with one of its counterparts."""

    seed: int
    last: int | None
    """The largest hash in it; None: all labelled examples."""

    def has(self, documents: np.ndarray, counterparts: np.ndarray) -> np.ndarray:
        """Which examples are in it.

        Args:
            documents: int64 [n], the documents' keys.
            counterparts: int64 [n], the counterparts' keys.

        Returns:
            Bool [n].
        """
        if self.last is None:
            return np.ones(len(documents), dtype=bool)
        return label_hashes(self.seed, documents, counterparts) <= self.last


def label_hashes(seed: int, documents: np.ndarray, counterparts: np.ndarray) -> np.ndarray:
    """int64 [n], of labelled examples by the keys of document and counterpart."""
    return sample_hashes(seed ^ _PURPOSE, documents, counterparts)


def leaking(documents: Documents, tokenizer: CorpusTokenizer) -> np.ndarray:
    """Bool [labels]: which counterparts are a sentence of their own document, whatever prompt is among its tokens."""
    assert documents.counterparts is not None
    rows, _, tokens = documents.counterparts
    own = sample_hashes(0, owners(documents.offsets), documents.sentences.hashes())
    return np.isin(sample_hashes(0, rows, tokenizer.like_sentences(tokens).hashes()), own)
