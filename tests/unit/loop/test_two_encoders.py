"""Two encoders that `infocse evaluate` puts side by side: judged as a run judges its result."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infocse_ray.corpus.schema import stable_hash
from infocse_ray.loop import outcome, scored
from infocse_ray.loop.scored import Scored
from infocse_ray.retrieval.ranks import metrics_of
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from tests.unit.retrieval.test_examples import tokenizer
from tests.unit.retrieval.test_questions import stage
from tests.unit.stores import Written, write_store

QUESTIONS = {f"d{i:03d}": [i % 26, i // 26] for i in range(500)}
"""Of each document, the tokens of what it must find."""


@pytest.fixture
def root(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "runs"))


def a_run(root: Storage, name: str, metric: str) -> str:
    """The model of a run that was judged by a metric."""
    content = {"name": name, "encoder": {"model": "m"}, "corpus": {"source": "c"}, "validate": {"metric": metric}}
    manifest = {"format": 2, "job": "pretrain", "settings": content, "inputs": {}, "stages": {}}
    (root / name / "manifest.json").write_json(checked(manifest))
    return str(root / name / "model")


def answered(root: Storage, name: str, ranks: list[int]) -> Stage:
    """What an encoder scored, by the ranks of what the first documents had to find."""
    keys = [(document, stable_hash(repr(tokens))) for document, tokens in QUESTIONS.items()]
    folder = stage(root / "evaluations" / name, dict(zip(keys[: len(ranks)], ranks, strict=True)))
    return Stage("evaluate", name, folder, {"metrics": metrics_of(np.array(ranks), 500)})


def side_by_side(root: Storage, ours: list[int], theirs: list[int], **asked: Any) -> dict[str, Any]:
    """Compare two encoders by their ranks; what programs are told."""
    given = {"model": "ours", "compare": "theirs", "storage": str(root), "corpus": {"source": "c"}} | asked
    settings = Evaluate.model_validate(given)
    written = [Written(name, [[1], [2]], (), [tokens], settings.place) for name, tokens in QUESTIONS.items()]
    store, of_letters = write_store(root / "store", written, 2), tokenizer([*string.ascii_lowercase])
    both = [
        Scored(given[name], answered(root, name, ranks), store, of_letters, None, None)
        for name, ranks in (("model", ours), ("compare", theirs))
    ]
    return scored._compare(settings, root, both, "counterpart", None)


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
    assert ("LEVEL, " in out) == (metric != "mrr")
    assert said in out if said else "judged by" not in out


@pytest.mark.parametrize(
    ("ours", "theirs", "label"), [(BETTER, WORSE, "WIN"), (WORSE, BETTER, "LOSS"), (BETTER, BETTER, "LEVEL")]
)
def test_the_verdict_is_what_a_run_would_have_said_of_them(
    root: Storage, ours: list[int], theirs: list[int], label: str, capsys: pytest.CaptureFixture[str]
):
    content = side_by_side(root, ours, theirs, split="test")
    told, out = content["verdict"], capsys.readouterr().out
    stages = {"start/test": answered(root, "start", theirs), "result/test": answered(root, "result", ours)}
    of_a_run = outcome._verdicts(stages, "start", False, "mrr")
    assert told["test"] == of_a_run["test"]
    assert (told["label"], told["judged_on"]) == (of_a_run["label"], "test") == (label, "test")
    assert told.keys() == of_a_run.keys()
    scores = content["scores"]
    assert (told["test"]["before"], told["test"]["after"]) == (
        scores[told["over"]]["test"]["mrr"],
        scores["model"]["test"]["mrr"],
    )
    assert told["line"].startswith(f"{label}, ")
    assert f"verdict: {told['line']}\n" in out
    [file] = [line.rpartition(": ")[2] for line in out.splitlines() if line.endswith("/comparison.json")]
    assert json.loads(Path(file).read_text()) == content


@pytest.mark.parametrize(("split", "said"), [("all", "all"), ("train", "train"), ("valid", "validation")])
def test_whose_documents_judged_is_said_as_by_a_run(root: Storage, split: str, said: str):
    content = side_by_side(root, BETTER, WORSE, split=split)
    assert content["verdict"]["judged_on"] == said
    assert content["verdict"][said]["label"] == "WIN"


def test_a_comparison_keeps_no_credential(root: Storage, capsys: pytest.CaptureFixture[str]):
    first = side_by_side(root, BETTER, WORSE, compare="s3://KEY:averysecretword@bucket/encoder")
    again = side_by_side(root, BETTER, WORSE, compare="s3://KEY:anothersecretword@bucket/encoder")
    assert first == again
    assert "secretword" not in json.dumps(first)
    assert "bucket/encoder" in first["compare"]
    files = [line for line in capsys.readouterr().out.splitlines() if line.endswith("/comparison.json")]
    assert len(files) == 2
    assert len(set(files)) == 1, "nor is its folder named by one"


@pytest.mark.parametrize(
    ("ours", "theirs", "asked", "doubtful"),
    [
        ([1] * 500, [2] * 500, {}, []),
        (BETTER, WORSE, {}, ["too few questions: mrr is 0.5000 (0.31 to 0.69) on 24; ", "give more documents"]),
        (BETTER, WORSE, {"split": "test"}, ["too few questions", "or ask those of all splits (--split all)"]),
        (WORSE * 20, BETTER * 20, {}, ["at its ceiling: mrr is 1.0000; ", "set --on to sentence, or give it more"]),
        (
            BETTER * 20,
            WORSE * 20,
            {"metric": "recall@5"},
            ["at its ceiling: recall@5 is 1.0000; ", "set --metric to mrr (0.5000 now), or set --on to sentence"],
        ),
    ],
)
def test_what_is_doubtful_is_said_as_by_a_run(
    root: Storage,
    ours: list[int],
    theirs: list[int],
    asked: dict[str, str],
    doubtful: list[str],
    capsys: pytest.CaptureFixture[str],
):
    warnings = side_by_side(root, ours, theirs, **asked)["warnings"]
    out = capsys.readouterr().out
    assert len(warnings) == (1 if doubtful else 0)
    assert all(part in line for line in warnings for part in doubtful)
    assert not any(name in line for line in warnings for name in ("validate.", "valid_fraction", "training"))
    assert [line for line in out.splitlines() if line.startswith("warning: ")] == [f"warning: {w}" for w in warnings]
    assert all(out.index(f"warning: {line}") < out.index("verdict: ") for line in warnings)
