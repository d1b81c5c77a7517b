"""What workers of a process group exchange; all of it does nothing where there is only one.

The all-gather lets gradients through: its backward sums what every worker sends back to the owner of a row.
"""

from __future__ import annotations

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


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, counts: list[int]) -> torch.Tensor:  # pyright: ignore
        ctx.counts = counts
        return gather_rows(local, counts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # pyright: ignore
        # Each worker's loss uses every row, so a row's gradient is the sum over workers, not the local part.
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        start = sum(ctx.counts[: rank()])
        return gradient[start : start + ctx.counts[rank()]], None


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


def gather(local: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """`gather_rows` whose backward gives each row the sum of the gradients that all workers have for it."""
    if workers() == 1:
        return local
    result = _Gather.apply(local, counts)
    assert isinstance(result, torch.Tensor)
    return result


def all_reduce_sum(values: torch.Tensor) -> torch.Tensor:
    """The sum over workers, elementwise."""
    if workers() > 1:
        dist.all_reduce(values)
    return values


def all_reduce_max(value: int, device: torch.device) -> int:
    """The largest value any worker has."""
    if workers() == 1:
        return value
    largest = torch.tensor(value, device=device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return int(largest)


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
    if workers() == 1:
        return [len(local)]
    counts = torch.zeros(workers(), dtype=torch.int64, device=local.device)
    counts[rank()] = len(local)
    return all_reduce_sum(counts).tolist()


def each_worker(local: torch.Tensor, counts: list[int]) -> Iterator[torch.Tensor]:
    """The rows of one worker after the other, so that only one worker's are here at a time."""
    for source, count in enumerate(counts):
        rows = local.contiguous() if source == rank() else local.new_empty((count, *local.shape[1:]))
        if workers() > 1:
            dist.broadcast(rows, src=source)
        yield rows
