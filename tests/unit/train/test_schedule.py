"""What is due after which step."""

from __future__ import annotations

from typing import Any

import pytest

from infocse_ray.settings import Settings
from infocse_ray.train.schedule import Budget, Schedule


def schedule(
    budget: Budget, every: int = 4, every_tokens: int | None = None, checkpoint_every: int | None = None
) -> Schedule:
    content: dict[str, Any] = {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}}
    content["validate"] = {"every": every, "every_tokens": every_tokens}
    content["train"] = {"checkpoint_every": checkpoint_every}
    return Schedule(Settings.model_validate(content), budget)


def steps(which: Schedule, name: str, count: int = 12, tokens: int = 10) -> list[int]:
    """After which steps something is due, of so many tokens each."""
    return [
        step for step in range(1, count + 1) if getattr(which.after(step, (step - 1) * tokens, step * tokens), name)
    ]


def test_validations_and_their_checkpoints_come_every_so_many_steps_and_at_the_end():
    by_steps = schedule(Budget(10, None, 99))
    assert steps(by_steps, "validate", 10) == steps(by_steps, "checkpoint", 10) == [4, 8, 10]
    assert steps(by_steps, "last", 10) == [10]


@pytest.mark.parametrize(("tokens", "validated"), [(10, [3, 5, 8, 10]), (25, [1, 2, 3, 4, 5]), (60, [1, 2])])
def test_validations_by_tokens_come_whenever_so_many_were_encoded(tokens: int, validated: list[int]):
    by_tokens = schedule(Budget(99, 100, 99), every=1, every_tokens=25)
    count = -(-100 // tokens)
    assert steps(by_tokens, "validate", count, tokens) == [step for step in validated if step <= count]
    assert steps(by_tokens, "last", count, tokens) == [count]


def test_checkpoints_have_an_interval_of_their_own():
    own = schedule(Budget(12, None, 99), checkpoint_every=3)
    assert steps(own, "checkpoint") == [3, 6, 9, 12]
    assert steps(own, "validate") == [4, 8, 12]
    # A validation may end the training, which checkpoints: it must be possible to.
    assert steps(own, "may_checkpoint") == [3, 4, 6, 8, 9, 12]


def test_who_is_asked_to_stop_checkpoints_after_that_step():
    asked = schedule(Budget(12, None, 99)).after(5, 40, 50, stop=True)
    assert (asked.checkpoint, asked.may_checkpoint, asked.validate, asked.last) == (True, True, False, False)
