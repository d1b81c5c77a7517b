"""Actors, training workers, nodes and the whole cluster die: the run goes on, to the result of the undisturbed one."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster

from infocse_ray.train.checkpoints import RAYS_RECORD
from tests.faults.clusters import ACTOR, ALONE, TRAINER, cluster, frozen, kill, processes
from tests.faults.drivers import checkpoints, finish, metrics_of, start, wait_until, weights_of


def counts_of(run: Path) -> dict[str, Any]:
    """What the annotations of a run count, whatever it took."""
    return {k: v for k, v in metrics_of(run)["iterations"][1]["annotations"].items() if k != "seconds"}


@pytest.mark.slow
def test_a_killed_embedding_actor_and_a_killed_training_worker_change_nothing(
    corpus: Path, undisturbed: Path, tiny_encoder: Path
) -> None:
    driver = start(corpus, "workers", tiny_encoder, annotate__num_workers="1")
    run = corpus / "workers" / "workers"
    annotations, training = run / "iteration_1" / "annotations", run / "iteration_1" / "train"

    whitened = run / "iteration_0" / "whitening" / "stage.json"
    wait_until(driver, whitened.exists)  # by a task of its own
    since = whitened.stat().st_mtime

    def annotating() -> list[psutil.Process]:
        return [one for one in processes(ACTOR, driver.pid) if one.create_time() > since]

    wait_until(driver, annotating)
    [actor] = annotating()
    wait_until(driver, lambda: any(annotations.glob("shard-*.parquet")))
    with frozen([actor]):
        assert 0 < len(list(annotations.glob("shard-*.parquet"))) < 16, "in the midst of a batch"
        kill(actor)
    wait_until(driver, lambda: bool(checkpoints(training)))
    [worker] = processes(ALONE, driver.pid)
    kill(worker)
    # Ray Train's worker goes on for it, and another one for that.
    wait_until(driver, lambda: (training / "checkpoints" / RAYS_RECORD).exists())
    [worker] = processes(TRAINER, driver.pid)
    kill(worker)
    finish(driver)

    assert counts_of(run) == counts_of(undisturbed)
    for shard in (undisturbed / "iteration_1" / "annotations").glob("shard-*.parquet"):
        assert (annotations / shard.name).read_bytes() == shard.read_bytes()
    found, expected = (metrics_of(r)["iterations"][1] for r in (run, undisturbed))
    first, second = found["train"]["resumed_at"]
    assert first in (30, 60)
    assert first < second <= 90
    assert found["history"] == expected["history"]
    assert weights_of(run) == weights_of(undisturbed)


@pytest.fixture
def no_dropout(tiny_encoder: Path, tmp_path: Path) -> Path:
    """The tiny encoder without dropout, whose noise depends on the number of workers."""
    folder = shutil.copytree(tiny_encoder, tmp_path / "encoder")
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def lose(nodes: Cluster, worker: psutil.Process) -> None:
    """The node of a worker dies, with all that it has."""
    [node] = [node for node in nodes.worker_nodes if node.all_processes["raylet"][0].process.pid == worker.ppid()]
    nodes.remove_node(node, allow_graceful=False)


@pytest.mark.slow
def test_a_dead_node_leaves_the_work_to_those_left_with_the_same_batches(corpus: Path, no_dropout: Path) -> None:
    elastic = {"train__num_workers": "[1, 2]", "annotate__num_workers": "4"}
    with cluster(nodes=2, cpus=2) as nodes:
        finish(start(corpus, "two-nodes", no_dropout, address=str(nodes.address), **elastic))

        driver = start(corpus, "lost-nodes", no_dropout, address=str(nodes.address), **elastic)
        run = corpus / "lost-nodes" / "lost-nodes"
        annotations, training = run / "iteration_1" / "annotations", run / "iteration_1" / "train"
        wait_until(driver, lambda: any(annotations.glob("shard-*.parquet")))
        actors = processes(ACTOR)
        with frozen(actors):
            assert len(list(annotations.glob("shard-*.parquet"))) < 16
            lose(nodes, actors[0])
        nodes.add_node(num_cpus=2)
        wait_until(driver, lambda: bool(checkpoints(training)))
        first, _ = processes(TRAINER)
        lose(nodes, first)
        finish(driver)

    whole = corpus / "two-nodes" / "two-nodes"
    assert counts_of(run) == counts_of(whole)
    found, expected = (metrics_of(r)["iterations"][1] for r in (run, whole))
    assert len(found["train"]["resumed_at"]) == 1
    assert [entry["step"] for entry in found["history"]] == [0, 30, 60, 90, 120]
    # As many tokens at each: of the same batches. Sums over one worker's rows and over two round differently.
    tokens, losses = (
        [[entry[key] for entry in one["history"][1:]] for one in (found, expected)] for key in ("tokens_done", "loss")
    )
    assert tokens[0] == tokens[1]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.slow
def test_a_dead_cluster_started_again_goes_on_from_storage(corpus: Path, undisturbed: Path, tiny_encoder: Path) -> None:
    run = corpus / "restarted" / "restarted"
    # As many cores as the undisturbed run's own Ray found, as the number of threads is part of how sums are rounded.
    cores = os.cpu_count() or 1
    with cluster(nodes=1, cpus=cores) as nodes:
        driver = start(corpus, "restarted", tiny_encoder, address=str(nodes.address))
        wait_until(driver, lambda: bool(checkpoints(run / "iteration_1" / "train")))
        for node in [*nodes.worker_nodes, nodes.head_node]:
            nodes.remove_node(node, allow_graceful=False)
        os.kill(driver.pid, signal.SIGKILL)  # `ray job submit` runs it on the head, with which it dies
        driver.wait()
    with cluster(nodes=1, cpus=cores) as nodes:
        finish(start(corpus, "restarted", tiny_encoder, address=str(nodes.address)))
    found, expected = (metrics_of(r)["iterations"][1] for r in (run, undisturbed))
    assert len(found["train"]["resumed_at"]) == 1
    assert found["history"] == expected["history"]
    assert weights_of(run) == weights_of(undisturbed)
