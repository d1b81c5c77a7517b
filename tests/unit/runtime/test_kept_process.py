"""Which processes of one worker stay: told by what Ray is asked for."""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from infocse_ray.runtime import kept_process, tasks
from infocse_ray.runtime.kept_process import kept_task
from infocse_ray.runtime.placement import Nodes, Placement


@pytest.mark.parametrize(("gpus", "calls"), [([1, 0, 1], 0), ([2, 1], 1)])
def test_a_process_with_a_gpu_stays_where_the_next_task_can_have_no_other(
    monkeypatch: pytest.MonkeyPatch, gpus: list[int], calls: int
) -> None:
    asked: list[dict[str, Any]] = []

    class Task:
        def remote(self, *_: Any) -> None: ...

    monkeypatch.setattr(kept_process.ray, "remote", lambda **options: asked.append(options) or (lambda _: Task()))
    monkeypatch.setattr(kept_process, "nodes_there", lambda: Nodes([8] * len(gpus), gpus))
    kept_task(print, (), Placement(1, True, 4), 3)
    kept_task(print, (), Placement(1, False, 2), 3)
    shared = {"max_retries": 3, "scheduling_strategy": "DEFAULT"}
    assert asked == [
        {"num_cpus": 4, "num_gpus": 1, "max_calls": calls, **shared},
        {"num_cpus": 2, **shared},
    ]


class _Cluster:
    """Nodes that change while tasks wait for them; a task gives an item a look where its node is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nodes: list[list[int]], held: int = 0) -> None:
        self.nodes, self.held, self.begun, self.ended = nodes, held, list[int](), list[int]()
        for module in (kept_process, tasks):
            monkeypatch.setattr(module, "say", lambda _: None, raising=False)
        monkeypatch.setattr(kept_process, "nodes_there", lambda: Nodes(self.nodes[0], [0] * len(self.nodes[0])))
        monkeypatch.setattr(kept_process, "await_places", self.await_places)
        monkeypatch.setattr(tasks, "watched", lambda *_: contextlib.nullcontext())
        monkeypatch.setattr(tasks, "kept_task", self.task)
        monkeypatch.setattr(tasks, "_end", lambda task: self.ended.append(task.cores))
        monkeypatch.setattr(tasks.ray, "wait", self.wait)
        monkeypatch.setattr(tasks.ray, "get", lambda item: item)

    def await_places(self, one: Placement, _: str, workers: int, patience: float | None = None) -> bool:
        assert workers == 1
        return patience is None or one.cores <= max(self.nodes[0]) - self.held

    def task(self, work: Any, arguments: tuple[Any, ...], one: Placement, retries: int, yields: bool) -> Any:
        self.begun.append(one.cores)
        return _Task(work(*arguments), one.cores)

    def wait(self, waiting: list[Any], timeout: float, fetch_local: bool) -> tuple[list[Any], list[Any]]:
        there = waiting[0].cores <= max(self.nodes[0])
        if len(self.nodes) > 1:
            self.nodes.pop(0)
        return (waiting, []) if there else ([], waiting)


class _Task:
    def __init__(self, items: Iterator[int], cores: int) -> None:
        self.cores, self._items = cores, items

    def __iter__(self) -> Iterator[int]:
        return self._items


def test_what_waits_for_a_node_that_is_lost_begins_again_on_a_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _Cluster(monkeypatch, [[4, 8], [4, 8], [4, 8], [4]])
    where = Placement(8, False, 1)
    assert list(tasks.items_of_one_task(iter, range(6), where=where, title="annotating")) == [*range(6)]
    assert (cluster.begun, cluster.ended) == ([8, 4], [8])
    # Where none is left that has room, it waits for one.
    cluster = _Cluster(monkeypatch, [[4, 8], [1], [1], [1], [1], [1], [8]])
    assert list(tasks.items_of_one_task(iter, range(6), where=Placement(4, False, 2), title="annotating")) == [
        *range(6)
    ]
    assert (cluster.begun, cluster.ended) == ([8], [])


def test_cores_that_others_hold_for_long_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _Cluster(monkeypatch, [[4]], held=1)
    assert list(tasks.items_of_one_task(iter, range(3), where=Placement(4, False, 1), title="annotating")) == [0, 1, 2]
    assert cluster.begun == [1]


def test_what_failed_holds_no_memory_and_its_process_has_its_threads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_process, "assigned_cores", lambda: 3)
    threads, seen, held = torch.get_num_threads(), list[int](), list[weakref.ref[Any]]()

    class Vectors: ...

    def fails() -> None:
        vectors = Vectors()
        held.append(weakref.ref(vectors))
        seen.append(torch.get_num_threads())
        raise ValueError("no memory")

    monkeypatch.setattr(kept_process, "_give_back_memory", lambda: seen.append(held[0]() is None))
    with pytest.raises(ValueError, match="no memory"):
        kept_process.then_idle(fails)
    assert seen == [3, True]
    assert torch.get_num_threads() == threads


class Ended(BaseException):
    """Stands for the end of a process."""


@pytest.mark.parametrize("answers", [True, False])
def test_a_process_whose_gpu_answers_no_more_ends(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    def synchronize() -> None:
        if not answers:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def end(status: int) -> None:
        raise Ended(status)

    def fails() -> None:
        raise ValueError("no good")

    monkeypatch.setattr(kept_process, "assigned_cores", lambda: 1)
    monkeypatch.setattr(kept_process.os, "_exit", end)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    with pytest.raises(ValueError if answers else Ended):
        kept_process.then_idle(fails)
