"""Which of several rows with one id is the document, in whatever order they come to the task that writes its shard."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa

from infocse_ray.corpus.documents import tokenised_schema
from infocse_ray.corpus.prepare import ShardWriter
from infocse_ray.corpus.store import shard_name
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet

DUPLICATE = "duplicate id"


def row_of(order: int, row: int, doc_id: str, token: int, reason: str | None = None) -> dict[str, Any]:
    """A row of the file that is the corpus' `order`-th, of sentences that tell it from the others."""
    document = {"split": "train", "sentences": [[token], [token]], "counterparts": [], "counterpart_keys": []}
    place = {"shard": 0, "order": order, "file": f"{order}.jsonl", "row": row, "line": row, "label": False}
    return place | {"doc_id": doc_id, "key": len(doc_id), "reason": reason} | (document if reason is None else {})


ROWS = [
    row_of(0, 2, "a", 1, "empty"),
    row_of(0, 5, "a", 2),
    row_of(0, 9, "a", 3),
    row_of(1, 0, "a", 4),
    row_of(1, 1, "bb", 5),
]


def test_the_first_good_row_of_an_id_is_the_document(tmp_path: Path):
    for number, rows in enumerate(itertools.permutations(ROWS)):
        folder = Storage.open(str(tmp_path)) / str(number)
        counts = ShardWriter(folder, folder / "lines")(
            0, pa.Table.from_pylist(list(rows), tokenised_schema(pa.uint8()))
        )
        assert counts["rejected"] == {"empty": 1, DUPLICATE: 2}
        with open_parquet(folder / "documents" / shard_name(0)) as file:
            written = {row["doc_id"]: row["sentences"] for row in file.read().to_pylist()}
        assert written == {"a": [[2], [2]], "bb": [[5], [5]]}
        with open_parquet(folder / "rejected" / shard_name(0)) as file:
            set_aside = [(row["file"], row["row"], row["reason"]) for row in file.read().to_pylist()]
        assert set_aside == [("0.jsonl", 2, "empty"), ("0.jsonl", 9, DUPLICATE), ("1.jsonl", 0, DUPLICATE)]


def test_documents_with_labels_are_counted_beside_their_labels(tmp_path: Path):
    labels = {"counterparts": [[1], [2], [3]], "counterpart_keys": [1, 2, 3]}
    rows = [row_of(0, 0, "a", 1) | labels, row_of(0, 1, "bb", 2)]
    folder = Storage.open(str(tmp_path))
    counts = ShardWriter(folder, folder / "lines")(0, pa.Table.from_pylist(rows, tokenised_schema(pa.uint8())))
    assert (counts["labelled"], counts["documents_labelled"]) == ({"train": 3}, {"train": 1})
