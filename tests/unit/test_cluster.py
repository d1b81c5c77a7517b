"""Where workers are put, on clusters that are made up."""

import pytest

from infocse_ray import cluster
from infocse_ray.cluster import Placement, placement
from infocse_ray.settings import Annotate, Train


def on(monkeypatch: pytest.MonkeyPatch, *nodes: tuple[int, int]) -> None:
    """A cluster of nodes with so many CPU cores and GPUs."""
    alive = [{"Alive": True, "Resources": {"CPU": float(c), "GPU": float(g)}} for c, g in nodes]
    monkeypatch.setattr(
        cluster.ray, "nodes", lambda: [*alive, {"Alive": False, "Resources": {"CPU": 99.0, "GPU": 9.0}}]
    )


@pytest.mark.parametrize(
    ("nodes", "annotate", "train"),
    [
        ([(2, 0)], Placement(2, False, 1), Placement(1, False, 2)),
        ([(16, 0), (8, 0)], Placement(24, False, 1), Placement(1, False, 16)),
        ([(16, 4)], Placement(4, True, 4), Placement(4, True, 4)),
        # The cores of a head without GPUs are of no use to workers that need one each.
        ([(32, 0), (16, 4)], Placement(4, True, 4), Placement(4, True, 4)),
        ([(64, 0), (8, 1), (16, 4)], Placement(5, True, 4), Placement(5, True, 4)),
    ],
)
def test_every_worker_fits_whole_on_a_node(monkeypatch, nodes, annotate, train):
    on(monkeypatch, *nodes)
    assert placement(Annotate()) == annotate
    assert placement(Train()) == train


def test_asking_for_what_is_not_there(monkeypatch):
    on(monkeypatch, (4, 0))
    with pytest.raises(ValueError, match=r"train\.use_gpu = true: the cluster has no GPU"):
        placement(Train(use_gpu=True))
    with pytest.raises(ValueError, match=r"annotate\.num_workers = 5: the cluster has 4 CPU cores"):
        placement(Annotate(num_workers=5))
    on(monkeypatch, (4, 0), (4, 2))
    with pytest.raises(ValueError, match=r"train\.num_workers = 3: the cluster has 2 GPUs"):
        placement(Train(num_workers=3))
    assert placement(Train(num_workers=6, use_gpu=False)) == Placement(6, False, 1)


@pytest.mark.parametrize(
    ("given", "visible", "expected"),
    [
        ([], "", "cpu"),
        ([0], "0", "cuda:0"),
        ([1], "1", "cuda:0"),  # an actor sees its own GPU only
        ([1], "0,1", "cuda:1"),  # a training worker sees those of all workers of its node
        ([3], "2,3", "cuda:1"),
        (["GPU-b"], "GPU-a,GPU-b", "cuda:1"),
    ],
)
def test_every_worker_computes_on_its_own_gpu(monkeypatch, given, visible, expected):
    monkeypatch.setattr(cluster.ray, "get_gpu_ids", lambda: given)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert str(cluster.worker_device()) == expected


def test_a_ray_that_does_not_answer_is_named(monkeypatch):
    def refuse(**_: object) -> None:
        raise ConnectionError("no one there\nand more")

    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", refuse)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    with pytest.raises(
        ValueError, match=r"RAY_ADDRESS = '10\.0\.0\.1:6379': can't join that Ray \(no one there\); start"
    ):
        cluster.connect()
