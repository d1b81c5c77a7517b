"""A lost head: the driver says so before Ray ends it, for Ray does that without a word.

Once the head (its `gcs_server`) hasn't answered for a minute, Ray's core ends the process there and then, with status
1: no exception is raised, no handler runs. Its own line about that is among those that `cluster.connect` mutes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

import ray
from ray._private.worker import global_worker
from tqdm import tqdm

from infocse_ray.runtime.progress import say

_RAY_WAITS = "RAY_gcs_rpc_server_reconnect_timeout_s"
_RAY_WAITS_SECONDS = 60.0
_LOOKS = 12
"""In the time that Ray waits."""
_TOLD_AT = 10
"""So many looks without an answer, one after the other, are no head that is slow, or is being started again."""


def watch_head(address: str, knock: Callable[[str], None]) -> None:
    """As long as this process has joined it, say once that the head is lost, shortly before Ray ends this process.

    Args:
        address: of the head that this process has joined, as host:port.
        knock: raises ConnectionError where none answers.
    """
    seconds = float(os.environ.get(_RAY_WAITS) or _RAY_WAITS_SECONDS) / _LOOKS
    threading.Thread(target=_watch, args=(address, knock, seconds), daemon=True, name="head").start()


def _watch(address: str, knock: Callable[[str], None], seconds: float) -> None:
    joined, unanswered = global_worker.node, 0
    # Who shuts Ray down may start another, within one look.
    while ray.is_initialized() and global_worker.node is joined:
        try:
            knock(address)
            if unanswered >= _TOLD_AT:
                say(f"  Ray's head at {address} answers again")
            unanswered = 0
        except ConnectionError as error:
            unanswered += 1
            if unanswered == _TOLD_AT and ray.is_initialized():
                line = (
                    f"infocse: error: Ray's head at {address} doesn't answer any more ({error}); unless it does again, "
                    "Ray ends this process in a moment; what is finished is kept, and the same command goes on once a "
                    "Ray is there"
                )
                tqdm.write(line, file=sys.stderr)
                sys.stderr.flush()
        time.sleep(seconds)
