"""An index opened to be searched: its encoder, and the engine with its vectors."""

from __future__ import annotations

import contextlib
import math
import numbers
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from infocse_ray.embedding.index import Embedding, Over, read_embedding
from infocse_ray.embedding.sampled import Sampled, read_sampled
from infocse_ray.encoder.embed import for_inference
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.errors import DamagedFile
from infocse_ray.runtime.progress import say
from infocse_ray.search.engine import open_engine, open_sentences
from infocse_ray.search.passages import best_sentences
from infocse_ray.search.queries import vectors_of_queries
from infocse_ray.search.weight import Chosen, chosen_weights
from infocse_ray.settings import Encoder
from infocse_ray.settings.text import is_utf8
from infocse_ray.settings.whole_number import from_one
from infocse_ray.stages.stage import read_whole_stage
from infocse_ray.storage.checksums import SAME_COMMAND
from infocse_ray.storage.folder import Storage

MOST_SENTENCES = 5_000_000
"""Up to so many are copied into the engine, or indexed by their documents there, without being asked: 8 GB of 384
dimensions."""


class Hit(NamedTuple):
    """A document, or a sentence, that was found."""

    rank: int
    """From 1."""
    doc_id: str
    number: int | None
    """Of the sentence in its document, from 0; None for a document."""
    title: str
    text: str
    similarity: float
    """Of its vector and the query's."""
    words: float | None = None
    """BM25 of its words for the query; None where words don't count."""
    passage: str | None = None
    """The sentence of its text that fits the query best (`Index.with_passages`); None where nobody asked, or it is a
    sentence itself."""
    best_sentence: float | None = None
    """Similarity of its best sentence's vector and the query's; None where that doesn't count."""

    @property
    def key(self) -> tuple[str, int | None]:
        """What names it in every index of the same documents."""
        return self.doc_id, self.number


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
                likewise, 0 where it has none, or more than `MOST_SENTENCES`.

        Raises:
            ValueError: nothing finished is there, it has no sentences, `model` is another encoder, Lance isn't
                installed, or `words` or `best_sentence` is no such number, or `folder` no path.
            DamagedFile: a file is missing, cut off, or not as it was written.
        """
        of_words = _weight(
            words, f"words = {words!r}: give a number from 0 (vectors alone) to 1 (words alone), or auto"
        )
        of_sentence = _weight(
            best_sentence,
            f"best_sentence = {best_sentence!r}: give a number from 0 (whole documents alone) to 1 (their best "
            "sentences alone), or auto",
        )
        if over not in get_args(Over):
            raise ValueError(f"over = {over!r}: give one of {', '.join(get_args(Over))}")
        if over == "sentences" and of_sentence:
            raise ValueError(f"best_sentence = {best_sentence!r}: is of documents; leave it out, or over sentences")
        if not isinstance(folder, str | os.PathLike):
            raise ValueError(f"{setting} = {folder!r}: give the folder, or URI, that `infocse embed` wrote")
        output = Storage.of_runs(os.fspath(folder), setting)
        where = f"{setting} = {str(output)!r}"
        with _made_by_embed(where):
            try:
                embedding = read_embedding(output)
            except FileNotFoundError:
                of_what = {"manifest.json": "the folder of a run", "config.json": "an encoder"}
                there = next((f"is {what}, and no" for name, what in of_what.items() if (output / name).exists()), "no")
                raise ValueError(f"{where}: {there} vectors are there; `infocse embed` writes them") from None
            try:
                vectors = read_whole_stage(output / "vectors")
            except FileNotFoundError:
                raise ValueError(f"{where}: isn't finished; run its `infocse embed` again, which goes on") from None
            if (over == "sentences" or of_sentence) and not embedding.sentences:
                raise ValueError(f"{where}: has no sentences; embed with --sentences true, to another folder")
            encoder = embedding.encoder_folder(output).load()
            if model is not None:
                _check(
                    os.fspath(model), "model" if setting == "index" else "compare", embedding.encoder, where, encoder
                )
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            self.name, self.corpus = embedding.model, embedding.corpus
            self._dimensions = embedding.dimensions
            self._encoder = for_inference(encoder, embedding.compute, device)  # pyright: ignore[reportArgumentType]
            self.engine = open_engine(output, embedding, over, vectors.fingerprint, encoder.normalize)
            sampled = read_sampled(output / "vectors")
        self.language = sampled.language if sampled else None
        sentences = (vectors.summary or {}).get("sentences", 0)
        if of_sentence is None and over == "documents" and embedding.sentences and sentences > MOST_SENTENCES:
            would = "copy" if embedding.format == "parquet" else "index by their documents"
            say(
                f"best sentences don't count: the index has {sentences:,}, which the engine would {would}; "
                "--best_sentence 0.3, say, lets them"
            )
            of_sentence = 0.0
        auto = {}
        if over == "documents" and of_words is None:
            auto["words"] = "--words 0.5"
        if over == "documents" and of_sentence is None and embedding.sentences:
            auto["best sentences"] = "--best_sentence 0.3"
        chosen = self._chosen(output, embedding, vectors.fingerprint, sampled, auto) if auto else Chosen()
        self.best_sentence = chosen.best_sentence if of_sentence is None else of_sentence
        try:
            if self.best_sentence:
                with _made_by_embed(where):
                    self.engine.sentences = open_sentences(output, embedding, vectors.fingerprint, encoder.normalize)
        except OSError as error:  # a storage that can only be read, say
            if of_sentence is not None:
                raise ValueError(
                    f"best_sentence = {best_sentence}: {where}: its sentences can't be copied ({error}); give 0"
                ) from error
            say(f"best sentences don't count: they can't be copied ({error})")
            self.best_sentence = 0.0
        learnt = chosen.words if self.best_sentence else chosen.words_alone
        self.words = learnt if of_words is None else of_words
        try:
            if self.words:
                self.engine.index_words(self.language)
        except OSError as error:
            if of_words is not None:
                raise ValueError(f"words = {words}: {where}: its words can't be indexed ({error}); give 0") from error
            say(f"words don't count: they can't be indexed ({error})")
            self.words = 0.0
        self._one = threading.Lock()
        """Tokenizers, and memory, are for one query at a time; a page is asked by several threads."""
        self._opened = output.uri, over, None, setting, self.words, self.best_sentence

    def __reduce__(self) -> tuple[type[Index], tuple[Any, ...]]:
        """A copy, in a task of Ray's say, opens the folder there, with the weights that there are."""
        return type(self), self._opened

    def _chosen(
        self, output: Storage, embedding: Embedding, vectors: str, sampled: Sampled | None, auto: dict[str, str]
    ) -> Chosen:
        """What should count, if that can be told; `auto` is what is asked for, each with an option that gives it."""
        whose = " and ".join(auto)
        if sampled is None:
            say(
                f"{whose} don't count: an earlier version wrote this index; embed to another folder, or let them with "
                f"{' '.join(auto.values())}"
            )
            return Chosen()
        try:
            asked = ("words" in auto, "best sentences" in auto)
            return chosen_weights(output, vectors, self._encoder, embedding, sampled, *asked)
        except OSError as error:  # a full disk, say
            say(f"{whose} don't count: how much they should can't be tried ({error})")
            return Chosen()

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
        _check_query(query)
        with self._one:
            return vectors_of_queries(self._encoder, [query], self._dimensions)[0]

    def search(self, query: str, top: int = 10, exact: bool = False) -> list[Hit]:
        """The documents, or sentences, that fit a query best, by vectors and, as far as they count, words; best first.

        Where a document's best sentence counts, or words do, the 100 nearest documents, and the 100 best by words, are
        ranked anew by them; for more than 100 results more are (`Engine.search_both`).

        Args:
            query: a text; what goes beyond the encoder's max_length is cut.
            top: how many; where the index is `approximate` there may be fewer.
            exact: compare with every vector, also where the index is large, so that there are `top` if it has so many.

        Raises:
            ValueError: the query is no text, has none, or isn't UTF-8, or `top` is no whole number from 1.
        """
        count = from_one(top, f"top = {top!r}: give how many to find, from 1")
        vector = self.vector(query)
        if self.words or self.best_sentence:
            found = self.engine.search_both(vector, query, self.words, count, exact, self.best_sentence)
        else:
            found = self.engine.search(vector, count, exact)
        rows: list[dict[str, Any]] = found.to_pylist()
        return [
            Hit(
                rank,
                row["doc_id"],
                row.get("number"),
                row["title"],
                row["text"],
                row["similarity"],
                row.get("words"),
                best_sentence=row.get("best_sentence"),
            )
            for rank, row in enumerate(rows, 1)
        ]

    def with_passages(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The same hits, in the same order, each document with the sentence that fits the query best.

        Sentences are embedded anew, the first 64 of each document: for the results that are shown, not for hundreds.

        Args:
            query: that they were found by.
            hits: of `search`.

        Raises:
            ValueError: the query is none that `search` takes.
        """
        _check_query(query)
        texts = [hit.text for hit in hits if hit.number is None]
        with self._one:
            vector = vectors_of_queries(self._encoder, [query])[0]
            passages = iter(best_sentences(self._encoder, vector, texts, self.language or "en"))
        return [hit if hit.number is not None else hit._replace(passage=next(passages)) for hit in hits]


def _check_query(query: Any) -> None:
    """Refuse what is no query.

    Raises:
        ValueError: it is no text, has none, or isn't UTF-8.
    """
    if not isinstance(query, str):
        raise ValueError(f"query: is a {type(query).__qualname__}; give one text")
    if not query.strip():
        raise ValueError("query: has no text")
    if not is_utf8(query):
        raise ValueError(f"query = {query!r}: isn't UTF-8; leave out what is no character")


def _weight(given: Any, wrong: str) -> float | None:
    """A weight as a number; None: it is to be chosen.

    Raises:
        ValueError: `wrong`; it is no number from 0 to 1.
    """
    if isinstance(given, str) and given == "auto":
        return None
    weight = float(given) if isinstance(given, numbers.Real) and not isinstance(given, bool) else math.nan
    if not 0.0 <= weight <= 1.0:
        raise ValueError(wrong)
    return weight


@contextlib.contextmanager
def _made_by_embed(where: str) -> Iterator[None]:
    """What is damaged isn't made again by whoever searches."""
    try:
        yield
    except DamagedFile as error:
        what = str(error).removesuffix(SAME_COMMAND)
        raise DamagedFile(f"{where}: {what}; run its `infocse embed` again, or copy it whole") from error


def _check(model: str, setting: str, fingerprint: str, where: str, own: SentenceEncoder) -> None:
    """See that a model is the one that made an index, shaped as the index has it.

    Raises:
        ValueError: it isn't.
    """
    shape = Encoder(
        model=model,
        pooling=own.pooling,
        max_length=own.max_length,
        document_prompt=own.prompts.of("document") if own.prompts else None,
        query_prompt=own.prompts.of("query") if own.prompts else None,
    )
    folder = resolve_encoder(model, setting)
    try:
        given = load_encoder(folder, shape, cosine=own.normalize, setting=setting)
    except ValueError as error:  # of length or prompts, say, which are the index's and nobody gave here
        raise ValueError(
            f"{setting} = {model!r}: isn't the encoder that made {where}, as which it can't be loaded ({error}); leave "
            f"out {setting}"
        ) from error
    if given.fingerprint() != fingerprint:
        raise ValueError(
            f"{setting} = {model!r}: {where} was made by another encoder; embed with this one, to another folder, or "
            f"leave out {setting}"
        )
