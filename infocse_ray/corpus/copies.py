"""Copies: sentences of a document with one text, as an encoder reads it.

Equal is what has the same first token ids, as many as the encoder takes: to it these are one sentence, with one vector.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import Tokens

_MIX = np.uint64(0x9E3779B97F4A7C15)


class Distinct(NamedTuple):
    """The texts of documents, each once in its document: where it occurs first."""

    rows: np.ndarray
    """int64 [m], sentences, ascending."""
    offsets: np.ndarray
    """int64 [documents + 1]; rows[offsets[i]:offsets[i + 1]] are those of document i."""
    node: np.ndarray
    """int64 [sentences], the place in `rows` of the sentence with its text."""

    @property
    def first(self) -> np.ndarray:
        """Bool [sentences]: which are no copy of an earlier one."""
        mask = np.zeros(len(self.node), dtype=bool)
        mask[self.rows] = True
        return mask


def distinct(sentences: Tokens, offsets: np.ndarray, longest: int) -> Distinct:
    """Find the copies.

    Args:
        sentences: of all documents.
        offsets: int64 [documents + 1]; document i owns the sentences offsets[i]:offsets[i + 1].
        longest: tokens a sentence is cut to before it is compared, special tokens not counted.
    """
    original = np.arange(len(sentences))
    document = np.repeat(np.arange(len(offsets) - 1, dtype=np.uint64), np.diff(offsets))
    # Length and two tokens tell most texts of a document apart, so whole texts are read only for the few that agree.
    alike = _repeated(_mixed(document, *_glance(sentences, longest)))
    key = _mixed(document[alike], sentences.take(alike).cut(longest).hashes().view(np.uint64))
    same = _repeated(key)
    if len(same):
        _, seen, inverse = np.unique(key[same], return_index=True, return_inverse=True)
        original[alike[same]] = alike[same][seen][inverse]
    rows = np.flatnonzero(original == np.arange(len(original)))
    return Distinct(rows, np.searchsorted(rows, offsets), np.searchsorted(rows, original))


def without_copies(documents: Documents, longest: int) -> tuple[Documents, Distinct]:
    """Documents with each text once, and which sentences these are; arguments are those of `distinct`."""
    unique = distinct(documents.sentences, documents.offsets, longest)
    if len(unique.rows) == len(documents.sentences):
        return documents, unique
    clusters = None if documents.clusters is None else documents.clusters[unique.rows]
    sentences = documents.sentences.take(unique.rows)
    return documents._replace(offsets=unique.offsets, sentences=sentences, clusters=clusters), unique


def _glance(sentences: Tokens, longest: int) -> list[np.ndarray]:
    """Length, middle and last token id of each sentence, uint64 [n] each."""
    lengths = np.minimum(sentences.lengths, longest)
    values = sentences.values if len(sentences.values) else np.zeros(1, np.uint8)
    places = (sentences.offsets[:-1] + np.maximum(part, 0) for part in (lengths // 2, lengths - 1))
    tokens = (values[np.minimum(place, len(values) - 1)] for place in places)
    return [column.astype(np.uint64) for column in (lengths, *(np.where(lengths, t, 0) for t in tokens))]


def _mixed(*columns: np.ndarray) -> np.ndarray:
    """uint64 [n], equal where all columns, uint64 [n], are; else different but for a chance of about 2^-64 a pair."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX + column
    return mixed


def _repeated(key: np.ndarray) -> np.ndarray:
    """int64: the places of what is there more than once, ascending."""
    ordered = np.sort(key)
    several = ordered[1:][ordered[1:] == ordered[:-1]]
    return np.flatnonzero(np.isin(key, several)) if len(several) else np.zeros(0, np.int64)
