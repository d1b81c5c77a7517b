"""Phases of several groups at a time: in what order, how many, whose errors; and the same pieces as one by one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from infocse_ray.annotate import annotator, documents, kmeans
from infocse_ray.annotate.pipeline import GROUPS_AT_ONCE, Pipeline, Written, through_phases
from infocse_ray.settings import Annotate
from tests.unit.passes import pieces, small_store, written_clusters

_SECONDS = 30


class Steps:
    """A work that says what it does, and may be held up or fail there."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.seen = threading.Condition()
        self.gates: dict[tuple[str, int], threading.Event] = {}
        self.fails: set[tuple[str, int]] = set()
        self.threads: set[int] = set()
        self.there: set[int] = set()
        self.embedding = self.most_embedding = 0

    def hold(self, phase: str, group: int) -> threading.Event:
        return self.gates.setdefault((phase, group), threading.Event())

    def wait_for(self, phase: str, group: int) -> None:
        with self.seen:
            assert self.seen.wait_for(lambda: (phase, group) in self.done, _SECONDS)

    def _do(self, phase: str, group: int) -> None:
        with self.seen:
            self.done.append((phase, group))
            self.seen.notify_all()
        if gate := self.gates.get((phase, group)):
            assert gate.wait(_SECONDS)
        if (phase, group) in self.fails:
            raise ValueError(f"{phase} {group}")

    def __call__(self, annotator: Any, shards: list[int]) -> list[dict[str, Any]]:
        return through_phases(self, annotator, shards)

    def read(self, annotator: Any, shards: list[int]) -> int | Written:
        self._do("read", shards[0])
        return Written([{"there": shards[0]}]) if shards[0] in self.there else shards[0]

    def embed(self, annotator: Any, group: int) -> int:
        self.embedding += 1
        self.most_embedding = max(self.most_embedding, self.embedding)
        self.threads.add(threading.get_ident())
        try:
            self._do("embed", group)
        finally:
            self.embedding -= 1
        return group

    def write(self, group: int) -> list[dict[str, Any]]:
        self._do("write", group)
        return [{"group": group}]


def begun(work: Any) -> tuple[Pipeline, ThreadPoolExecutor]:
    return Pipeline(lambda: None, work), ThreadPoolExecutor(GROUPS_AT_ONCE)  # pyright: ignore[reportArgumentType]


def test_a_group_is_read_and_another_written_while_one_is_on_the_device():
    work = Steps()
    writing, embedding = work.hold("write", 0), work.hold("embed", 1)
    pipeline, calls = begun(work)
    first, second = (calls.submit(pipeline, [group]) for group in range(2))
    work.wait_for("write", 0)
    work.wait_for("embed", 1)
    third = calls.submit(pipeline, [2])
    work.wait_for("read", 2)
    assert not any(call.done() for call in (first, second, third)), "counts before the pieces were written"
    embedding.set()
    assert second.result(_SECONDS) == [{"group": 1}]
    writing.set()
    assert [call.result(_SECONDS) for call in (first, third)] == [[{"group": 0}], [{"group": 2}]]


def test_one_thread_has_the_device():
    work = Steps()
    pipeline, calls = begun(work)
    groups = list(range(40))
    assert list(calls.map(lambda group: pipeline([group]), groups)) == [[{"group": group}] for group in groups]
    assert (work.most_embedding, len(work.threads)) == (1, 1)
    assert sorted(work.done) == sorted((phase, group) for phase in ("read", "embed", "write") for group in groups)


@pytest.mark.parametrize("phase", ["read", "embed", "write"])
def test_what_fails_fails_its_own_group(phase):
    work = Steps()
    work.fails = {(phase, 1)}
    pipeline, calls = begun(work)
    done = [calls.submit(pipeline, [group]) for group in range(4)]
    with pytest.raises(ValueError, match=f"{phase} 1"):
        done[1].result(_SECONDS)
    assert [done[group].result(_SECONDS) for group in (0, 2, 3)] == [[{"group": group}] for group in (0, 2, 3)]


def test_what_was_written_before_is_only_read():
    work = Steps()
    work.there = {5}
    pipeline, _ = begun(work)
    assert pipeline([5]) == [{"there": 5}]
    assert work.done == [("read", 5)]


def test_a_work_without_phases_has_the_device_alone():
    threads = []

    def work(annotator: Any, shards: list[int]) -> list[dict[str, Any]]:
        threads.append(threading.get_ident())
        return [{"shards": len(shards)}]

    pipeline, calls = begun(work)
    assert list(calls.map(lambda group: pipeline([group]), range(9))) == [[{"shards": 1}]] * 9
    assert len(set(threads)) == 1


SECTIONS = [{"k": 2}, {"clustering": "kmeans"}]


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_what_is_embedded_at_once_and_together_changes_no_cluster(passes, tmp_path, monkeypatch, section):
    store = small_store(tmp_path / "store")
    kind = Annotate.model_validate(section)
    one = passes.annotate(store, tmp_path / "one", kind)
    monkeypatch.setattr(documents, "_SENTENCES_TOGETHER", 10_000)
    monkeypatch.setattr(annotator, "SENTENCES_AT_ONCE", 20)
    monkeypatch.setattr(kmeans, "SENTENCES_AT_ONCE", 20)
    two = passes.annotate(store, tmp_path / "two", kind)
    assert written_clusters(store, tmp_path / "two") == written_clusters(store, tmp_path / "one")
    assert two["padded_tokens"] != one["padded_tokens"], "nothing was dealt otherwise"
    assert two["pairs"] == one["pairs"]


def test_actors_and_seeds_change_nothing(passes, tmp_path):
    store = small_store(tmp_path / "store")
    one = passes.annotate(store, tmp_path / "one", Annotate(k=2))
    for workers in (2, 3):
        assert passes.annotate(store, tmp_path / str(workers), Annotate(k=2), workers=workers, seed=workers) == one
        assert pieces(tmp_path / str(workers)) == pieces(tmp_path / "one")


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_pieces_are_those_of_groups_done_one_by_one(passes, tmp_path, section):
    store = small_store(tmp_path / "store")
    kind = Annotate.model_validate(section)
    one = passes.annotate(store, tmp_path / "one", kind)
    passes.groups_at_once = GROUPS_AT_ONCE
    assert passes.annotate(store, tmp_path / "many", kind) == one
    assert pieces(tmp_path / "many") == pieces(tmp_path / "one")
