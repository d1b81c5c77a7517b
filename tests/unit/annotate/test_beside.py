"""One step behind: in what order things are asked for and taken, and in which context."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch

from infocse_ray.annotate.beside import one_behind, staggered


def run(count: int, fail_at: int | None = None) -> list[str]:
    done: list[str] = []

    def asked() -> Iterator[int]:
        for number in range(count):
            done.append(f"ask {number}")
            yield number

    @contextlib.contextmanager
    def after(mark: str) -> Iterator[None]:
        done.append(f"after {mark}")
        try:
            yield
        finally:
            done.append(f"back from {mark}")

    items = staggered(asked(), lambda: f"mark of {done[-1]}", after)
    with contextlib.closing(items) if fail_at is not None else contextlib.nullcontext():  # pyright: ignore
        for item in items:
            done.append(f"take {item}")
            if item == fail_at:
                break
    return done


def test_an_item_is_taken_once_the_next_was_asked_for():
    one, two, three = ([f"after mark of ask {n}", f"take {n}", f"back from mark of ask {n}"] for n in range(3))
    assert run(3) == ["ask 0", "ask 1", *one, "ask 2", *two, *three]
    assert run(1) == ["ask 0", *one]
    assert run(0) == []


def test_whoever_stops_is_out_of_the_context():
    assert run(3, fail_at=0)[-2:] == ["take 0", "back from mark of ask 0"]


def test_on_a_cpu_nothing_is_asked_for_early():
    taken, asked = [], []

    def asking() -> Iterator[int]:
        for number in range(3):
            asked.append(number)
            yield number

    for item in one_behind(asking(), torch.device("cpu")):
        taken.append((item, list(asked)))
    assert taken == [(0, [0]), (1, [0, 1]), (2, [0, 1, 2])]
    with pytest.raises(StopIteration):
        next(one_behind(iter(()), torch.device("cpu")))
