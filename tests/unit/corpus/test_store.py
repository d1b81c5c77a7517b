"""What names the content of a token store's shards."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from infocse_ray.corpus.schema import store_schema
from infocse_ray.corpus.store import content_of, documents_of, questions_of

ROW: dict[str, Any] = {
    "doc_id": "ab",
    "key": 7,
    "split": "train",
    "sentences": [[5, 6], [7]],
    "counterparts": [[8, 9]],
    "counterpart_keys": [3],
}
OTHER = ROW | {"doc_id": "c", "key": 8}


def name_of(*rows: dict[str, Any], shard: int = 1) -> int:
    table = pa.Table.from_pylist(list(rows), store_schema(pa.uint16()))
    return content_of(shard, [row["split"] for row in rows], documents_of(table))


@pytest.mark.parametrize(
    "changed",
    [
        {"doc_id": "ax"},
        {"key": 9},
        {"split": "valid"},
        {"sentences": [[5, 6], [8]]},
        {"sentences": [[5], [6, 7]]},
        {"counterparts": [[8, 10]]},
        {"counterpart_keys": [4]},
        {"counterparts": [], "counterpart_keys": []},
    ],
)
def test_whatever_a_later_stage_reads_of_a_document_changes_the_name(changed: dict[str, Any]):
    assert name_of(ROW | changed, OTHER) != name_of(ROW, OTHER)


def test_borders_between_documents_are_in_the_name():
    first, second = ROW | {"sentences": [[5]]}, OTHER | {"sentences": [[6], [7]]}
    moved = ROW | {"sentences": [[5], [6]]}, OTHER | {"sentences": [[7]]}
    assert name_of(first, second) != name_of(*moved)
    split_ids = ROW | {"doc_id": "a"}, OTHER | {"doc_id": "bc"}
    assert name_of(*split_ids) != name_of(ROW, OTHER)
    labels = ROW | {"counterparts": [], "counterpart_keys": []}
    both = {"counterparts": [[8, 9], [8, 9]], "counterpart_keys": [3, 3]}
    assert name_of(labels, OTHER | both) != name_of(ROW | both, OTHER | {"counterparts": [], "counterpart_keys": []})


def test_the_shard_is_in_the_name_and_nothing_else_is():
    assert name_of(ROW, shard=2) != name_of(ROW)
    assert name_of(ROW, OTHER) == name_of(dict(ROW), dict(OTHER))


def questions(*rows: dict[str, Any]) -> int:
    table = pa.Table.from_pylist(list(rows), store_schema(pa.uint16()))
    return questions_of([row["split"] for row in rows], documents_of(table))


def test_what_may_be_asked_for_is_told_whatever_the_tokens_and_the_shards():
    same = questions(ROW, OTHER)
    assert questions(OTHER, ROW) == same
    assert (questions(ROW) + questions(OTHER)) % 2**128 == same
    assert questions(ROW | {"sentences": [[9], [7, 7]], "counterparts": [[1]]}, OTHER) == same
    more = {"counterparts": [[8], [9]], "counterpart_keys": [5, 3]}
    assert questions(ROW | more) == questions(ROW | {"counterparts": [[9], [8]], "counterpart_keys": [3, 5]})
    for changed in (
        {"doc_id": "ax"},
        {"split": "valid"},
        {"sentences": [[5, 6]]},
        {"counterpart_keys": [4]},
        {"counterparts": [], "counterpart_keys": []},
        more,
    ):
        assert questions(ROW | changed, OTHER) != same
