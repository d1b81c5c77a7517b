"""An index opened to be searched: its encoder, and the engine with its vectors."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np
import pyarrow as pa
import torch

from infocse_ray.corpus.given import visible_sentences
from infocse_ray.corpus.tokens import bounded_ranges, offsets_of
from infocse_ray.embedding.documents import vectors_of_documents
from infocse_ray.embedding.index import Over, made_by_embed
from infocse_ray.embedding.queries import check_query, vectors_of_queries
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE, for_inference
from infocse_ray.errors import IndexReplaced, NoSuchDocument
from infocse_ray.runtime.progress import Bar, say
from infocse_ray.search.asked import Asked
from infocse_ray.search.engine import open_engine, open_sentences
from infocse_ray.search.hit import Hit, hits_of
from infocse_ray.search.passages import best_sentences
from infocse_ray.search.written import Written
from infocse_ray.settings.section import Reading
from infocse_ray.settings.text import brief, is_utf8
from infocse_ray.settings.whole_number import from_one

_GONE = re.compile(r"not found.*\.lance|\.lance.*not found", re.IGNORECASE | re.DOTALL)
"""In what Lance says of a data file that it can't find."""
_AT_ONCE = 4096
"""Queries that are encoded together."""
_Asked = TypeVar("_Asked")


class Index:
    """What `infocse embed` wrote, searchable in this process, and in others to which it is sent (pickled).

    Attributes:
        name: the encoder's, for people.
        approximate: whether a search isn't exact unless that is asked for: the index is large.
        words: what words count beside vectors, from 0 (nothing) to 1.
        best_sentence: what a document's best sentence counts beside its vector, from 0 (nothing) to 1.
        language: of the texts, ISO 639-1; None for an index of an earlier version.
        engine: with the vectors.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        over: Over = "documents",
        model: str | os.PathLike[str] | None = None,
        setting: str = "index",
        words: float | Literal["auto"] = "auto",
        best_sentence: float | Literal["auto"] = "auto",
    ) -> None:
        """Open it; the first time its vectors are copied into the engine and indexed if they are many, its words, too.

        Args:
            folder: or URI, the `output` of `infocse embed`.
            over: what is found; `sentences` needs an index that has them.
            model: the encoder that made it, to be checked against it; None: the copy that it has.
            setting: what error messages call `folder`.
            words: what words count, from 0 to 1; `auto`: what best finds documents by sentences taken out of them,
                tried the first time, 0 for sentences.
            best_sentence: what a document's best sentence counts, from 0 to 1, of an index that has sentences; `auto`:
                likewise, 0 where it has none, or more than five million.

        Raises:
            ValueError: nothing finished is there, it has no sentences, `model` is another encoder, Lance isn't
                installed, or `words` or `best_sentence` is no such number, or `folder` no path.
            DamagedFile: a file is missing, cut off, or not as it was written.
        """
        asked = Asked.of(over, words, best_sentence)
        written = Written.read(folder, setting, asked.needs_sentences)
        embedding, where = written.embedding, written.where
        if model is not None:
            written.check_encoder(os.fspath(model), "model" if setting == "index" else "compare")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.name, self.corpus = embedding.model, embedding.corpus
        self.language = written.sampled.language if written.sampled else None
        self._dimensions = embedding.dimensions
        self._reading: Reading = embedding.reading
        self._encoder = for_inference(written.encoder, embedding.compute, device)  # pyright: ignore[reportArgumentType]
        with made_by_embed(where):
            self.engine = open_engine(written.folder, embedding, over, written.fingerprint, written.encoder.normalize)
        asked = asked.bounded(written)
        chosen = asked.choose(written, self._encoder)
        self.best_sentence = self._with_sentences(asked.best_sentence, chosen.best_sentence, written)
        learnt = chosen.words if self.best_sentence else chosen.words_alone
        self.words = self._with_words(asked.words, learnt, where)
        self._one = threading.Lock()
        """Tokenizers, and memory, are for one query at a time; a page is asked by several threads."""
        self._over, self._where = over, where
        self._opened = written.folder.uri, over, None, setting, self.words, self.best_sentence

    def again(self) -> Index:
        """The same opened again, as it is by now; words and best sentences count what they did."""
        return type(self)(*self._opened)

    def __reduce__(self) -> tuple[type[Index], tuple[Any, ...]]:
        """A copy, in a task of Ray's say, opens the folder there, with the weights that there are."""
        return type(self), self._opened

    def _with_sentences(self, asked: float | None, chosen: float, written: Written) -> float:
        """Have best sentences ready, if they count.

        Returns:
            What they count; 0 where nobody asked for them and they can't be copied, which is said.

        Raises:
            ValueError: they are asked for, and can't be copied.
            DamagedFile: a file of theirs is damaged.
        """
        weight = chosen if asked is None else asked
        if not weight:
            return 0.0
        try:
            with made_by_embed(written.where):
                self.engine.sentences = open_sentences(
                    written.folder, written.embedding, written.fingerprint, written.encoder.normalize
                )
        except OSError as error:  # a storage that can only be read, say
            if asked is not None:
                raise ValueError(
                    f"best_sentence = {asked:g}: {written.where}: its sentences can't be copied ({error}); give 0"
                ) from error
            say(f"best sentences don't count: they can't be copied ({error})")
            return 0.0
        return weight

    def _with_words(self, asked: float | None, chosen: float, where: str) -> float:
        """Have words ready, if they count.

        Returns:
            What they count; 0 where nobody asked for them and they can't be indexed, which is said.

        Raises:
            ValueError: they are asked for, and can't be indexed.
        """
        weight = chosen if asked is None else asked
        if not weight:
            return 0.0
        try:
            self.engine.index_words(self.language)
        except OSError as error:
            if asked is not None:
                raise ValueError(f"words = {asked:g}: {where}: its words can't be indexed ({error}); give 0") from error
            say(f"words don't count: they can't be indexed ({error})")
            return 0.0
        return weight

    @property
    def approximate(self) -> bool:
        """Whether the engine has an index."""
        return self.engine.approximate

    def __len__(self) -> int:
        return self.engine.rows

    def vector(self, query: str) -> np.ndarray:
        """The query's vector, float32 [d], with the encoder's query prompt, cut as the index is.

        Raises:
            ValueError: the query is no text, has none, or isn't UTF-8.
        """
        check_query(query)
        return self._vectors([query])[0]

    def _vectors(self, queries: list[str]) -> np.ndarray:
        with self._one:
            return vectors_of_queries(self._encoder, queries, self._dimensions)

    @overload
    def search(self, query: str, top: int = 10, exact: bool = False, where: str | None = None) -> list[Hit]: ...

    @overload
    def search(
        self, query: list[str] | tuple[str, ...], top: int = 10, exact: bool = False, where: str | None = None
    ) -> list[list[Hit]]: ...

    def search(
        self, query: str | list[str] | tuple[str, ...], top: int = 10, exact: bool = False, where: str | None = None
    ) -> list[Hit] | list[list[Hit]]:
        """The documents, or sentences, that fit a query best, by vectors and, as far as they count, words; best first.

        Where a document's best sentence counts, or words do, the 100 nearest documents, and the 100 best by words, are
        ranked anew by them; for more than 100 results more are (`Engine.search_both`).

        Args:
            query: a text; what goes beyond the encoder's max_length is cut. Or a list of texts, whose vectors are made
                together, which is faster than one after the other.
            top: how many; where the index is `approximate` there may be fewer.
            exact: compare with every vector, also where the index is large, so that there are `top` if it has so many.
            where: a condition that they meet, in SQL over metadata and the index's other columns, such as
                `metadata.year >= 2020 AND metadata.place = 'Graz'`. The best of those that meet it are found, not
                those of the best that do; what words weigh is of all texts.

        Returns:
            The results; of a list of texts a list of the results of each, in its order.

        Raises:
            ValueError: a query is no text, has none, or isn't UTF-8, or `top` is no whole number from 1, or `where` no
                condition that can be asked of this index.
            IndexReplaced: it isn't there any more as it was when it was opened.
        """
        count = from_one(top, f"top = {top!r}: give how many to find, from 1")
        if where is not None:
            self.check(where)
        if isinstance(query, Iterable) and not isinstance(query, str | bytes | Mapping):  # such as a column of a table
            return self._search_many(list(query), count, exact, where)
        vector = self.vector(query)
        with self._still_there():
            return self._search_by(vector, query, count, exact, where)

    @contextlib.contextmanager
    def _still_there(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError, RuntimeError) as error:
            if not _GONE.search(str(error)):
                raise
            raise IndexReplaced(
                f"{self._where}: files of it are gone; it was replaced, or removed, since it was opened: open it again"
            ) from error

    def check(self, where: str) -> None:
        """See that a condition of `search` can be asked of this index.

        Raises:
            ValueError: it can't.
        """
        if not isinstance(where, str) or not where.strip():
            raise ValueError(f"where = {where!r}: give a condition, such as 'metadata.year >= 2020'")
        self.engine.check(where)

    def _search_many(self, queries: list[str], top: int, exact: bool, where: str | None) -> list[list[Hit]]:
        for number, query in enumerate(queries):
            check_query(query, f"query[{number}]")
        found = functools.partial(self._search_by, count=top, exact=exact, where=where)
        ranges = ((first, first + _AT_ONCE) for first in range(0, len(queries), _AT_ONCE))
        return self._many(queries, ranges, self._vectors, found, "queries")

    def _many(
        self,
        asked: list[_Asked],
        ranges: Iterable[tuple[int, int]],
        read: Callable[[list[_Asked]], np.ndarray],
        found: Callable[[np.ndarray, _Asked], list[Hit]],
        unit: str,
    ) -> list[list[Hit]]:
        """Results of each; the vectors of each range are made together."""
        if not asked:
            return []
        bar = Bar("searching", len(asked), unit)
        results = []
        for first, last in ranges:
            some = asked[first:last]
            for vector, one in zip(read(some), some, strict=True):
                with self._still_there():
                    results.append(found(vector, one))
                bar.add(1)
        bar.close()
        return results

    def _search_by(self, vector: np.ndarray, query: str, count: int, exact: bool, where: str | None) -> list[Hit]:
        """Results of one query, whose vector is known."""
        if self.words or self.best_sentence:
            found = self.engine.search_both(vector, query, self.words, count, exact, self.best_sentence, where)
        else:
            found = self.engine.search(vector, count, exact, where=where)
        return hits_of(found)

    def like(self, doc_id: str, top: int = 10, exact: bool = False, where: str | None = None) -> list[Hit]:
        """The documents most similar to one that the index has, by their vectors alone, without itself; best first.

        Args:
            doc_id: its id.
            top: how many; where the index is `approximate` there may be fewer.
            exact: as for `search`.
            where: likewise.

        Raises:
            NoSuchDocument: the index has none of that id.
            ValueError: the id is no text, sentences are searched, `top` is no whole number from 1, or `where` no
                condition that can be asked of this index.
        """
        count = from_one(top, f"top = {top!r}: give how many to find, from 1")
        if where is not None:
            self.check(where)
        _, vector = self._document(doc_id)
        count = min(count, len(self))
        with self._still_there():
            found = self.engine.search(vector, count + 1, exact, where=where)
        others = pa.array([other != doc_id for other in found["doc_id"].to_pylist()], pa.bool_())
        return hits_of(found.filter(others).slice(0, count))

    def like_documents(
        self, documents: Sequence[str | Sequence[str]], top: int = 10, exact: bool = False, where: str | None = None
    ) -> list[list[Hit]]:
        """What is most similar to each of several documents that the index needn't have, by vectors alone; best first.

        They are read as the index's were: new articles, or what somebody has looked at so far, each time a sentence.
        Texts are split as English where the index, of an earlier version, doesn't know its language.

        Args:
            documents: texts, or lists of sentences.
            top: how many of each; where the index is `approximate` there may be fewer.
            exact: as for `search`.
            where: likewise.

        Returns:
            The results of each, in their order. A document that the index has is among its own.

        Raises:
            ValueError: a document is no text and no list of texts, isn't UTF-8, or has nothing visible, sentences are
                searched, `top` is no whole number from 1, or `where` no condition that can be asked of this index.
            IndexReplaced: it isn't there any more as it was when it was opened.
        """
        count = from_one(top, f"top = {top!r}: give how many to find, from 1")
        if self._over == "sentences":
            raise ValueError("documents: are compared with documents; open the index over documents")
        if where is not None:
            self.check(where)
        texts = visible_sentences(documents, self.language or "en")

        def read(some: list[list[str]]) -> np.ndarray:
            with self._one:
                return vectors_of_documents(self._encoder, some, self._reading, self._dimensions)[0]

        def found(vector: np.ndarray, _: list[str]) -> list[Hit]:
            return hits_of(self.engine.search(vector, count, exact, where=where))

        ranges = bounded_ranges(offsets_of(np.array([len(one) for one in texts], dtype=np.int64)), SENTENCES_AT_ONCE)
        return self._many(texts, ranges, read, found, "documents")

    def title_of(self, doc_id: str) -> str:
        """The title of a document.

        Raises:
            NoSuchDocument: the index has none of that id.
            ValueError: the id is no text, or sentences are searched.
        """
        return self._document(doc_id)[0]

    def _document(self, doc_id: str) -> tuple[str, np.ndarray]:
        if self._over == "sentences":
            raise ValueError(f"like = {doc_id!r}: is of documents; open the index over documents")
        if not isinstance(doc_id, str):
            raise ValueError(f"like = {brief(doc_id)}: give one document's id, a text, such as hit.doc_id")
        with self._still_there():  # what isn't UTF-8 is nobody's id
            found = self.engine.document(doc_id) if is_utf8(doc_id) else None
        if found is None:
            raise NoSuchDocument(f"like = {doc_id!r}: {self._where} has no such document; give an id that it has")
        return found

    def with_passages(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same hits, in the same order, each document with the sentence that fits the query best.

        Sentences are embedded anew, the first 64 of each document: for the results that are shown, not for hundreds.

        Args:
            query: that they were found by.
            hits: of `search`.

        Raises:
            ValueError: the query is none that `search` takes.
        """
        check_query(query)
        texts = [hit.text for hit in hits if hit.number is None]
        with self._one:
            vector = vectors_of_queries(self._encoder, [query])[0]
            passages = iter(best_sentences(self._encoder, vector, texts, self.language or "en"))
        return [hit if hit.number is not None else hit._replace(passage=next(passages)) for hit in hits]
