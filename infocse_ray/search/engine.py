"""The vector engine: Lance, in this process, on the dataset that is there or on a copy made of the Parquet files.

Lance keeps vectors, ids and texts in columns on disk (or in an object store) and reads what a query needs. Up to
`EXACT_ROWS` vectors a query is compared with all of them; beyond that an index is built once: inverted lists of 8-bit
scalar-quantised vectors (IVF_SQ), whose best candidates are compared again by the vectors as they are stored.

Where words count, too, candidates are the best by vectors and the best by words; each is then scored exactly by both,
and by its best sentence, where that counts.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from infocse_ray.embedding.index import METADATA_COLUMN, Embedding, Over
from infocse_ray.embedding.numbers import vectors_of
from infocse_ray.runtime.progress import say
from infocse_ray.search.copied import dataset_of
from infocse_ray.search.fusion import fused, similarity_with
from infocse_ray.search.metadata import conditions_on
from infocse_ray.search.sentences import SentenceVectors, similarities
from infocse_ray.search.words import among, best_by_words, index_words, scores_by_words
from infocse_ray.storage.folder import Storage

EXACT_ROWS = 100_000
"""Vectors that a query is compared with one by one; more are indexed."""
_LIST_ROWS, _MOST_LISTS = 1024, 4096
"""Vectors in an inverted list, about; more where there would be more lists than that, which take a time to find that
grows with the square of their number. A query looks into the same share of the vectors either way."""
_PROBED = 0.1
"""Share of the lists that a query looks into."""
_FEWEST_PROBED = 16
_REFINE = 5
"""How many times the results asked for are compared exactly."""
_CANDIDATES = 100
"""Of vectors and of words, each, where both count; more where more results are asked for."""
_CONDITIONS = 128
"""Of which an engine remembers how many rows meet them."""
_PLACE_IN_LANCE = re.compile(r"(^|,?\s)/\S+\.rs:\d+:\d+")


class Engine:
    """The vectors of an index, searchable.

    Attributes:
        rows: how many.
        sentences: of the documents; None where their best sentence doesn't count.
    """

    def __init__(self, dataset: Any, cosine: bool) -> None:
        """Take a Lance dataset; it is indexed if it is large.

        Args:
            dataset: with a column `vector`.
            cosine: whether similarity is the cosine; else the inner product.
        """
        self._dataset = dataset
        self._metric = "cosine" if cosine else "dot"
        self.rows: int = dataset.count_rows()
        self.sentences: SentenceVectors | None = None
        self._probes: int | None = None
        self._rows_where = functools.lru_cache(_CONDITIONS)(lambda where: dataset.count_rows(filter=where))
        if self.rows > EXACT_ROWS:
            self.build()

    @property
    def approximate(self) -> bool:
        """Whether there is an index, so that a search that needn't be exact is not."""
        return self._probes is not None

    def build(self) -> None:
        """Build the index, unless the dataset has one; without one that can't be built every search is exact."""
        lists = lists_for(self.rows)
        there = self._indexes()
        if there and self.rows // _LIST_ROWS > _MOST_LISTS:
            lists = self._lists_of(there[0], lists)  # an earlier version, which knew no most, may have built it
        elif not there:
            say(f"indexing {self.rows:,} vectors, once ...")
            try:
                self._dataset.create_index("vector", "IVF_SQ", metric=self._metric, num_partitions=lists)
            except OSError as error:  # a storage that can only be read, say
                self._dataset.checkout_latest()  # another process may have indexed them meanwhile
                if not self._indexes():
                    say(f"every query is compared with all vectors: they can't be indexed ({error})")
                    return
        self._probes = max(_FEWEST_PROBED, round(lists * _PROBED))

    def _indexes(self) -> list[str]:
        """Names of the dataset's indexes of vectors."""
        return [index.name for index in self._dataset.describe_indices() if "vector" in index.field_names]

    def _lists_of(self, name: str, otherwise: int) -> int:
        """How many inverted lists an index has."""
        os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")  # which are many
        parts = self._dataset.stats.index_stats(name)["indices"]
        return max((part.get("num_partitions", otherwise) for part in parts), default=otherwise)

    def index_words(self, language: str | None, quiet: bool = False) -> None:
        """Let words count; the arguments are those of `words.index_words`."""
        index_words(self._dataset, language, quiet)

    def check(self, where: str) -> None:
        """See that a condition can be asked of the rows, before anything else is done.

        Raises:
            ValueError: it can't.
        """
        with self._told_of(where):
            self._dataset.scanner(columns=["doc_id"], filter=bracketed(where)).explain_plan()

    @contextlib.contextmanager
    def _told_of(self, where: str | None) -> Iterator[None]:
        """Make an error of Lance's one that names the condition, if there is any.

        Raises:
            ValueError: it can't be asked of the rows, or of some of them.
        """
        try:
            yield
        except (ValueError, OSError, RuntimeError) as error:
            if where is None:
                raise
            reason = _PLACE_IN_LANCE.sub("", " ".join(str(error).split()))
            reason = reason.removeprefix("Invalid user input: ").strip(" ,")
            raise ValueError(f"where = {where!r}: {reason}; the columns are {self._conditions()}") from error

    def _few(self, where: str) -> bool:
        """Whether so few rows meet a condition that a query is compared with all of them."""
        return self._rows_where(bracketed(where)) <= EXACT_ROWS

    def _conditions(self) -> str:
        """What a condition can be about, for people."""
        schema = self._dataset.schema
        its = schema.field(METADATA_COLUMN).type if METADATA_COLUMN in schema.names else ()
        return ", ".join([*conditions_on(its), *(name for name in self._columns() if name != METADATA_COLUMN)])

    def search(
        self, vector: np.ndarray, top: int, exact: bool = False, row_ids: bool = False, where: str | None = None
    ) -> pa.Table:
        """The rows most similar to a query, best first.

        Args:
            vector: float32 [d].
            top: how many.
            exact: compare with every vector even if there is an index.
            row_ids: give `_rowid`, Lance's number of a row, too.
            where: a condition that they meet, in SQL (see `check`).

        Returns:
            The dataset's columns but the vectors, and `similarity`, float32.
        """
        with self._told_of(where):
            return self._search(vector, top, exact, row_ids, where)

    def _search(self, vector: np.ndarray, top: int, exact: bool, row_ids: bool, where: str | None) -> pa.Table:
        approximate = self._probes is not None and not exact and not (where is not None and self._few(where))
        nearest: dict[str, Any] = {"column": "vector", "q": vector, "k": top, "metric": self._metric}
        nearest |= {"use_index": approximate}
        if approximate:
            nearest |= {"minimum_nprobes": self._probes, "refine_factor": _REFINE}
            # Where a condition leaves few rows more lists are looked into, until there are as many as are asked for.
            nearest |= {"maximum_nprobes": self._probes} if where is None else {}
        found = self._dataset.to_table(
            columns=[*self._columns(), "_distance"],
            nearest=nearest,
            with_row_id=row_ids,
            filter=None if where is None else bracketed(where),
            prefilter=where is not None,
            disable_scoring_autoprojection=True,
        )
        similarity = 1 - found["_distance"].to_numpy()
        return found.drop_columns(["_distance"]).append_column("similarity", pa.array(similarity, pa.float32()))

    def document(self, doc_id: str) -> tuple[str, np.ndarray] | None:
        """A document's title and vector, float32 [d]; None where there is no such document."""
        quoted = doc_id.replace("'", "''")
        there = self._dataset.to_table(columns=["title", "vector"], filter=f"doc_id = '{quoted}'", limit=1)
        return (there["title"][0].as_py(), vectors_of(there)[0]) if len(there) else None

    def search_both(
        self,
        vector: np.ndarray,
        query: str,
        weight: float,
        top: int,
        exact: bool = False,
        best_sentence: float = 0.0,
        where: str | None = None,
    ) -> pa.Table:
        """The best rows by vectors and words together, best first.

        The first 100 are of the 100 best of either kind, the next 100 of the 200 best, the next 200 of the 400 best,
        and so on: more results begin with the fewer ones, and with words alone all that share one come first.

        Args:
            vector: float32 [d], of the query.
            query: its text.
            weight: of words, from 0 to 1 (see `fused`); 0: they needn't be indexed.
            top: how many.
            exact: as for `search`.
            best_sentence: what a document's best sentence counts beside its vector, from 0 to 1; needs `sentences`.
            where: as for `search`.

        Returns:
            As `search`, with `words`, float32: BM25, and `best_sentence`, as far as they count.
        """
        best: list[pa.Table] = []
        there, each = np.zeros(0, np.uint64), _CANDIDATES
        while True:
            found = self.candidates(vector, query if weight else None, each, exact, bool(best_sentence), where)
            near = similarity_with(found, best_sentence)
            score = fused(near, found["words"].to_numpy(), weight) if weight else near
            ranked = found.take(pa.array(np.argsort(-score, kind="stable")))
            new = np.isin(ranked["_rowid"].to_numpy(), there, invert=True)
            best.append(ranked.filter(pa.array(new)).slice(0, each - len(there)))
            there = np.concatenate([there, best[-1]["_rowid"].to_numpy()])
            if each >= min(top, self.rows) or (where is not None and len(found) < each):
                return pa.concat_tables(best).slice(0, top).drop_columns(["_rowid"])
            each *= 2

    def candidates(
        self,
        vector: np.ndarray,
        query: str | None,
        each: int = _CANDIDATES,
        exact: bool = False,
        best_sentence: bool = False,
        where: str | None = None,
    ) -> pa.Table:
        """The rows best by vectors, and those best by words, each scored by both, most similar first.

        Args:
            vector: float32 [d], of the query.
            query: its text, whose words must be indexed; None: words don't count.
            each: how many of either.
            exact: as for `search`.
            best_sentence: whether to look at their sentences, too; needs `sentences`.
            where: as for `search`.

        Returns:
            The dataset's columns but the vectors, `similarity`, and `words` and `best_sentence` where they are asked
            for, float32 each, and `_rowid`.
        """
        near = self.search(vector, each, exact, row_ids=True, where=where)
        if query is not None:
            by_words = best_by_words(self._dataset, query, each, None if where is None else bracketed(where))
            far = np.setdiff1d(by_words, near["_rowid"].to_numpy())
            if len(far):
                near = pa.concat_tables([near, self._scored(vector, far)])
            near = self._with_words(near, query)
        if best_sentence:
            assert self.sentences is not None
            best = self.sentences.best(vector, near["key"].to_numpy())
            near = near.append_column("best_sentence", pa.array(best, pa.float32(), from_pandas=False))
        return near.sort_by([("similarity", "descending")])

    def _with_words(self, rows: pa.Table, query: str) -> pa.Table:
        words = scores_by_words(self._dataset, query, rows["_rowid"].to_numpy())
        return rows.append_column("words", pa.array(words, pa.float32()))

    def _scored(self, vector: np.ndarray, rows: np.ndarray) -> pa.Table:
        """Rows by their numbers, compared with a query exactly; as `search` has them, in any order."""
        there = self._dataset.to_table(columns=[*self._columns(), "vector"], filter=among(rows), with_row_id=True)
        similarity = similarities(vectors_of(there), vector, self._metric == "cosine")
        return there.drop_columns(["vector"]).append_column("similarity", pa.array(similarity, pa.float32()))

    def _columns(self) -> list[str]:
        return [name for name in self._dataset.schema.names if name not in ("vector", "scale")]


def bracketed(where: str) -> str:
    """A condition in brackets: Lance passes over whatever comes behind a condition that is whole."""
    return f"({where}\n)"  # a comment ends with its line


def lists_for(rows: int) -> int:
    """How many inverted lists so many vectors are put into."""
    return min(_MOST_LISTS, max(1, rows // _LIST_ROWS))


def open_engine(output: Storage, embedding: Embedding, over: Over, vectors: str, cosine: bool) -> Engine:
    """The engine of an index that `infocse embed` finished.

    Args:
        output: of it.
        embedding: what it has.
        over: documents, or their sentences.
        vectors: fingerprint of the stage that made the vectors.
        cosine: whether similarity is the cosine.

    Raises:
        ValueError, DamagedFile: as `dataset_of` says.
    """
    return Engine(dataset_of(output, embedding, over, vectors), cosine)


def open_sentences(output: Storage, embedding: Embedding, vectors: str, cosine: bool) -> SentenceVectors:
    """The sentences of an index that has them, by their documents; the arguments are those of `open_engine`."""
    return SentenceVectors(dataset_of(output, embedding, "sentences", vectors), cosine)
