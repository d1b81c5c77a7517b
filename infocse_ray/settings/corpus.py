"""Where the documents are, and which of their labels are used."""

from __future__ import annotations

import codecs
import os
import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from infocse_ray.settings.section import Fraction, Section


def language_code(value: str) -> str:
    """A language's ISO 639-1 code without what follows it: `pt` of pt-BR.

    Raises:
        ValueError: it is none; a splitter or stemmer would take another language's rules, and say nothing.
    """
    code = re.split("[-_]", value)[0].lower()
    if not re.fullmatch("[a-z]{2,3}", code):
        raise ValueError("give the language's ISO 639-1 code, such as en, de or zh")
    return code


class Corpus(Section):
    """corpus: where the documents are and how a row becomes a document."""

    source: str | list[str] = Field(
        description="Files, globs or folders, one or a list, local or s3://, gs://, ...: Parquet (.parquet), "
        "JSON Lines (.jsonl, .json, .ndjson), a JSON array of objects (.json), CSV or TSV with a header line (.csv, "
        ".tsv), or text (.txt); all but Parquet also compressed (.gz, .xz, .zst)."
    )
    kind: Literal["auto", "mind", "msmarco", "browsing"] = Field(
        default="auto",
        description="Format of the files. `auto`: each row, or each text file, is a document. `mind`: MIND's "
        "news.tsv and the bodies that its crawler wrote. `msmarco`: MS MARCO's documents with their queries and "
        "qrels. `browsing`: sequences of page titles, JSON Lines or TSV. All as they are released, or compressed "
        "(.gz, .xz, .zst).",
    )
    id: str | None = Field(
        default=None,
        description="Column with the document's unique id. Default: `id` if there is one, else a hash of the "
        "document's content; of a text file its path. `browsing` hashes its content and position unless a column "
        "is named.",
    )
    text: str | None = Field(
        default=None, description="Column with the document's text, to be split into sentences. Default: `text`."
    )
    sentences: str | None = Field(
        default=None,
        description="Column with the document as a list of sentences; takes precedence over `text`. Default: "
        "`sentences`; for `browsing`, the titles in `history`.",
    )
    counterpart: str | None = Field(
        default=None,
        description="Column with the counterpart: the text, or list of texts, that belongs to the document "
        "(headline, query, ...). Counterparts are used to validate, test and fine-tune, never to train without "
        "labels. Default: `counterpart` if there is one; for `browsing`, `target`.",
    )
    labels: str | list[str] | None = Field(
        default=None,
        description="Parquet, JSON or CSV files with the counterparts, given like `source`. A row has a document's "
        "id, a counterpart (or a list) and optionally its split, in the columns that `id`, `counterpart` and "
        "`split` name; several rows with one id give the document several counterparts. Counterparts in the "
        "documents' own files are then not read. Only for kind `auto`: the other kinds bring their own. Default: "
        "the documents' own files.",
    )
    split: str | None = Field(
        default=None,
        description="Column that says train, valid (or dev, validation) or test. Default: `split` if there is one, "
        "else the splits are drawn by a stable hash of the id.",
    )
    unlabelled: Literal["all", "train"] = Field(
        default="all",
        description="Documents whose sentences are used for training. `all`: every document (the splits divide the "
        "labels, as in the paper), except the validation documents when validation has no labels. `train`: only "
        "documents of the train split.",
    )
    valid_fraction: Fraction = Field(default=0.1, description="Share of documents drawn for validation.")
    test_fraction: Fraction = Field(default=0.1, description="Share of documents drawn for the test.")
    language: str = Field(
        default="en",
        description="ISO 639-1 code of the language whose rules split text into sentences, and stem words in searches; "
        "what follows it (pt-BR) doesn't count.",
    )
    encoding: str = Field(
        default="utf-8",
        description="Encoding of text and label files, as Python names it (cp1252, latin-1, gb18030, utf-16, ...). "
        "Parquet is always UTF-8. The encoding is not guessed: text in another one is an error or set aside.",
    )
    text_files: Literal["document", "line"] = Field(
        default="document", description="`document`: a text file is one document. `line`: each of its lines is one."
    )
    min_sentences: int = Field(default=2, ge=2, description="Documents with fewer sentences are set aside.")
    max_sentence_chars: int = Field(
        default=10_000, ge=1, description="A document with a longer sentence (characters) is set aside."
    )
    max_document_sentences: int = Field(
        default=10_000, ge=2, le=50_000, description="A document with more sentences is set aside."
    )
    lanes: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] = Field(
        default=64,
        description="Number of lanes: independent streams that training pairs are drawn from, each with files of "
        "its own. A run of this corpus can have at most so many training workers. Another number gives other "
        "batches. `auto`: one per MiB of the source's files, from 4 to 64, so that a small corpus has few files.",
    )

    @field_validator("language")
    @classmethod
    def _language_code(cls, value: str) -> str:
        return language_code(value)

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        try:
            codec = codecs.lookup(value)
        except LookupError:
            codec = None
        if codec is None or not codec._is_text_encoding:  # pyright: ignore[reportAttributeAccessIssue]
            raise ValueError("there is no such encoding; give one that Python knows, such as utf-8, cp1252 or gb18030")
        return "utf-8" if codec.name in ("utf-8", "utf-8-sig", "ascii") else codec.name

    @field_validator("source", "labels", mode="before")
    @classmethod
    def _paths(cls, value: object) -> object:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, list | tuple):
            return [os.fspath(one) if isinstance(one, os.PathLike) else one for one in value]
        if value is None or isinstance(value, str):
            return value
        # A table would be taken for the list of its columns' names.
        raise ValueError(
            f"is a {type(value).__name__}, and settings name files: give paths, or, in Python, give the documents "
            "themselves to infocse_ray.adapt(encoder, documents)"
        )

    @field_validator("source")
    @classmethod
    def _some_source(cls, value: str | list[str]) -> str | list[str]:
        if not value or not all(value if isinstance(value, list) else [value]):
            raise ValueError("name at least one path, glob or URI")
        return value

    @field_validator("labels")
    @classmethod
    def _some_labels(cls, value: str | list[str] | None) -> str | list[str] | None:
        return value if value is None else Corpus._some_source(value)

    @model_validator(mode="after")
    def _labels_of_this_kind(self) -> Corpus:
        if self.labels is not None and self.kind != "auto":
            raise ValueError(
                f"corpus.labels = {self.labels!r}: corpus.kind = {self.kind} brings its labels with it; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _fractions(self) -> Corpus:
        if self.valid_fraction + self.test_fraction > 1.0:
            raise ValueError(
                f"corpus.valid_fraction = {self.valid_fraction} and corpus.test_fraction = "
                f"{self.test_fraction} add up to more than 1: lower one"
            )
        return self


class Labels(Section):
    """labels: which of the labelled examples fine-tuning has."""

    train_size: Annotated[int, Field(ge=2)] | Literal["all"] = Field(
        default="all",
        description="How many of the train split's labelled examples (a document and one of its counterparts) to "
        "use, drawn by the seed; smaller draws are subsets of larger ones. `all`: every one.",
    )
