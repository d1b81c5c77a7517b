"""Groups of shards on their way through an actor: the next is read and the last written while one is on the device.

1. Several threads each take a group through the phases of the work: read, embed, write.
2. One thread has the device, so groups are embedded one after another, whoever read them.
3. As many groups are in memory as threads call, and a group's counts are returned by the call that took it, once its
   pieces are written: what fails in any phase fails that call.
A group that is too much to be embedded as a whole goes through them part by part (see `InParts`).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from infocse_ray.annotate.annotator import Annotator

GROUPS_AT_ONCE = 3
"""One that is read, one on the device, one that is written."""

Counts = list[dict[str, Any]]
"""Of a group: they have a JSON form and stay small however large the shards."""

Result = TypeVar("Result")


class Work(Protocol):
    """The work of an actor on a group of shards."""

    def __call__(self, annotator: Annotator, shards: list[int]) -> Counts:
        """Write the group's pieces; return counts."""
        ...


class Written(NamedTuple):
    """What reading a group finds where all its pieces were written before."""

    counts: Counts


@runtime_checkable
class Phased(Work, Protocol):
    """A work whose phases may be those of different groups at the same time; it is shared by threads."""

    def read(self, annotator: Annotator, shards: list[int]) -> Any:
        """What is to be embedded, or `Written`; of the annotator only what doesn't compute."""
        ...

    def embed(self, annotator: Annotator, group: Any) -> Any:
        """What computes, of what `read` returned; nothing that stays on the device."""
        ...

    def write(self, group: Any) -> Counts:
        """Write the group's pieces, of what `embed` returned; return counts."""
        ...


@runtime_checkable
class InParts(Work, Protocol):
    """A work that takes a group part by part, lest all of it be in memory; it is shared by threads."""

    def in_parts(self, annotator: Annotator, shards: list[int], on_device: Callable[..., Any]) -> Counts:
        """As a call; `on_device` calls what computes, a part at a time, so that other groups' come in between."""
        ...


def here(call: Callable[..., Result], *arguments: Any) -> Result:
    """Call it, where there are no other groups."""
    return call(*arguments)


def through_phases(
    work: Phased, annotator: Annotator, shards: list[int], on_device: Callable[..., Any] = here
) -> Counts:
    """Take a group through all phases; `on_device` calls what computes."""
    group = work.read(annotator, shards)
    if isinstance(group, Written):
        return group.counts
    return work.write(on_device(work.embed, annotator, group))


class Pipeline:
    """The work of an actor, to be called by up to GROUPS_AT_ONCE threads."""

    def __init__(self, annotator: Callable[[], Annotator], work: Work) -> None:
        """Make the annotator in the thread that has the device from then on."""
        self._device = ThreadPoolExecutor(1, "device")
        self._annotator, self._work = self._on_device(annotator), work

    def _on_device(self, call: Callable[..., Result], *arguments: Any) -> Result:
        return self._device.submit(call, *arguments).result()

    def __call__(self, shards: list[int]) -> Counts:
        """The counts of a group of shards, whose pieces are written; errors are those of its own phases."""
        if isinstance(self._work, Phased):
            return through_phases(self._work, self._annotator, shards, self._on_device)
        if isinstance(self._work, InParts):
            return self._work.in_parts(self._annotator, shards, self._on_device)
        return self._on_device(self._work, self._annotator, shards)
