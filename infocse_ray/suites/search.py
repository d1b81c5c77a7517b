"""Search a data set's corpus with an encoder: the work of an actor on blocks of documents.

1. Passage: title and text as one, cut where the encoder's folder says (max_seq_length). Mean of sentences: as
   validation has it, each sentence cut at `max_length`, the title one of them. Both: the mean of these two.
2. Queries are encoded as one text, cut where passages are; prompts as the folder or the settings say.
3. A block leaves each query's best documents, by any of them, in a file; a file that is whole isn't made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.corpus.sentences import split_sentences
from infocse_ray.corpus.tokens import bounded_ranges, offsets_of
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.texts import TextEncoder, tokenised
from infocse_ray.retrieval.documents import cut_at, mean_vectors, read_as, whole_length
from infocse_ray.storage.checksums import checked, read_checked
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet
from infocse_ray.suites.beir_layout import BeirSet, Passage
from infocse_ray.suites.best import Best, merged
from infocse_ray.suites.measures import DEPTH, found_once

PASSAGE, SENTENCES, BOTH = "passage", "mean of sentences", "both"
READINGS = (PASSAGE, SENTENCES, BOTH)
"""How a document becomes a vector; titles and texts as they are, not as tokens of sentences."""

_DOCUMENTS_AT_ONCE = 2_048


class SearchBlocks:
    """Finds each query's best documents of a group of blocks."""

    def __init__(self, data: BeirSet, folder: Storage, language: str) -> None:
        """Say what is searched.

        Args:
            data: the data set.
            folder: gets `<reading>/<block>.parquet`, with `doc_id` and `score` of as many documents for each query,
                best first, and `<block>.json` with the counts once both are there.
            language: ISO 639-1 code, by whose rules texts are split into sentences.
        """
        self.data, self.folder, self.language = data, folder, language
        self._queries: torch.Tensor | None = None

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """Search the blocks of these numbers; how many documents each has, and how many were cut as passages."""
        return [self._search(annotator.encoder, block) for block in shards]

    def _search(self, encoder: SentenceEncoder, block: int) -> dict[str, Any]:
        counts = self.folder / f"{block:05d}.json"
        if counts.exists():
            return read_checked(counts)
        reader = TextEncoder(encoder)
        if self._queries is None:
            with cut_at(encoder, whole_length(encoder)):
                self._queries = reader.vectors(self.data.queries, "query")
        best = {name: Best(self._queries, DEPTH + 1) for name in READINGS}  # one may be the query itself
        doc_ids: list[str] = []
        cut = 0
        for passages in _batches(self.data.passages(self.data.blocks()[block])):
            doc_ids += [passage.doc_id for passage in passages]
            with cut_at(encoder, whole_length(encoder)):
                tokens = tokenised(encoder, [passage.whole for passage in passages])
                cut += int((tokens.lengths > encoder.room("document")).sum())
                whole = reader.vectors([passage.whole for passage in passages])
            means = sentence_means(reader, passages, self.language)
            read = {PASSAGE: whole, SENTENCES: means, BOTH: read_as(means, whole, encoder.normalize)}
            for name, vectors in read.items():
                best[name].add(vectors)
        for name, found in best.items():
            _write(self.folder / name / f"{block:05d}.parquet", found, doc_ids)
        done = {"documents": len(doc_ids), "cut": cut}
        counts.write_json(checked(done))
        return done


def sentence_means(reader: TextEncoder, passages: list[Passage], language: str) -> torch.Tensor:
    """float32 [n, d]: of each document the mean of the vectors of its title and its text's sentences."""
    split = [
        # Zero-width spaces alone are a text, and no sentence.
        [*([passage.title] if passage.title else []), *split_sentences(passage.text, language)] or [passage.text]
        for passage in passages
    ]
    offsets = offsets_of(np.array([len(sentences) for sentences in split], np.int64))
    parts = [torch.empty(0, reader.encoder.dimension, device=reader.encoder.device)]
    for first, last in bounded_ranges(offsets, SENTENCES_AT_ONCE):
        vectors = reader.vectors([sentence for sentences in split[first:last] for sentence in sentences])
        parts.append(mean_vectors(vectors, offsets[first : last + 1] - offsets[first], reader.encoder.normalize))
    return torch.cat(parts)


def _batches(passages: Iterator[Passage]) -> Iterator[list[Passage]]:
    batch: list[Passage] = []
    for passage in passages:
        batch.append(passage)
        if len(batch) == _DOCUMENTS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _write(file: Storage, best: Best, doc_ids: list[str]) -> None:
    rows = best.rows.cpu().numpy().ravel()
    table = pa.table(
        {
            "doc_id": pa.array(doc_ids, pa.string()).take(pa.array(rows)),
            "score": pa.array(best.scores.cpu().numpy().ravel(), pa.float32()),
        }
    )
    write_parquet(file, table, [len(table)])


def best_of_all(folder: Storage, name: str, queries: list[str]) -> dict[str, dict[str, float]]:
    """Each query's best documents of all blocks with their scores.

    Args:
        folder: that `SearchBlocks` wrote to.
        name: one of `READINGS`.
        queries: the ids.
    """
    scores, doc_ids = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), object)
    for file in sorted((folder / name).files()):
        with open_parquet(folder / name / file) as opened:
            table = opened.read()
        shape = len(queries), len(table) // len(queries)
        part = table["score"].to_numpy().reshape(shape), np.array(table["doc_id"].to_pylist(), object).reshape(shape)
        scores, doc_ids = merged([(scores, doc_ids), part], DEPTH + 1)
    rows = zip(queries, doc_ids.tolist(), scores.tolist(), strict=True)
    return {query: found_once(zip(mine, values, strict=True)) for query, mine, values in rows}
