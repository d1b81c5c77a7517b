"""Waiting for places, on clusters that are made up."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from infocse_ray.runtime import placement as places
from infocse_ray.runtime.placement import Nodes, Placement, autoscaler_config, await_places, watched


class Group:
    """A placement group that is ready at the nth look."""

    def __init__(self, looks: int) -> None:
        self.looks, self.removed = looks, False
        self.bundles: list[dict[str, float]] = []

    def wait(self, _: int) -> bool:
        self.looks -= 1
        return self.looks < 0


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    made = Group(looks=3)

    def make(bundles: list[dict[str, float]]) -> Group:
        made.bundles = bundles
        return made

    monkeypatch.setattr(places, "placement_group", make)
    monkeypatch.setattr(places, "remove_placement_group", lambda one: setattr(one, "removed", True))
    monkeypatch.setattr(places.ray, "cluster_resources", lambda: {"CPU": 16.0})
    monkeypatch.setattr(places.ray, "available_resources", lambda: {"CPU": 12.0})
    for seconds in ("_SAY_FIRST_SECONDS", "_SAY_SECONDS", "_LOOK_SECONDS"):
        monkeypatch.setattr(places, seconds, 0.0)
    return made


def test_it_says_what_it_waits_for(group: Group, capsys: pytest.CaptureFixture[str]):
    await_places(Placement(4, True, 8), "iteration 1: training")
    assert group.bundles == [{"CPU": 8.0, "GPU": 1.0}] * 4
    line = (
        "  iteration 1: training waits for 4 workers of 8 CPU and 1 GPU: the cluster has 16 CPU and 0 GPU, free are "
        "12 CPU and 0 GPU"
    )
    assert capsys.readouterr().out.splitlines() == [line] * 3
    assert group.removed


def test_a_task_that_leads_a_run_is_told_that_it_has_what_is_waited_for(
    group: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    context = SimpleNamespace(get_assigned_resources=lambda: {"CPU": 2.0, "memory": 1e9})
    monkeypatch.setattr(places, "global_worker", SimpleNamespace(mode=places.ray.WORKER_MODE))
    monkeypatch.setattr(places.ray, "get_runtime_context", lambda: context)
    await_places(Placement(4, False, 4), "training")
    said = "free are 12 CPU and 0 GPU; 2 CPU of the others has the Ray task, or actor, that leads this run: start it "
    assert f"{said}with num_cpus=0" in capsys.readouterr().out


def test_a_long_wait_is_warned_of_once(
    group: Group, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(places, "_WARN_SECONDS", 0.0)
    await_places(Placement(4, False, 2), "training")
    said = capsys.readouterr().out.splitlines()
    assert [line.startswith("warning: after 0 s training waits for 4 workers") for line in said] == [True, False, False]


def test_elastic_workers_wait_for_the_fewest(group: Group, capsys: pytest.CaptureFixture[str]):
    group.looks = 0
    await_places(Placement(4, False, 2, 1), "training")
    assert group.bundles == [{"CPU": 2.0}]
    await_places(Placement(4, False, 2), "annotating", 1)
    assert group.bundles == [{"CPU": 2.0}]
    assert not capsys.readouterr().out, "nothing was waited for"


def test_places_are_given_back_where_the_wait_is_stopped(group: Group, monkeypatch: pytest.MonkeyPatch):
    def stop(_: int) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(group, "wait", stop)
    with pytest.raises(KeyboardInterrupt):
        await_places(Placement(1, False, 1), "training")
    assert group.removed


@pytest.mark.parametrize(
    ("there", "fewest", "short"),
    [
        ([[4, 4]] * 4, 2, False),
        ([[4]] * 4, 2, True),
        ([[4]] * 4, 1, False),
        # A node that is seen no more in a single look may only be late.
        ([[4, 4], [4], [4, 4], [4]], 2, False),
    ],
    ids=["all there", "too few", "enough", "one look"],
)
@pytest.mark.usefixtures("group")
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_stage_whose_nodes_died_says_so(
    monkeypatch: pytest.MonkeyPatch, there: list[list[int]], fewest: int, short: bool
):
    said, seen, looks = [], threading.Event(), iter(there)

    def nodes() -> Nodes:
        if (look := next(looks, None)) is None:
            seen.set()
            raise ConnectionError("the cluster is gone")  # the watch ends, without a word
        return Nodes(look, [0] * len(look))

    monkeypatch.setattr(places, "nodes_there", nodes)
    monkeypatch.setattr(places, "say", said.append)
    monkeypatch.setattr(places, "_LOOK_SECONDS", 0.001)
    with watched(Placement(2, False, 4), "training", fewest):
        assert seen.wait(30)
    assert bool(said) == short
    if short:
        assert said[0].startswith(
            "  training goes on when there is room for 2 workers of 4 CPU: the cluster has 16 CPU"
        )


def test_the_autoscaler_of_this_cluster_tells_what_there_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = []
    for port in (1, 2):
        files.append(tmp_path / f"{port}.yaml")
        files[-1].write_text(json.dumps({"max_workers": port}))
    monitors = [
        subprocess.Popen(
            [sys.executable, "-c", "input()", f"--gcs-address=h:{port}", f"--autoscaling-config={file}"],
            stdin=subprocess.PIPE,
        )
        for port, file in zip((1, 2), files, strict=True)
    ]
    try:
        for monitor, file in zip(monitors, files, strict=True):  # arguments come a moment later
            while str(file) not in Path(f"/proc/{monitor.pid}/cmdline").read_text():
                assert monitor.poll() is None
        for port, expected in ((1, {"max_workers": 1}), (2, {"max_workers": 2}), (3, None)):
            context = SimpleNamespace(gcs_address=f"h:{port}")
            monkeypatch.setattr(places.ray, "get_runtime_context", lambda context=context: context)
            assert autoscaler_config() == expected
    finally:
        for monitor in monitors:
            monitor.kill()
            monitor.wait()
