"""Two encoders that `infocse evaluate` puts side by side: judged as a run judges its result."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infocse_ray.corpus.schema import stable_hash
from infocse_ray.loop import scored
from infocse_ray.loop.scored import Scored
from infocse_ray.retrieval.ranks import metrics_of
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from tests.unit.retrieval.test_examples import tokenizer
from tests.unit.retrieval.test_questions import stage
from tests.unit.stores import Written, write_store

QUESTIONS = {f"d{i:02d}": [i + 1] for i in range(24)}
"""Of each document, the token of what it must find."""


@pytest.fixture
def root(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "runs"))


def a_run(root: Storage, name: str, metric: str) -> str:
    """The model of a run that was judged by a metric."""
    content = {"name": name, "encoder": {"model": "m"}, "corpus": {"source": "c"}, "validate": {"metric": metric}}
    manifest = {"format": 2, "job": "pretrain", "settings": content, "inputs": {}, "stages": {}}
    (root / name / "manifest.json").write_json(checked(manifest))
    return str(root / name / "model")


def side_by_side(root: Storage, ours: list[int], theirs: list[int], **asked: Any) -> None:
    """Compare two encoders by the ranks of what documents had to find."""
    written = [Written(name, [[1], [2]], (), [tokens], "train") for name, tokens in QUESTIONS.items()]
    store = write_store(root / "store", written, 2)
    settings = Evaluate.model_validate(
        {"model": "ours", "compare": "theirs", "storage": str(root), "corpus": {"source": "c"}} | asked
    )
    both = []
    for name, ranks in (("model", ours), ("compare", theirs)):
        keys = [(document, stable_hash(repr(tokens))) for document, tokens in list(QUESTIONS.items())[: len(ranks)]]
        folder = stage(root / "evaluations" / name, dict(zip(keys, ranks, strict=True)))
        summary = {"metrics": metrics_of(np.array(ranks), 500)}
        done = Stage("evaluate", name, folder, summary)
        both.append(Scored(getattr(settings, name), done, store, tokenizer([*string.ascii_lowercase]), None, None))
    scored._compare(settings, both, "counterpart", None)


BETTER, WORSE = [1] * 24, [2] * 24
"""Ranks: better in MRR, level in any recall."""


@pytest.mark.parametrize(
    ("judged", "asked", "metric", "said"),
    [
        ({}, None, "mrr", "judged by mrr, as runs are unless they say else; --metric takes another"),
        ({"model": "recall@10"}, None, "recall@10", "judged by recall@10, as the run model was"),
        ({"compare": "recall@20"}, None, "recall@20", "judged by recall@20, as the run compare was"),
        ({"model": "mrr", "compare": "recall@20"}, None, "mrr", "judged by mrr, as the run model was"),
        ({"model": "recall@10"}, "recall@5", "recall@5", None),
    ],
)
def test_they_are_compared_by_what_their_run_was_judged_by(
    root: Storage,
    judged: dict[str, str],
    asked: str | None,
    metric: str,
    said: str | None,
    capsys: pytest.CaptureFixture[str],
):
    models = {name: a_run(root, name, of_it) for name, of_it in judged.items()}
    side_by_side(root, BETTER, WORSE, **models, **({} if asked is None else {"metric": asked}))
    out = capsys.readouterr().out
    assert f" in {metric}" in out
    assert ("LEVEL: " in out) == (metric != "mrr")
    assert said in out if said else "judged by" not in out
