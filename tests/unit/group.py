"""Worker processes that a test can join to a gloo group; started once, because importing torch takes seconds."""

from __future__ import annotations

import atexit
import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

_started: list[tuple[BaseProcess, Any]] = []


def on_workers(world: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`work(*arguments)` on every worker of a group of `world`; results by rank, without tensors."""
    while len(_started) < world:
        ours, theirs = mp.get_context("spawn").Pipe()
        process = mp.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        _started.append((process, ours))
    with tempfile.TemporaryDirectory() as folder:
        for rank, (_, pipe) in enumerate(_started[:world]):
            pipe.send((work, arguments, rank, world, Path(folder) / "rendezvous"))
        answers = [pipe.recv() for _, pipe in _started[:world]]
    failures = [f"worker {rank}:\n{failure}" for rank, (failure, _) in enumerate(answers) if failure]
    assert not failures, "\n".join(failures)
    return [result for _, result in answers]


def _serve(pipe: Any) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    while (task := pipe.recv()) is not None:
        work, arguments, rank, world, meeting = task
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=timedelta(seconds=20)
        )
        try:
            answer = None, work(*arguments)
        except Exception:
            answer = traceback.format_exc(), None
        finally:
            dist.destroy_process_group()
        pipe.send(answer)


@atexit.register
def _stop() -> None:
    for process, pipe in _started:
        if process.is_alive():
            pipe.send(None)
            process.join()
