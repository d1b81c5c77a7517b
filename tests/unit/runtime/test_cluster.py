"""Where workers are put, on clusters that are made up."""

import json
import os
import socket
import threading

import pytest

from infocse_ray.errors import NoSpace, WorkersLost
from infocse_ray.runtime import cluster
from infocse_ray.runtime import placement as places
from infocse_ray.runtime.cluster import placement
from infocse_ray.runtime.placement import Nodes, Placement, possible_nodes, room
from infocse_ray.settings import Annotate, Train


@pytest.fixture(autouse=True)
def no_autoscaler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "autoscaler_config", lambda: None)


def on(monkeypatch: pytest.MonkeyPatch, *nodes: tuple[int, int], labels: dict[str, str] | None = None) -> None:
    """A cluster of nodes with so many CPU cores and GPUs."""
    alive = [{"Alive": True, "Resources": {"CPU": float(c), "GPU": float(g)}, "Labels": labels or {}} for c, g in nodes]
    dead = {"Alive": False, "Resources": {"CPU": 99.0, "GPU": 9.0}}
    monkeypatch.setattr(places.ray, "nodes", lambda: [*alive, dead])


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


def test_elastic_workers_fit_as_many_as_there_are_places_for(monkeypatch):
    on(monkeypatch, (4, 0), (4, 0))
    assert placement(Train(num_workers=[1, 2])) == Placement(2, False, 4, 1)
    # More may come; those that fit now have all cores.
    assert placement(Train(num_workers=[2, 99])) == Placement(99, False, 1, 2)
    on(monkeypatch, (16, 2), (16, 2))
    assert placement(Train(num_workers=[2, 4])) == Placement(4, True, 8, 2)
    assert placement(Train(num_workers=[2, 99])) == Placement(99, True, 8, 2)
    with pytest.raises(ValueError, match=r"train\.num_workers = \[5, 8\]: the cluster has 4 GPUs; ask for at most 4"):
        placement(Train(num_workers=[5, 8]))


def test_what_the_autoscaler_may_start_counts_as_there(monkeypatch):
    on(monkeypatch, (0, 0))
    config = {
        "max_workers": 6,
        "head_node_type": "head",
        "available_node_types": {
            "head": {"resources": {"CPU": 0}},
            "cpu": {"resources": {"CPU": 16}, "max_workers": 5},
            "gpu": {"resources": {"CPU": 32, "GPU": 4}, "min_workers": 0, "max_workers": 2},
        },
    }
    monkeypatch.setattr(places, "autoscaler_config", lambda: config)
    # GPU nodes first, and no more than may be at once.
    assert possible_nodes() == Nodes([0, 32, 32, 16, 16, 16, 16], [0, 4, 4, 0, 0, 0, 0])
    assert placement(Annotate()) == placement(Train()) == Placement(8, True, 8)
    with pytest.raises(ValueError, match=r"train\.num_workers = 9: the cluster has 8 GPUs"):
        placement(Train(num_workers=9))


def test_an_autoscaler_that_does_not_say_what_nodes_have_hides_none(monkeypatch):
    on(monkeypatch, (8, 1), (8, 1))
    config = {"max_workers": 4, "head_node_type": "node", "available_node_types": {"node": {"resources": {}}}}
    monkeypatch.setattr(places, "autoscaler_config", lambda: config)
    assert possible_nodes() == Nodes([8, 8], [1, 1], grows=True)


def test_a_launched_cluster_whose_limits_are_not_known_is_not_refused(monkeypatch):
    on(monkeypatch, (4, 0), labels={"ray.io/node-group": "head"})
    assert placement(Train(num_workers=8, use_gpu=True)) == Placement(8, True, 1)
    assert placement(Train(num_workers=[2, 8], use_gpu=True)) == Placement(8, True, 1, 2)
    with pytest.raises(
        ValueError, match=r"train\.num_workers = auto: the cluster has no GPU yet, .* give their number"
    ):
        placement(Train(use_gpu=True))
    assert placement(Train()) == Placement(1, False, 4)


def test_room_is_counted_node_by_node():
    nodes = Nodes([4, 3, 0], [1, 0, 2])
    assert [room(nodes, Placement(1, gpu, cores)) for gpu, cores in ((False, 1), (False, 2), (True, 1))] == [7, 3, 1]


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


@pytest.fixture
def door(monkeypatch):
    """A socket that answers at RAY_ADDRESS, until it is closed."""
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{listening.getsockname()[1]}")
        yield listening


@pytest.mark.usefixtures("door")
def test_a_ray_that_refuses_is_named(monkeypatch):
    def refuse(**_: object) -> None:
        raise ConnectionError("no one there\nand more")

    monkeypatch.setattr(cluster.ray, "init", refuse)
    with pytest.raises(
        ValueError, match=r"RAY_ADDRESS = '127\.0\.0\.1:\d+': can't join that Ray \(no one there\); start"
    ):
        cluster.connect()


@pytest.mark.usefixtures("door")
def test_a_ray_of_another_version_is_told_in_a_line(monkeypatch):
    def unlike(**_: object) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: 3.12.1\n")

    monkeypatch.setattr(cluster.ray, "init", unlike)
    with pytest.raises(ValueError, match=r"RAY_ADDRESS = .*Ray: 2\.60\.0 Python: 3\.12\.1\); run this with the Python"):
        cluster.connect()


@pytest.mark.parametrize("gone", [True, False], ids=["refused", "timed out"])
def test_a_ray_that_is_gone_is_not_waited_for(monkeypatch, door, gone):
    def late(*_: object, **__: object) -> None:
        raise TimeoutError("not refused, but timed out")

    if gone:
        door.close()
    else:
        monkeypatch.setattr(cluster.socket, "create_connection", late)
    monkeypatch.setattr(cluster.ray, "init", lambda **_: pytest.fail("Ray tries for minutes"))
    with pytest.raises(ValueError, match=r"RAY_ADDRESS = '127.*can't join that Ray \(.*refused.*\); start"):
        cluster.connect()


def test_the_dashboards_port_is_not_waited_at(monkeypatch, door):
    def refuse() -> None:
        visitor, _ = door.accept()
        with visitor:
            visitor.recv(100)
            visitor.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    monkeypatch.setattr(cluster.ray, "init", lambda **_: pytest.fail("Ray tries for minutes"))
    dashboard = threading.Thread(target=refuse)
    dashboard.start()
    with pytest.raises(ValueError, match=r"RAY_ADDRESS = '127.*can't join that Ray \(a web server answers there"):
        cluster.connect()
    dashboard.join()


def test_a_ray_that_finds_no_room_for_its_files_is_not_one_that_is_overloaded(monkeypatch):
    def fail(**_: object) -> None:
        raise Exception("The current node timed out during startup, or the GCS has become overloaded.")

    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", fail)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setattr(cluster, "free_bytes", lambda _: 4096)
    with pytest.raises(
        NoSpace, match=r"^/.*/ray: no space left for what Ray keeps .* 4,096 bytes are free; .*RAY_TMPDIR"
    ):
        cluster.connect()
    monkeypatch.setattr(cluster, "free_bytes", lambda _: 2**30)
    with pytest.raises(WorkersLost, match=r"^Ray didn't start .*; run less beside, then the same command goes on$"):
        cluster.connect()


@pytest.mark.parametrize("address", ["10.0.0.1", "http://127.0.0.1:8265", ":6379"])
def test_what_ray_does_not_take_for_an_address_is_named_with_its_variable(monkeypatch, address):
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(
        ValueError, match=rf"^RAY_ADDRESS = '{address}': is no address of a Ray; give the head's as host"
    ):
        cluster.connect()


def test_workers_wait_without_spinning_unless_the_user_wants_it(monkeypatch):
    asked = []
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", lambda **how: asked.append(how["runtime_env"]["env_vars"]))
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    cluster.connect()
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    cluster.connect()
    assert [variables["OMP_WAIT_POLICY"] for variables in asked] == ["PASSIVE", "ACTIVE"]
    assert all(int(variables["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) > 0 for variables in asked)


def test_what_a_job_has_in_its_own_environment_is_not_given_twice(monkeypatch):
    """Ray refuses that, and prints all of the job's environment."""
    asked = []
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", lambda **how: asked.append(how["runtime_env"]))
    monkeypatch.setenv("RAY_ADDRESS", "local")
    of_job = {"env_vars": {"LRU_CACHE_CAPACITY": "128", "HF_HOME": "/hub"}, "worker_process_setup_hook": "mine.setup"}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": of_job}))
    cluster.connect()
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps({"runtime_env": {"working_dir": "gcs://a.zip"}}))
    cluster.connect()
    assert [set(one["env_vars"]) for one in asked] == [
        {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "OMP_WAIT_POLICY"},
        {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "OMP_WAIT_POLICY", "LRU_CACHE_CAPACITY"},
    ]
    assert ["worker_process_setup_hook" in one for one in asked] == [False, True]


@pytest.mark.parametrize(
    ("own", "counted", "expected"),
    [
        (range(3), 8, '{"CPU": 3}'),
        (range(8), 8, None),
        (range(8), 2, None),  # a container's quota of more cores
    ],
)
def test_a_ray_of_ones_own_has_the_cores_that_one_may_use(monkeypatch, own, counted, expected):
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", lambda **_: None)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(own), raising=False)
    monkeypatch.setattr(cluster, "get_num_cpus", lambda **_: counted)
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", "")
    monkeypatch.delenv("RAY_OVERRIDE_RESOURCES")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    cluster.connect()
    assert os.environ.get("RAY_OVERRIDE_RESOURCES") == expected
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 1}')
    cluster.connect()
    assert os.environ["RAY_OVERRIDE_RESOURCES"] == '{"CPU": 1}'


@pytest.mark.parametrize("address", ["auto", "local", ""])
def test_what_is_no_host_and_port_is_left_to_ray(monkeypatch, address):
    asked = []
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", lambda **_: asked.append(address))
    monkeypatch.setattr(cluster.socket, "create_connection", lambda *_, **__: pytest.fail("knocked"))
    monkeypatch.setenv("RAY_ADDRESS", address)
    cluster.connect()
    assert asked == [address]


def test_ray_client_is_refused_before_it_fails_on_what_it_cannot_send(monkeypatch):
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", lambda **_: pytest.fail("joined"))
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(
        ValueError, match=r"RAY_ADDRESS = 'ray://head:10001': is that of Ray Client, .* `ray job submit`"
    ):
        cluster.connect()
