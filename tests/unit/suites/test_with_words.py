"""An encoder's ranking and BM25's as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.storage.folder import Storage
from infocse_ray.suites.with_words import fused_found, read_found, write_found


def test_ranks_are_added_up_and_what_one_alone_found_is_there():
    vectors = {"q": {"a": 0.9, "b": 0.8, "c": -0.2}, "vectors alone": {"a": 0.1}}
    words = {"q": {"c": 7.0, "d": 3.0}, "words alone": {"d": 2.0}}
    found = fused_found(["q", "vectors alone", "words alone", "nothing"], [vectors, words])
    assert found["q"] == pytest.approx({"a": 1 / 61, "b": 1 / 62, "c": 1 / 63 + 1 / 61, "d": 1 / 62})
    assert found["vectors alone"] == pytest.approx({"a": 1 / 61})
    assert found["words alone"] == pytest.approx({"d": 1 / 61})
    assert found["nothing"] == {}


@pytest.mark.parametrize("found", [{}, {"q": {"a": 0.25, "b": -1.0}, "r": {"a": 2.0}}])
def test_what_was_found_is_kept(tmp_path: Path, found: dict[str, dict[str, float]]):
    file = Storage.open(str(tmp_path)) / "found.parquet"
    write_found(file, found)
    assert read_found(file) == found
