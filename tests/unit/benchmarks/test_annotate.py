"""The annotate benchmark: its parts are the stage's own, and too few sentences are said before it measures."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from infocse_ray.annotate.annotations import SCHEMA
from infocse_ray.benchmarks.annotate import groups_of, split_once
from tests.unit.passes import small_store


def test_it_times_what_the_stage_does(tmp_path: Path, tiny_encoder: Path):
    store = small_store(tmp_path)
    spent = split_once(str(tmp_path), str(tiny_encoder), store)
    assert set(spent) == {"encoder", "IDC", "writing", "reading, equal sentences", "tokens: sorting, padding"}
    assert all(seconds > 0 for seconds in spent.values())
    written = list((tmp_path / "split").glob("shard-*.parquet"))
    assert len(written) == store.shards
    assert {tuple(pq.read_schema(file).names) for file in written} == {tuple(SCHEMA.names)}


def test_too_few_sentences_are_said_before(tmp_path: Path):
    store = small_store(tmp_path)
    groups = len(groups_of(store, 0))
    assert len(groups_of(store, groups - 1)) == groups
    with pytest.raises(ValueError, match=f"--sentences: too few for {groups} workers"):
        groups_of(store, groups)
