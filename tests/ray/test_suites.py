"""Suites with Ray's actors and tasks, and the same in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.suites.judge import judge
from tests.unit.suites.data_sets import write_pairs, write_set
from tests.unit.suites.in_process import without_actors

pytest.importorskip("pytrec_eval")
pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")


@pytest.mark.usefixtures("ray_cluster")
def test_actors_find_what_one_process_finds(
    tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv")
    write_set(tmp_path / "one")
    content = {"model": str(tiny_encoder), "max_length": 16, "precision": "fp32", "suite": "sts,beir"}
    content |= {"suite_path": [str(pairs), str(tmp_path / "one")], "num_workers": 2}
    with_ray = judge(Evaluate.model_validate(content | {"storage": str(tmp_path / "with")}))
    without_actors(monkeypatch)
    without = judge(Evaluate.model_validate(content | {"storage": str(tmp_path / "without")}))
    for one, other in zip(with_ray.rows, without.rows, strict=True):
        assert one._replace(after=other.after) == other
        assert one.after == pytest.approx(other.after, abs=1e-4)
