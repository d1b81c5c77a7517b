"""How many trials run at a time, on clusters that are made up."""

from __future__ import annotations

from typing import Any

import pytest
import ray

from infocse_ray.runtime.cluster import placement
from infocse_ray.settings import Settings
from infocse_ray.tuning.run import concurrent_trials


def settings(annotate: Any, train: Any) -> Settings:
    content = {"name": "x", "corpus": {"source": "x"}, "encoder": {"model": "x"}}
    return Settings.model_validate(content | {"annotate": annotate, "train": train})


@pytest.mark.parametrize(
    ("nodes", "annotate", "train", "max_concurrent", "expected"),
    [
        # As many as there are cores for.
        ([(2, 0)], 1, 1, None, 2),
        ([(2, 0)], 2, 1, None, 1),
        ([(4, 0), (4, 0)], 2, 3, None, 2),
        # A bound lowers that; it doesn't raise it.
        ([(2, 0)], 1, 1, 1, 1),
        ([(2, 0)], 1, 1, 8, 2),
        # What is auto takes all; under a bound, a share of it.
        ([(2, 0)], "auto", "auto", None, 1),
        ([(2, 0)], "auto", "auto", 2, 2),
        ([(2, 0)], "auto", 2, 2, 1),
        ([(64, 8)], "auto", "auto", None, 1),
        ([(64, 8)], "auto", "auto", 4, 4),
        # GPUs are counted where there are any, whatever the cores.
        ([(64, 0), (16, 4), (16, 4)], 1, 2, None, 4),
        ([(64, 0), (16, 4), (16, 4)], 1, 2, 3, 3),
    ],
)
def test_each_trial_has_its_places_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[tuple[int, int]],
    annotate: Any,
    train: Any,
    max_concurrent: int | None,
    expected: int,
):
    alive = [{"Alive": True, "Resources": {"CPU": float(c), "GPU": float(g)}} for c, g in nodes]
    monkeypatch.setattr(ray, "nodes", lambda: alive)
    sums = {"CPU": float(sum(c for c, _ in nodes)), "GPU": float(sum(g for _, g in nodes))}
    monkeypatch.setattr(ray, "cluster_resources", lambda: sums)
    one = settings({"num_workers": annotate}, {"num_workers": train})
    at_once = concurrent_trials(max_concurrent, [one] * 9)
    assert at_once == expected
    for section in (one.annotate, one.train):
        there = placement(section, at_once)
        assert there.workers * at_once <= sums["GPU" if there.use_gpu else "CPU"]
        # Whole workers of all trials, node by node.
        fit = sum(min(c // there.cores, g if there.use_gpu else c) for c, g in nodes)
        assert fit >= there.workers * at_once


def test_no_more_at_a_time_than_there_are_trials(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": True, "Resources": {"CPU": 8.0}}])
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0})
    small, large = settings({"num_workers": 1}, {"num_workers": 1}), settings({"num_workers": 8}, {"num_workers": 1})
    assert concurrent_trials(None, [small] * 3) == 3
    assert concurrent_trials(None, [small, small, large]) == 1, "the largest decides"
