"""Evaluation as a stage, without workers: shared, repaired where it is, and made by one driver at a time."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import Precision
from infocse_ray.loop import evaluate as module
from infocse_ray.runtime import progress
from infocse_ray.runtime.cluster import Placement
from infocse_ray.stages.stage import Stage, look_again
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import write_parquet


@pytest.fixture
def root(tmp_path) -> Storage:
    return Storage.open(str(tmp_path))


@pytest.fixture
def worked(root, monkeypatch) -> list[list[str]]:
    """The folders that each group of workers was given; they write what workers write."""
    given: list[list[str]] = []

    def work(_: object, argument: Any, *__: object, **___: object) -> None:
        given.append([place.relative for _, place in argument.todo])
        leases = [name for name in (root / "stages").files() if name.endswith(".lease")]
        assert len(leases) == len(argument.todo)
        for _, place in argument.todo:
            write_parquet(place / "ranks" / "part-00000.parquet", pa.table({"rank": [1]}), [1])
            (place / "metrics.json").write_json(checked({"metrics": {"mrr": 1.0}, "seconds": 1.0}))

    monkeypatch.setattr(module, "run_one_worker", work)
    monkeypatch.setattr(module, "run_workers", lambda *_, **__: pytest.fail("a group for one worker"))
    monkeypatch.setattr(module, "Board", lambda *_, **__: contextlib.nullcontext(SimpleNamespace(handle=None)))
    return given


def evaluate(
    root: Storage,
    run: str,
    encoders: tuple[str, ...] = ("e1",),
    seed: int = 1,
    store: str = "s",
    precision: Precision = "fp32",
    **question: Any,
) -> list[Stage]:
    look_again()
    asked = [
        module.Asked(EncoderFolder(root / name, name, 16), **cast(Any, {"split": "test", "on": "halves"} | question))
        for name in encoders
    ]
    corpus = TokenStore(root / "store", store, {})
    return module.evaluate(root, root / run, corpus, asked, precision, Placement(1, False, 1), seed)


def test_each_encoder_is_scored_once_whichever_run_asks(root, worked):
    first = evaluate(root, "one", ("e2", "e1", "e2"))
    assert [len(given) for given in worked] == [2]
    assert [stage.folder.relative for stage in evaluate(root, "two", ("e1",))] == [first[1].folder.relative]
    assert len(worked) == 1
    assert not [name for name in (root / "stages").files() if name.endswith(".lease")]


def test_scores_that_were_found_are_known_with_the_same_arguments_alone(root, worked):
    def known(encoder: str = "e1", seed: int = 1, **question: Any) -> dict[str, Any] | None:
        content = cast(Any, {"split": "valid", "on": "sentence"} | question)
        asked = module.Asked(EncoderFolder(root / encoder, encoder, 16), **content)
        return module.known_scores(root, root / "one", TokenStore(root / "store", "s", {}), asked, "fp32", seed)

    assert known() is None
    evaluate(root, "one", split="valid", on="sentence")
    assert known() == {"mrr": 1.0}
    assert known("e2") is known(seed=2) is known(split="test") is known(on="halves") is known(max_documents=100) is None
    assert len(worked) == 1, "nothing is scored for being asked for"


def test_drivers_that_want_the_same_wait_for_it_in_one_order(root, worked, monkeypatch):
    taken: list[str] = []
    making = module.making

    def watched(root: Storage, folder: Storage, kind: str, identity: str) -> Any:
        taken.append(identity)
        return making(root, folder, kind, identity)

    monkeypatch.setattr(module, "making", watched)
    names = ("e1", "e2", "e3", "e4")
    evaluate(root, "one", names)
    for done in ("one", "stages"):
        (root / done).delete()
    evaluate(root, "other", names[::-1])
    assert len(taken) == 8
    assert taken[:4] == taken[4:], "each would wait for what the other has"


def test_what_is_asked_names_the_stage_and_the_seed_only_where_it_draws(root, worked):
    def stage(**question: Any) -> str:
        return evaluate(root, "one", **question)[0].fingerprint

    different = [
        {},
        {"store": "another"},
        {"precision": "bf16"},
        {"split": "valid"},
        {"split": "valid", "max_documents": 100},
        {"split": "valid", "max_documents": 100, "max_candidates": 100},
        {"on": "counterpart"},
        {"on": "sentence"},
        {"on": "sentence", "seed": 2},
        {"on": "counterpart", "reading": "whole"},
        {"on": "counterpart", "split": "valid", "max_documents": 100, "reading": "whole"},
    ]
    assert len({stage(**question) for question in different}) == len(worked) == len(different)
    assert stage(seed=2) == stage()
    assert stage(reading="whole") == stage(), "of counterparts alone is anything else asked"


def test_the_start_of_the_workers_is_the_first_stages(root, worked, monkeypatch):
    """Both are scored at once, and so told at once: what passes until then isn't their start."""
    moments = itertools.chain([100.0, 107.5], itertools.repeat(109.5))

    @contextlib.contextmanager
    def board(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(moments)))
        bar = progress.Bar("evaluating", 2, "scores")
        yield SimpleNamespace(handle=None)
        bar.begin()
        bar.to(2)
        monkeypatch.undo()

    monkeypatch.setattr(module, "Board", board)
    stages = evaluate(root, "one", ("e1", "e2"))
    assert [(stage.starting, stage.seconds) for stage in stages] == [(7.5, 8.5), (None, 1.0)]


def test_damaged_ranks_of_another_run_are_made_again_where_they_are(root, worked):
    [stage] = evaluate(root, "one")
    (stage.folder / "ranks" / "part-00000.parquet").write_bytes(b"cut off")
    [again] = evaluate(root, "two")
    assert again.folder.relative == stage.folder.relative
    assert worked == [[stage.folder.relative]] * 2
    assert (again.summary or {})["metrics"] == {"mrr": 1.0}
