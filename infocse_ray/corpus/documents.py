"""Turn rows into tokenised documents, or set them aside with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from infocse_ray.corpus.labels import LabelTable
from infocse_ray.corpus.read import SourceRow
from infocse_ray.corpus.schema import SPLITS, draw_split, shard_of, stable_hash, store_schema
from infocse_ray.corpus.sentences import given_sentences, split_sentences, visible
from infocse_ray.corpus.tokenizer import ReadyTokenizer
from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.settings import Corpus
from infocse_ray.settings.text import is_utf8

_SPLIT_NAMES = {name: name for name in SPLITS} | {"training": "train", "dev": "valid", "validation": "valid"}


class Rejected(Exception):
    """A row that makes no document; the message is the reason, short and the same for all rows like it."""


def document_of(values: dict[str, Any], corpus: Corpus) -> dict[str, Any]:
    """Check one row and split it into sentences.

    Returns:
        `doc_id`, `split`, `sentences` and `counterparts` (lists of str).

    Raises:
        Rejected: the row is null, empty, too short, beyond a cap, or of an unknown split.
    """
    sentences = _sentences_of(values, corpus)
    _check_sizes(sentences, corpus)
    _encodable("\n".join(sentences))
    doc_id = _id_of(values, sentences)
    split = values.get("split")
    if no_split(split):
        split = draw_split(doc_id, corpus.valid_fraction, corpus.test_fraction)
    else:
        split = split_of(split)
    counterparts = counterpart_texts(values.get("counterpart"))
    return {"doc_id": doc_id, "split": split, "sentences": sentences, "counterparts": counterparts}


def _sentences_of(values: dict[str, Any], corpus: Corpus) -> list[str]:
    """A row's sentences, as they are given or split from its text.

    Raises:
        Rejected: what should have them is null or of another type, or the text can't be written as UTF-8.
    """
    if "sentences" in values:
        sentences = values["sentences"]
        if sentences is None:
            raise Rejected("null")
        if not isinstance(sentences, list) or not all(s is None or isinstance(s, str) for s in sentences):
            raise Rejected("sentences are not a list of strings")
        return given_sentences(sentences)
    text = values.get("text")
    if text is None:
        raise Rejected("null")
    if not isinstance(text, str):
        raise Rejected("text is not a string")
    _encodable(text)
    return split_sentences(text, corpus.language)


def _check_sizes(sentences: list[str], corpus: Corpus) -> None:
    """Hold sentences to the corpus' caps.

    Raises:
        Rejected: there are none, too few or too many, or one is too long.
    """
    if not sentences:
        raise Rejected("empty")
    if len(sentences) > corpus.max_document_sentences:
        raise Rejected(f"more than {corpus.max_document_sentences} sentences")
    # Before it is said that sentences are missing: text that can't be split is one sentence, and a long one.
    if max(map(len, sentences)) > corpus.max_sentence_chars:
        raise Rejected(f"a sentence of more than {corpus.max_sentence_chars} characters")
    if len(sentences) < corpus.min_sentences:
        raise Rejected(f"fewer than {corpus.min_sentences} sentences")


def _id_of(values: dict[str, Any], sentences: list[str]) -> str:
    """A row's id; where no column has one, that of its sentences.

    Raises:
        Rejected: it has none, or it can't be written as UTF-8.
    """
    if "id" not in values:
        return f"{stable_hash(chr(10).join(sentences)):016x}"
    if (doc_id := given_id(values)) is None:
        raise Rejected("no id")
    _encodable(doc_id)
    return doc_id


def given_id(values: dict[str, Any]) -> str | None:
    """What a row's column says its id is; None: nothing."""
    given = values.get("id")  # NaN, which alone differs from itself, stands for none in JSON and Parquet, too
    if given is None or given != given or isinstance(given, (list, dict)):
        return None
    return id_text(given) or None


def id_text(value: Any) -> str:
    """An id as text. A whole float is an integer: pandas makes all of a column floats where one id is missing."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def no_split(value: Any) -> bool:
    """Whether a row says nothing of its split; NaN, which alone differs from itself, stands for that, too."""
    return value is None or value != value


def split_of(value: Any) -> str:
    """The split that a row names.

    Raises:
        Rejected: there is no such split.
    """
    if (split := _SPLIT_NAMES.get(str(value).strip().lower())) is None:
        raise Rejected("split is none of train, valid, test")
    return split


def counterpart_texts(value: Any) -> list[str]:
    """The distinct texts of a text or a list of texts, in that order; what is no text is no counterpart.

    Raises:
        Rejected: one can't be written as UTF-8.
    """
    texts = [t for t in (value if isinstance(value, list) else [value]) if isinstance(t, str) and visible(t)]
    for text in texts:
        _encodable(text)
    return list(dict.fromkeys(" ".join(text.split()) for text in texts))


def _encodable(text: str) -> None:
    # A lone surrogate gets through JSON's \\u escapes.
    if not is_utf8(text):
        raise Rejected("not UTF-8")


def tokenised_schema(token: pa.DataType) -> pa.Schema:
    """Rows on their way to the store: the store's columns, where they go, where they came from, why not.

    `row` orders the rows of a file; `line` is what people call it, counted from the beginning of its piece. `label`
    says that the row is a line of a label file; it is set aside if no document of its id is there.
    """
    return pa.schema(
        [pa.field("shard", pa.int32()), pa.field("order", pa.int64()), pa.field("file", pa.string())]
        + [
            pa.field("row", pa.int64()),
            pa.field("line", pa.int64()),
            pa.field("reason", pa.string()),
            pa.field("label", pa.bool_()),
        ]
        + [field.with_nullable(True) for field in store_schema(token)]
    )


def tokenise_rows(
    rows: Iterable[SourceRow],
    file: str,
    order: int,
    corpus: Corpus,
    tokenizer: ReadyTokenizer,
    token: pa.DataType,
    shards: int,
) -> pa.Table:
    """Documents of `rows` as a table of `tokenised_schema`; a row set aside has its reason and no sentences."""
    schema = tokenised_schema(token)
    out: dict[str, list[Any]] = {name: [] for name in schema.names if name not in ("sentences", "counterparts")}
    bodies: list[list[str] | None] = []
    counterparts: list[list[str] | None] = []
    for row in rows:
        document: dict[str, Any] = {}
        reason = row.reason
        if row.values is not None:
            try:
                document = document_of(row.values, corpus)
            except Rejected as rejected:
                reason = str(rejected)
                if (given := given_id(row.values)) is not None:
                    document = {"doc_id": given.encode("utf-8", "replace").decode()}
        doc_id = document.get("doc_id")
        key = stable_hash(doc_id if doc_id is not None else f"{file}\n{row.number}")
        texts = document.get("counterparts")
        for name, value in (
            ("shard", shard_of(key, shards)),
            ("order", order),
            ("file", file),
            ("row", row.number),
            ("line", row.shown),
            ("reason", reason),
            ("label", False),
            ("doc_id", doc_id),
            ("key", key),
            ("split", document.get("split")),
            ("counterpart_keys", None if texts is None else [stable_hash(text) for text in texts]),
        ):
            out[name].append(value)
        bodies.append(document.get("sentences"))
        counterparts.append(texts)
    columns = {name: pa.array(values, schema.field(name).type) for name, values in out.items()}
    columns["sentences"] = _tokenise_nested(bodies, tokenizer.sentences, token)
    columns["counterparts"] = _tokenise_nested(counterparts, tokenizer.counterparts, token)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def label_rows(labels: LabelTable, token: pa.DataType, shards: int) -> Iterator[pa.Table]:
    """The lines of label files as tables of `tokenised_schema`, on their way to where their documents go."""
    schema = tokenised_schema(token)
    for lines in labels.lines.to_batches(max_chunksize=2**16):
        columns = {name: lines[name].cast(schema.field(name).type) for name in lines.schema.names}
        places = zip(lines["doc_id"].to_pylist(), lines["file"].to_pylist(), lines["row"].to_pylist(), strict=True)
        keys = [stable_hash(doc_id if doc_id is not None else f"{file}\n{row}") for doc_id, file, row in places]
        columns["key"] = pa.array(keys, pa.int64())
        columns["line"] = columns["row"]
        columns["shard"] = pa.array([shard_of(key, shards) for key in keys], pa.int32())
        missing = {f.name: pa.nulls(len(lines), f.type) for f in schema if f.name not in columns}
        yield pa.table([(columns | missing)[name] for name in schema.names], schema=schema)


def _offsets(lengths: Sequence[int]) -> np.ndarray:
    return offsets_of(np.asarray(lengths, dtype=np.int64)).astype(np.int32)


def _tokenise_nested(
    bodies: Sequence[list[str] | None], tokenise: Callable[[list[str]], list[list[int]]], token: pa.DataType
) -> pa.ListArray:
    """Token ids of each text of each list; null for None."""
    tokens = Tokens.of(tokenise([s for body in bodies for s in body or ()]), token.to_pandas_dtype())
    sentences = pa.ListArray.from_arrays(pa.array(tokens.offsets.astype(np.int32)), pa.array(tokens.values, token))
    mask = pa.array([body is None for body in bodies], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(_offsets([len(b or ()) for b in bodies])), sentences, mask=mask)


def batches_of(rows: Iterator[SourceRow], characters: int) -> Iterator[list[SourceRow]]:
    """Group rows into lists of about `characters` characters of text, so that memory stays bounded."""
    batch: list[SourceRow] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(
            len(v) if isinstance(v, str) else sum(len(s) for s in v if isinstance(s, str)) if isinstance(v, list) else 0
            for v in (row.values or {}).values()
        )
        if size >= characters or len(batch) >= 4096:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
