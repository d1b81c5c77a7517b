"""Connect to Ray, and settle how many workers a stage gets."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import ray
from ray._common.utils import get_default_ray_temp_dir
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
from ray._private.utils import get_num_cpus
from ray.data import DataContext
from ray.exceptions import AuthenticationError

from infocse_ray.errors import NoSpace, WorkersLost
from infocse_ray.runtime.head import watch_head
from infocse_ray.runtime.interrupts import ray_starting
from infocse_ray.runtime.placement import Placement, possible_nodes
from infocse_ray.settings import Annotate, Train
from infocse_ray.storage.errors import AS_GOOD_AS_NONE, free_bytes

if TYPE_CHECKING:
    import torch

_KNOCK_SECONDS = 10.0
_ANSWER_SECONDS = 1.0
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
"""Of HTTP/2, in which gRPC speaks, with its first frame: an older web server answers in its own words."""
_OF_WORKERS = {
    # On CPUs a compiled kernel is kept for every shape of batch; without a bound their memory grows for hours.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "LRU_CACHE_CAPACITY": "64",
    # A thread that waits for the others leaves its core to whoever has work. By default it spins; where anything else
    # runs on the machine, the others then wait for it (docs/measurements.md).
    "OMP_WAIT_POLICY": "PASSIVE",
}
"""Variables of the workers' environment, unless the driver's has others."""


def connect() -> None:
    """Join the cluster that RAY_ADDRESS or `ray start` on this machine names, or start a local one.

    Raises:
        ValueError: the cluster doesn't answer, or refuses.
        NoSpace: a Ray of one's own found no room for its files.
        WorkersLost: one's own didn't start in the time that Ray gives it.
    """
    if ray.is_initialized():
        return
    for name, value in _OF_WORKERS.items():
        os.environ.setdefault(name, value)
    # Workers keep the job's directory, so that relative paths mean the same everywhere.
    os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
    os.environ.setdefault("RAY_TRAIN_ENABLE_NCCL_HANG_DETECTOR", "1")
    # How often a training's workers are looked at: by default it ends, and a checkpoint counts, up to 2 s late.
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    _leave_to_others()
    # Ray's core reports on its own internals as errors; what concerns the run arrives as an exception.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    address = os.environ.get("RAY_ADDRESS", "")
    if address.startswith("ray://"):
        raise ValueError(
            f"RAY_ADDRESS = {address!r}: is that of Ray Client, through which no run can be led; submit it with "
            "`ray job submit`, or start it on a node of the cluster with RAY_ADDRESS=auto"
        )
    try:
        _knock(address)
        with ray_starting(), _native_stderr_muted():
            ray.init(
                logging_level=logging.ERROR,
                log_to_driver=False,
                runtime_env=_environment(),
            )
    except (ConnectionError, AuthenticationError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"RAY_ADDRESS = {address!r}: can't join that Ray ({reason}); start it with "
            "`ray start --head`, set RAY_AUTH_MODE and the token as it has them, or unset RAY_ADDRESS"
        ) from error
    except Exception as error:
        if "Version mismatch" in str(error):
            raise ValueError(
                f"RAY_ADDRESS = {address!r}: can't join that Ray ({' '.join(str(error).split())}); run this with the "
                "Python and the Ray that the cluster was started with, or install these there (constraints.txt)"
            ) from error
        if isinstance(error, ValueError) and any(word in str(error) for word in ("address", "Malformed host")):
            raise ValueError(
                f"RAY_ADDRESS = {address!r}: is no address of a Ray; give the head's as host:port, 10.0.0.1:6379 say, "
                "or auto on a node of the cluster, or unset it"
            ) from error
        _refuse_without_room(error)
        if "timed out during startup" in str(error):
            raise WorkersLost(
                "Ray didn't start on this machine in the time that it gives itself: too much else runs here, or a part "
                f"of it ended, of which {get_default_ray_temp_dir()}/session_latest/logs may tell; run less beside, "
                "then the same command goes on"
            ) from error
        raise
    if ray.is_initialized():
        watch_head(ray.get_runtime_context().gcs_address, _knock)


def _refuse_without_room(error: Exception) -> None:
    """Say it where a Ray that was to start here found no room for its own files: its own words are of other causes.

    Raises:
        NoSpace: so it is.
    """
    folder = get_default_ray_temp_dir()
    if (free := free_bytes(folder)) is not None and free < AS_GOOD_AS_NONE:
        raise NoSpace(
            f"{folder}: no space left for what Ray keeps on this machine: {free:,} bytes are free; make room, or set "
            "RAY_TMPDIR to a folder that has some, then the same command goes on"
        ) from error


def _leave_to_others() -> None:
    """Have a Ray that is started here count the cores that this process may run on, as Slurm, taskset or systemd say.

    It counts the machine's, or a container's share of them; each would get a worker.
    """
    counted = get_num_cpus(override_docker_cpu_warning=True)
    if hasattr(os, "sched_getaffinity") and (own := len(os.sched_getaffinity(0))) < counted:
        os.environ.setdefault("RAY_OVERRIDE_RESOURCES", json.dumps({"CPU": own}))


def _environment() -> dict[str, Any]:
    """What workers get, but for what the job has in its own environment: Ray takes nothing that is in both.

    `ray job submit` gives a job one by `--runtime-env-json`; its variables are the driver's, too, so they win.
    """
    job = json.loads(os.environ.get(RAY_JOB_CONFIG_JSON_ENV_VAR, "{}")).get("runtime_env") or {}
    variables = {name: os.environ[name] for name in _OF_WORKERS if name not in job.get("env_vars", {})}
    environment = {"env_vars": variables, "worker_process_setup_hook": _address_teller()}
    return {name: value for name, value in environment.items() if name == "env_vars" or name not in job}


def _address_teller() -> Callable[[], None]:
    """What tells every worker process which Ray is its own, as RAY_ADDRESS.

    Where a second Ray runs on the machine, Ray Train's guard of a training may otherwise ask that one for its
    controller, which has none such, take it for dead, and end the training's workers.
    """

    # A function inside a function travels whole: workers needn't import this module before their work.
    def tell() -> None:
        import os

        import ray

        os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address

    return tell


def _knock(address: str) -> None:
    """Find out within seconds that no Ray is at an address `host:port`; Ray tries for minutes, without a word.

    Raises:
        ConnectionError: none is.
    """
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdigit():
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS) as door:
                answer = _answer(door)
        except OSError as error:  # names that lead nowhere and time-outs are no ConnectionError
            raise ConnectionError(str(error)) from error
        if answer.startswith(b"HTTP/"):
            raise ConnectionError(
                "a web server answers there, as Ray's dashboard is one; the head's own port is another, 6379 by default"
            )


def _answer(door: socket.socket) -> bytes:
    """How what is at the other end begins to answer the greeting of gRPC; nothing where it takes long."""
    door.settimeout(_ANSWER_SECONDS)
    with contextlib.suppress(OSError):
        door.sendall(_GREETING)
        return door.recv(5)
    return b""


@contextlib.contextmanager
def _native_stderr_muted() -> Iterator[None]:
    """Mute what the core itself writes on starting: that its log level was set."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def quiet_data() -> None:
    """Ray Data shows no bars and logs of its own; the stages show theirs, and what fails raises an exception."""
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)


def placement(section: Annotate | Train, at_once: int = 1) -> Placement:
    """Settle `num_workers` and `use_gpu` on the cluster as it is, or as its autoscaler may make it.

    Args:
        section: of the stage.
        at_once: how many runs share the cluster; `auto` is one's share, and so are cores.

    Raises:
        ValueError: GPUs are asked for and the cluster has none, or more workers than it has cores or GPUs.
    """
    where = type(section).__name__.lower()
    nodes = possible_nodes()
    cpus, gpus = nodes.cpus, nodes.gpus
    use_gpu = sum(gpus) > 0 if section.use_gpu == "auto" else section.use_gpu
    if use_gpu and not sum(gpus):
        if not nodes.grows:
            raise ValueError(f"{where}.use_gpu = true: the cluster has no GPU; set it to false or auto")
        if section.num_workers == "auto":
            raise ValueError(
                f"{where}.num_workers = auto: the cluster has no GPU yet, and how many it may have is known on its "
                "head node only; give their number"
            )
    most = sum(gpus) if use_gpu else sum(cpus)
    fewest, workers = section.num_workers if isinstance(section.num_workers, list) else (None, section.num_workers)
    if workers == "auto":
        workers = max(1, most // at_once) if use_gpu or isinstance(section, Annotate) else 1
    if (needed := fewest or workers) > most and not nodes.grows:
        raise ValueError(
            f"{where}.num_workers = {section.num_workers}: the cluster has {most} "
            f"{'GPUs' if use_gpu else 'CPU cores'}; ask for at most {most}"
        )
    # Workers that only may come must fit where the others do.
    cores = _cores(max(needed, min(workers, most)) * at_once, cpus, gpus if use_gpu else cpus)
    return Placement(workers, use_gpu, cores, fewest)


def _cores(workers: int, cpus: list[int], places: list[int]) -> int:
    """The most cores a worker that still let all be placed whole: on a node, one a GPU (or a core) at most."""
    for cores in range(max(cpus, default=1), 1, -1):
        if sum(min(cpu // cores, place) for cpu, place in zip(cpus, places, strict=True)) >= workers:
            return cores
    return 1


def assigned_cores() -> int:
    """CPU cores this task or actor was given; Ray sets OMP_NUM_THREADS to 1 whatever it gives."""
    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))


def worker_device() -> torch.device:
    """The GPU this worker was given, or the CPU."""
    # Imported here: reading and tokenising, which need no torch, would wait seconds for it in every worker.
    import torch

    given = [str(gpu) for gpu in ray.get_gpu_ids()]
    if not given:
        return torch.device("cpu")
    # Ray Train lets each worker see the GPUs of all workers on its node, in the order of this variable.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return torch.device("cuda", visible.index(given[0]) if given[0] in visible else 0)
