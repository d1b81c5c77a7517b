"""What workers of a process group exchange; all of it does nothing where there is only one.

The all-gather lets gradients through: its backward sums what every worker sends back to the owner of a row. Numbers
that the host wants go from host to host (gloo), beside the device's exchanges, so that no device is waited for.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist


def workers() -> int:
    """Workers of the process group, 1 without one."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """This worker's number."""
    return dist.get_rank() if dist.is_initialized() else 0


_SIOCGIFADDR = 0x8915
"""Asks Linux for an interface's address (netdevice(7))."""


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(  # pyright: ignore
        ctx: Any, counts: list[int], local: torch.Tensor, *beside: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.counts = counts
        # As bytes side by side: one exchange for all.
        parts = [part.contiguous() for part in (local, *beside)]
        packed = gather_rows(torch.cat([part.view(torch.uint8) for part in parts], 1), counts)
        widths = [part.shape[1] * part.element_size() for part in parts]
        split = packed.split(widths, 1)
        found = [one.contiguous().view(part.dtype) for one, part in zip(split, parts, strict=True)]
        ctx.mark_non_differentiable(*found[1:])
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *beside: Any) -> tuple[torch.Tensor | None, ...]:  # pyright: ignore
        # Each worker's loss uses every row, so a row's gradient is the sum over workers, not the local part.
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        start = sum(ctx.counts[: rank()])
        return None, gradient[start : start + ctx.counts[rank()]], *(None for _ in beside)


def gather_rows(local: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """Rows of all workers, by worker, without gradient.

    Args:
        local: [counts[rank], ...] this worker's rows.
        counts: rows of every worker.

    Returns:
        [sum of counts, ...].
    """
    if workers() == 1:
        return local
    # Collectives want equal shapes; workers may differ by a row or so.
    padded = local.new_zeros((max(counts), *local.shape[1:]))
    padded[: len(local)] = local
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


def gather(counts: list[int], local: torch.Tensor, *beside: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Rows of all workers with what is beside them, by worker, in one exchange.

    Args:
        counts: rows of every worker.
        local: float [counts[rank], d]; the backward of what comes of it gives each row the sum of the gradients that
            all workers have for it.
        beside: [counts[rank], m] each, of any type, on every worker as many; without gradient.

    Returns:
        [sum of counts, d] and [sum of counts, m] each.
    """
    if workers() == 1:
        return local, *beside
    return _Gather.apply(counts, local, *beside)  # pyright: ignore[reportReturnType]


def all_reduce_sum(values: torch.Tensor) -> torch.Tensor:
    """The sum over workers, elementwise."""
    if workers() > 1:
        dist.all_reduce(values)
    return values


def exchanged(numbers: list[int]) -> list[list[int]]:
    """The whole numbers of all workers, by worker; every worker has as many."""
    if workers() == 1:
        return [numbers]
    here = torch.tensor(numbers, dtype=torch.int64)
    parts = [torch.empty_like(here) for _ in range(workers())]
    dist.all_gather(parts, here, group=_host_group())
    return [part.tolist() for part in parts]


_hosts: dict[str, Any] = {}
"""The group of host memory, `group`, and the whole group, `whole`, that it was made of."""


def _host_group() -> Any:
    """A group that exchanges host memory: the whole one where it can, one beside it (made once) where it is nccl's."""
    whole = dist.group.WORLD
    if dist.get_backend() == "gloo":
        return whole
    if _hosts.get("whole") is not whole:
        if (name := interface_to(os.environ.get("MASTER_ADDR", ""))) is not None:
            # By itself gloo takes that of the host's name, which may be one that no other host reaches.
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        _hosts.update(whole=whole, group=dist.new_group(backend="gloo"))
    return _hosts["group"]


def interface_to(host: str) -> str | None:
    """The network interface (of Linux) that this machine reaches a host by; None if that can't be told."""
    import fcntl  # not on every system; asked for where there is nccl, which is Linux

    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reached:
        reached.connect((host, 1))  # sends nothing
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found = fcntl.ioctl(reached.fileno(), _SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
                if socket.inet_ntoa(found[20:24]) == reached.getsockname()[0]:
                    return name
    return None


def any_worker(here: bool) -> bool:
    """Whether it is so on any worker."""
    return any(number for (number,) in exchanged([int(here)]))


def all_gather_list(names: list[str]) -> list[str]:
    """The names of all workers, by worker."""
    if workers() == 1:
        return names
    parts: list[list[str]] = [[] for _ in range(workers())]
    dist.all_gather_object(parts, names)
    return [name for part in parts for name in part]


def of_first(values: torch.Tensor) -> torch.Tensor:
    """What worker 0 has; the others give a tensor of the same shape and type."""
    if workers() > 1:
        dist.broadcast(values, src=0)
    return values


def row_counts(local: torch.Tensor) -> list[int]:
    """How many rows each worker has."""
    return [rows for (rows,) in exchanged([len(local)])]


def each_worker(local: torch.Tensor, counts: list[int]) -> Iterator[torch.Tensor]:
    """The rows of one worker after the other, so that only one worker's are here at a time."""
    for source, count in enumerate(counts):
        rows = local.contiguous() if source == rank() else local.new_empty((count, *local.shape[1:]))
        if workers() > 1:
            dist.broadcast(rows, src=source)
        yield rows
