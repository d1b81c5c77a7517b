"""Settings of `infocse search`."""

from __future__ import annotations

from typing import Annotated as Bounded
from typing import Literal

from pydantic import Field, model_validator

from infocse_ray.settings.section import Section
from infocse_ray.settings.text import is_utf8


class Search(Section):
    """Search a corpus that `infocse embed` embedded."""

    query: str | None = Field(
        default=None, description="What is searched for; may be given without --query. None with --serve."
    )
    queries: str | None = Field(
        default=None,
        min_length=1,
        description="A file of queries, or its URI, in place of `query`: JSON Lines with `text`, and `_id` or `id`, or "
        "text with a query a line. Needs `output`.",
    )
    like: str | None = Field(
        default=None,
        min_length=1,
        description="Id of a document of the index, in place of `query`: what is most similar to it, by vectors alone.",
    )
    documents: str | None = Field(
        default=None,
        min_length=1,
        description="A file of documents that the index needn't have, or its URI, in place of `query`: what is most "
        "similar to each, by vectors alone. JSON Lines with `text`, a text or a list of sentences, and `_id` or `id`, "
        "or text with a document a line. Needs `output`.",
    )
    output: str | None = Field(
        default=None,
        min_length=1,
        description="Folder or URI that gets the results as `results.jsonl`, a line each, in place of the terminal.",
    )
    index: str = Field(min_length=1, description="Folder or URI that `infocse embed` wrote.")
    model: str | None = Field(
        default=None,
        description="The encoder that made the index, a folder, a URI or a hub name, to be checked against it. "
        "Default: the copy that the index has.",
    )
    compare_index: str | None = Field(
        default=None,
        description="Another index of the same documents, of the encoder before: both results are shown side by side.",
    )
    compare: str | None = Field(default=None, description="The encoder that made compare_index, as `model`.")
    top: int = Field(default=10, ge=1, le=1000, description="How many results to show.")
    over: Literal["documents", "sentences"] = Field(
        default="documents", description="What is found. `sentences` needs an index made with --sentences true."
    )
    words: Literal["auto"] | Bounded[float, Field(ge=0.0, le=1.0)] = Field(
        default="auto",
        description="What words (BM25) count beside vectors: from 0, nothing, to 1, nothing but words. `auto`: what "
        "finds documents best by sentences taken out of them, tried once for an index; 0 for sentences, with like or "
        "documents, and where two encoders are compared.",
    )
    best_sentence: Literal["auto"] | Bounded[float, Field(ge=0.0, le=1.0)] = Field(
        default="auto",
        description="What a document's best sentence counts beside its vector, in an index made with --sentences true: "
        "from 0, nothing, to 1, nothing else. `auto`: likewise; 0 where the index has no sentences, or "
        "more than 5 million, with like or documents, and where two encoders are compared.",
    )
    where: str | None = Field(
        default=None,
        description='A condition that results meet, in SQL, such as "metadata.year >= 2020 AND metadata.place = '
        "'Graz'\": over what corpus.metadata of `infocse embed` named, and the index's other columns.",
    )
    exact: bool = Field(
        default=False,
        description="Compare the query with every vector, also where the index is large enough for an approximate "
        "search.",
    )
    serve: bool = Field(default=False, description="Serve a page to search with, until Ctrl-C.")
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address that the page is served on. The default is reached from this machine only.",
    )
    port: int = Field(default=8321, ge=0, le=65535, description="Port of the page; 0: any that is free.")

    @model_validator(mode="after")
    def _something_to_do(self) -> Search:
        if self.serve and self.query is not None:
            raise ValueError(f"query = {self.query!r}: the page asks for queries; leave it out, or --serve")
        self._check_file()
        self._check_like()
        others = self.serve, self.queries is not None, self.like is not None, self.documents is not None
        if not any(others) and not (self.query or "").strip():
            raise ValueError(
                "query is required: give the text to search for, a file of queries or documents, --like, or --serve"
            )
        if not is_utf8(self.query or ""):  # what a terminal couldn't decode
            raise ValueError(f"query = {self.query!r}: isn't UTF-8; leave out what is no character")
        if self.where is not None and not self.where.strip():
            raise ValueError(f"where = {self.where!r}: give a condition, such as 'metadata.year >= 2020'")
        for name in () if self.serve else ("host", "port"):
            # Not those that are given: a printed configuration gives all.
            if (value := getattr(self, name)) != type(self).model_fields[name].default:
                raise ValueError(f"{name} = {value!r}: is of the page; add --serve, or leave it out")
        if self.over == "sentences" and self.best_sentence not in ("auto", 0.0):
            raise ValueError(f"best_sentence = {self.best_sentence}: is of documents; leave it out, or over sentences")
        if self.compare is not None and self.compare_index is None:
            raise ValueError(
                f"compare = {self.compare!r}: its vectors are needed, too: `infocse embed` them and give compare_index"
            )
        return self

    def _check_like(self) -> None:
        """Refuse what doesn't go with documents that ask."""
        if self.like is not None and self.serve:
            raise ValueError(
                f"like = {self.like!r}: the page has a link to it at each result; leave it out, or --serve"
            )
        asking = next((name for name in ("like", "documents") if getattr(self, name) is not None), None)
        if asking is None:
            return
        asks = f"{asking} = {getattr(self, asking)!r}"
        for name in ("query", "queries", "documents"):
            if name != asking and (value := getattr(self, name)) is not None:
                raise ValueError(f"{name} = {value!r}: {asks} asks, too; give one of them")
        if self.over == "sentences":
            raise ValueError(f"{asks}: is of documents; leave it out, or over sentences")
        for name in ("words", "best_sentence"):
            if getattr(self, name) not in ("auto", 0.0):
                raise ValueError(
                    f"{name} = {getattr(self, name)}: with {asking} vectors alone count; leave one of them out"
                )

    def _check_file(self) -> None:
        """Refuse what doesn't go with queries from a file, or results in one."""
        for name in ("queries", "documents", "output"):
            if (value := getattr(self, name)) is None:
                continue
            if self.serve:
                raise ValueError(f"{name} = {value!r}: the page asks for queries and shows results; leave one out")
            if self.compare_index is not None:
                raise ValueError(f"{name} = {value!r}: is of one index; search each by itself, without compare_index")
        if self.queries is not None and self.query is not None:
            raise ValueError(f"query = {self.query!r}: there is a file of queries, too; give one of them")
        for name in ("queries", "documents"):
            if (value := getattr(self, name)) is not None and self.output is None:
                raise ValueError(f"{name} = {value!r}: say with output where their results go")
