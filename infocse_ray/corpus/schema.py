"""Arrow schemas of the token store, and the hashes that place a document in it."""

from __future__ import annotations

import hashlib

import pyarrow as pa
from tokenizers import Tokenizer

SPLITS = ("train", "valid", "test")
ROW_GROUP_DOCUMENTS = 256
"""Documents in a row group: small enough that every lane can keep a few in memory."""


def vocabulary_of(tokenizer: Tokenizer) -> int:
    """One more than the largest id of a tokenizer: more than it has tokens, where some numbers are nobody's."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def token_type(vocabulary: int) -> pa.DataType:
    """The smallest unsigned integer type that holds token ids 0..vocabulary-1."""
    return pa.uint8() if vocabulary <= 2**8 else pa.uint16() if vocabulary <= 2**16 else pa.uint32()


def store_schema(token: pa.DataType) -> pa.Schema:
    """Schema of a token store's shard.

    `key` is the 63-bit hash of the id that the rows of a split are ordered by; `sentences` are token ids without
    special tokens, not cut; `counterparts` likewise, distinct within the document, empty where there is none;
    `counterpart_keys` the hashes of their texts, by which counterparts are told apart whatever the tokenizer.
    """
    return pa.schema(
        [
            pa.field("doc_id", pa.string(), nullable=False),
            pa.field("key", pa.int64(), nullable=False),
            pa.field("split", pa.string(), nullable=False),
            pa.field("sentences", pa.list_(pa.list_(token)), nullable=False),
            pa.field("counterparts", pa.list_(pa.list_(token)), nullable=False),
            pa.field("counterpart_keys", pa.list_(pa.int64()), nullable=False),
        ]
    )


def rejected_schema() -> pa.Schema:
    """Schema of the rows set aside: where the row was, its id if it had one, and why.

    `row` is the line that it begins in, from 1; of a Parquet file the row and of a JSON array the item, from 0.
    """
    return pa.schema([("doc_id", pa.string()), ("file", pa.string()), ("row", pa.int64()), ("reason", pa.string())])


def stable_hash(text: str, salt: str = "") -> int:
    """A 63-bit hash that is the same on every machine and in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, salt=salt.encode()).digest()) >> 1


def shard_of(key: int, shards: int) -> int:
    """The shard of a document: shards are ranges of the hash, so shard after shard the order is the hash's."""
    return (key * shards) >> 63


def draw_split(doc_id: str, valid_fraction: float, test_fraction: float) -> str:
    """A split drawn by a hash of the id of its own, independent of the order in the store."""
    draw = stable_hash(doc_id, "split") / 2**63
    return "valid" if draw < valid_fraction else "test" if draw < valid_fraction + test_fraction else "train"
