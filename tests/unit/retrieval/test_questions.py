"""Ranks of evaluate stages by question, and two encoders compared by them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from infocse_ray.retrieval.bootstrap import paired_bootstrap
from infocse_ray.retrieval.questions import compare, compare_scores, scores_by_question
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import write_parquet


def stage(folder: Storage, ranks: dict[tuple[str, int], int], parts: int = 2) -> Storage:
    """A stage's folder, its ranks dealt to so many workers in turn."""
    rows = [{"doc_id": d, "key": k, "rank": r, "top_key": 0} for (d, k), r in ranks.items()]
    for part in range(parts):
        table = pa.Table.from_pylist(rows[part::parts])
        write_parquet(folder / "ranks" / f"part-{part:05d}.parquet", table, [len(table)])
    return folder


@pytest.fixture
def root(tmp_path) -> Storage:
    return Storage.open(str(tmp_path))


OURS = {("a", 2): 1, ("a", 1): 2, ("b", 7): 6, ("c", 3): 20, ("d", 1): 3}
THEIRS = {("d", 1): 9, ("b", 7): 1, ("a", 1): 10, ("a", 2): 1, ("c", 3): 21}


def scores(name: str, ranks: np.ndarray) -> np.ndarray:
    return 1 / ranks if name == "mrr" else (ranks <= int(name[7:])).astype(float)


@pytest.mark.parametrize("metric", ["recall@5", "recall@10", "recall@20", "mrr"])
def test_two_encoders_are_compared_question_by_question(root, metric):
    ours, theirs = stage(root / "ours", OURS), stage(root / "theirs", THEIRS, 3)
    asked = sorted(OURS)
    mine, yours = (scores(metric, np.array([ranks[q] for q in asked])) for ranks in (OURS, THEIRS))
    found = compare(ours, theirs, metric)
    assert found == paired_bootstrap(mine, yours, np.array([0, 0, 1, 2, 3]))
    assert found.difference == pytest.approx(mine.mean() - yours.mean())
    assert (found.questions, found.documents) == (5, 4)


def test_other_questions_are_refused_unless_common_ones_are_asked_for(root):
    ours = stage(root / "ours", OURS)
    theirs = stage(root / "theirs", {q: r for q, r in THEIRS.items() if q != ("d", 1)} | {("e", 1): 1})
    with pytest.raises(ValueError, match="are not of the same questions"):
        compare(ours, theirs, "mrr")
    scored = compare_scores(ours, theirs, "mrr", common=True)
    found = scored.lead
    assert (found.questions, found.documents) == (4, 3)
    assert found.difference == pytest.approx(np.mean([0, 1 / 2 - 1 / 10, 1 / 6 - 1, 1 / 20 - 1 / 21]))
    assert scored.ours == pytest.approx(np.mean([1, 1 / 2, 1 / 6, 1 / 20]))
    assert scored.theirs == pytest.approx(np.mean([1, 1 / 10, 1, 1 / 21]))
    with pytest.raises(ValueError, match="no question in common"):
        compare_scores(ours, stage(root / "none", {("x", 1): 1}, 1), "mrr", common=True)


def test_reciprocal_ranks_of_several_seeds(root):
    again = dict.fromkeys(OURS, 2)
    asked, found = scores_by_question([stage(root / "one", OURS), stage(root / "two", again)], "mrr")
    named = dict(zip(zip(*asked.to_pydict().values(), strict=True), found, strict=True))
    assert named == pytest.approx({question: (1 / rank + 1 / 2) / 2 for question, rank in OURS.items()})
