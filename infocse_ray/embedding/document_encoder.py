"""Vectors of documents and queries that a program has, in this process, without Ray or files."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch

from infocse_ray.corpus.given import checked_language, visible_sentences
from infocse_ray.corpus.tokens import bounded_ranges, offsets_of
from infocse_ray.embedding.documents import vectors_of_documents
from infocse_ray.embedding.encoder import load
from infocse_ray.embedding.queries import check_query, vectors_of_queries
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE, for_inference
from infocse_ray.loop.its_run import how_read
from infocse_ray.runtime.progress import Bar
from infocse_ray.settings.embed import Embed
from infocse_ray.settings.section import PoolingName, Reading
from infocse_ray.settings.validated import validated


class DocumentEncoder:
    """An encoder that gives documents and queries the vectors that a run validated it with.

    They are those of `infocse embed` and of searches in what it wrote. `SentenceTransformer.encode` reads a document
    whole alone.

    Attributes:
        dimension: d, the length of a vector.
        reading: of documents: "sentences" (the mean of their sentences' vectors), "whole" (one text) or "both".
        similarity: what vectors are compared by: "dot", or "cosine", where they have length 1.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        reading: Reading | None = None,
        max_length: int | None = None,
        similarity: Literal["dot", "cosine"] | None = None,
        language: str | None = None,
        pooling: PoolingName = "auto",
        document_prompt: str | None = None,
        query_prompt: str | None = None,
        compute: Literal["auto", "fp32", "bf16"] = "auto",
    ) -> None:
        """Load it, onto the GPU if there is one.

        Args:
            model: a folder, a URI or a hub name.
            reading: of documents. None, as for the next three: as the run, or the `infocse embed`, that the encoder
                came from had it, which its folder says, and where it came from neither the default of `infocse embed`.
            max_length: tokens that a sentence, or a query, is cut to.
            similarity: what vectors are compared by; "cosine" gives them length 1.
            language: ISO 639-1, of the rules that texts are split into sentences by.
            pooling: "auto": as the folder says.
            document_prompt: put before documents and their sentences. None: what the folder says.
            query_prompt: put before queries, likewise.
            compute: the precision of weights; "auto": bf16 where the device has it, else fp32.

        Raises:
            ValueError: it is no encoder, or a setting doesn't fit.
        """
        name = os.fspath(model) if isinstance(model, os.PathLike) else model
        asked = {"reading": reading, "max_length": max_length, "similarity": similarity, "language": language}
        read = how_read(name) if isinstance(name, str) and None in asked.values() else None
        its: dict[str, Any] = {"language": "en"} if read is None else read.model_dump()
        asked = its | {setting: value for setting, value in asked.items() if value is not None}
        self._language = checked_language(asked.pop("language"))
        asked |= {"pooling": pooling, "document_prompt": document_prompt, "query_prompt": query_prompt}
        asked |= {"model": name, "compute": compute}
        settings = validated(Embed, {"output": "nowhere", "corpus": {"source": "memory"}, **asked})
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._encoder = for_inference(load(settings), settings.compute, device)
        self.dimension = self._encoder.dimension
        self.reading: Reading = settings.reading
        self.similarity: Literal["dot", "cosine"] = "cosine" if self._encoder.normalize else "dot"
        self._again = functools.partial(DocumentEncoder, language=self._language, **asked)
        self._one = threading.Lock()
        """Tokenizers, and the length that texts are cut to, are for one call at a time."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A copy, in a task of Ray's say, loads the folder there."""
        return self._again, ()

    def encode_document(self, documents: str | Sequence[str | Sequence[str]]) -> np.ndarray:
        """Vectors of n documents, float32 [n, d]; of one text, float32 [d].

        Args:
            documents: texts, or lists of sentences; or one text.

        Raises:
            ValueError: they are something else, aren't UTF-8, or there is nothing visible in one of them.
            OutOfMemory: a single one doesn't fit onto the GPU.
        """
        if isinstance(documents, str):
            return self.encode_document([documents])[0]
        texts = visible_sentences(documents, self._language)
        offsets = offsets_of(np.asarray([len(sentences) for sentences in texts], dtype=np.int64))
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        bar = Bar("embedding", len(texts), "documents")
        for first, last in bounded_ranges(offsets, SENTENCES_AT_ONCE):
            with self._one:
                vectors[first:last] = vectors_of_documents(self._encoder, texts[first:last], self.reading)[0]
            bar.to(last)
        bar.close()
        return vectors

    def encode_query(self, queries: str | Sequence[str]) -> np.ndarray:
        """Vectors of n queries, with the query prompt, float32 [n, d]; of one text, float32 [d].

        Raises:
            ValueError: one is no text, has none, or isn't UTF-8.
        """
        if isinstance(queries, str):
            check_query(queries)
            return self.encode_query([queries])[0]
        if not isinstance(queries, Iterable):
            raise ValueError(f"queries: is a {type(queries).__qualname__}; give a text, or a list of texts")
        texts = list(queries)
        for number, query in enumerate(texts):
            check_query(query, f"queries[{number}]")
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for first in range(0, len(texts), SENTENCES_AT_ONCE):
            some = texts[first : first + SENTENCES_AT_ONCE]
            with self._one:
                vectors[first : first + len(some)] = vectors_of_queries(self._encoder, some)
        return vectors
