"""What is told after an iteration, and that what it raises ends the loop there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.loop import iterate as iterate_module
from infocse_ray.loop.iterate import Iterated, iterate
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage


def loop(
    monkeypatch: pytest.MonkeyPatch,
    scores: list[float],
    after_iteration: Any = None,
    began: list[Any] | None = None,
    **section: Any,
) -> Iterated:
    """The outer loop, whose iterations score what they are told to, the first the encoder as it came."""
    content = {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}, "loop": section}
    content |= {"validate": {"metric": "recall@5"}}

    def train_iteration(
        run: Any, rounds: Any, method: Any, encoder: Any, budget: Any, t: int, labels: Any, scored: Any
    ) -> Any:
        if began is not None:
            began.append(encoder)
        entries = [{"step": step, "recall@5": scores[t - 1 + step], "queries": 100} for step in (0, 1)]
        summary = {"history": entries, "chosen": entries[1], "best_step": 1, "seconds": 1.0}
        return {"train": Stage("train", "f", Storage("x"), summary)}, t

    monkeypatch.setattr(iterate_module, "train_iteration", train_iteration)
    inputs = SimpleNamespace(initialization=None, method=SimpleNamespace(annotated=True))
    run: Any = SimpleNamespace(iteration_stages=None, settings=Settings.model_validate(content), inputs=inputs)
    return iterate(run, None, after_iteration=after_iteration)  # pyright: ignore[reportArgumentType]


def test_it_is_called_after_each_iteration_that_another_may_follow(monkeypatch: pytest.MonkeyPatch):
    told: list[list[float]] = []

    def note(iterations: list[dict[str, Any]]) -> None:
        told.append([entry["validation"]["recall@5"] for entry in iterations])

    loop(monkeypatch, [0.1, 0.2, 0.3, 0.4], note, max_iterations=3)
    assert told == [[0.1, 0.2], [0.1, 0.2, 0.3]]
    told.clear()
    loop(monkeypatch, [0.1, 0.2, 0.15, 0.4], note, max_iterations=3)
    assert told == [[0.1, 0.2]], "an iteration without growth is the last"
    told.clear()
    loop(monkeypatch, [0.1, 0.2, 0.15, 0.4], note, max_iterations=3, early_stop=False)
    assert len(told) == 2


def test_what_it_raises_ends_the_run(monkeypatch: pytest.MonkeyPatch):
    def stop(iterations: list[dict[str, Any]]) -> None:
        raise SystemExit(len(iterations))

    with pytest.raises(SystemExit, match="2"):
        loop(monkeypatch, [0.1, 0.2, 0.3], stop, max_iterations=2)
    assert loop(monkeypatch, [0.1, 0.2, 0.3], max_iterations=2).best == 2


def test_each_iteration_goes_on_from_the_one_before_it(monkeypatch: pytest.MonkeyPatch):
    began: list[Any] = []
    made = loop(monkeypatch, [0.1, 0.3, 0.2, 0.4, 0.25], None, began, max_iterations=4, early_stop=False)
    assert began == [None, 1, 2, 3], "also from one that didn't grow"
    assert (made.encoders, made.best) == ([None, 1, 2, 3, 4], 3)
