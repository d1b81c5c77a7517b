"""How many tokens a training chunk has, and what happens where memory runs out over it.

1. What a worker computes apart from the others (padding, encoding, backward through the encoder) ends before the next
   exchange. There all learn whether any ran out of memory, so that nobody waits for one who can't go on.
2. With `train.chunk_tokens: auto` all of them then halve the chunk and begin the step anew, seeds included: it ends as
   it would have with that chunk from the start.
3. With a number, or where nothing is left to halve, the error names the setting to lower.
4. Once steps have fitted, `auto` knows what a token takes: as many chunks as there is room for keep their activations,
   and no step is taken apart from then on. After a restart, which may be memory's doing, a GPU's steps always are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch

from infocse_ray.distributed.collectives import any_worker, exchanged, workers
from infocse_ray.distributed.memory import MORE, is_out_of_memory
from infocse_ray.errors import OutOfMemory
from infocse_ray.train.meters import CpuMeter, CudaMeter, Meter

FIRST_ON_GPU = 65_536
FIRST_ON_CPU = 8_192
"""Tokens of a chunk that `auto` begins with; more than FIRST_ON_GPU at once make no GPU faster."""

_ENOUGH_ON_CPU = 512
"""Tokens of a chunk that keep a CPU busy: with fewer, each chunk's gradient of the word embeddings takes its time."""

SMALLEST = 64
"""Tokens of a chunk at least."""

_SHARE = 0.85
"""Of the room, to be used: what a token takes depends on its text's length, and free memory is in pieces."""

Result = TypeVar("Result")


class OutOfMemoryEverywhere(OutOfMemory):
    """Raised on every worker, so that all can end together."""


class _TooMuch(Exception):
    """Some worker ran out of memory; raised on all."""


class ChunkMemory:
    """The tokens of a chunk, the same on every worker.

    Attributes:
        tokens: of a chunk, padding included.
        kept: the first chunks of so many tokens keep their activations; not less than `tokens`.
        careful: what a worker computes apart from the others may run out of memory, and all then halve the chunk.
    """

    def __init__(self, setting: int | Literal["auto"], device: torch.device, meter: Meter | None = None) -> None:
        """Begin with `train.chunk_tokens`, or with what `auto` begins with on this device.

        Args:
            setting: `train.chunk_tokens`.
            device: where chunks are computed on.
            meter: of the device's memory; by default its own.
        """
        self.auto = self.careful = setting == "auto"
        self.tokens = (FIRST_ON_GPU if device.type == "cuda" else FIRST_ON_CPU) if setting == "auto" else setting
        self._first, self._device, self._told = self.tokens, device, self.tokens
        self.kept, self._fitted = self.tokens, 0
        self._room: int | None = None
        self._meter: Meter = meter or (CudaMeter(device) if device.type == "cuda" else CpuMeter())

    def resume(self, tokens: int | None, kept: int | None = None, room: int | None = None) -> None:
        """Go on with the tokens that a checkpoint has, so that what comes has the noise it would have had.

        Every worker must call.

        Args:
            tokens: of a chunk.
            kept: whose activations were kept, once steps had fitted.
            room: bytes that these were to fit into; None: it isn't known.
        """
        if self.auto and tokens is not None:
            self.tokens = self._told = tokens
            self.kept = kept or tokens
            if self._meter.runs_out:
                self._fitted = self._meter.steps  # they stay careful
            else:
                self.careful = kept is None
                if kept and room:
                    # On another machine, or of more workers on one, each may have less.
                    here = min(one for (one,) in exchanged([self._meter.room()]))
                    self.kept, self._room = max(tokens, kept * min(here, room) // room), min(here, room)

    def enough(self, tokens: int) -> int | None:
        """Of chunks of so many tokens: with how many, padding included, one may end where texts get shorter.

        None: as embedding does.
        """
        return min(_ENOUGH_ON_CPU, tokens // 8) if self._device.type == "cpu" else None

    def state(self) -> dict[str, int | None]:
        """What `resume` takes, as `chunk_tokens`, `kept_tokens` and `kept_room`."""
        kept, room = (None, None) if self.careful else (self.kept, self._room)
        return {"chunk_tokens": self.tokens, "kept_tokens": kept, "kept_room": room}

    def fitted(self, tokens: int) -> None:
        """Learn from a step that went well everywhere; every worker must call.

        Args:
            tokens: that had their activations at one time on this worker, padding included.
        """
        if not self.careful:
            return
        self._fitted += 1
        if self._fitted == self._meter.steps:
            each = max(1, self._meter.taken() // max(tokens, 1))
            # A worker with few texts has hardly anything to say of a token: the one that asks for most is believed.
            most, rooms = zip(*exchanged([each, self._meter.room()]), strict=True)
            self.kept = max(self.tokens, int(_SHARE * min(rooms)) // max(most))
            self._room, self.careful = min(rooms), False

    @property
    def looked_after(self) -> Callable[[Callable[[], Any]], Any] | None:
        """`apart`, where a step that ran out of memory is repeated; None: it is known to fit.

        Among others that costs an exchange, and DDP's beside the backward pass; one worker has nobody to ask.
        """
        return self.apart if self.careful or (self.auto and workers() == 1) else None

    def news(self) -> str | None:
        """What to tell people, once, when the tokens were lowered."""
        before, self._told = self._told, self.tokens
        if before == self.tokens:
            return None
        return f"out of GPU memory with chunks of {before:,} tokens; from here on they have {self.tokens:,}"

    def watched(self) -> contextlib.AbstractContextManager[None]:
        """Look at the memory that is taken inside, as long as it isn't known what a token takes."""
        return self._meter.watched() if self.careful else contextlib.nullcontext()

    def apart(self, work: Callable[[], Result]) -> Result:
        """Do what needs no other worker; every worker must call, and none is back before it went well on all."""
        try:
            result = [work()]
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            result = []  # nothing keeps the error, whose frames keep tensors
        if any_worker(not result):
            raise _TooMuch
        return result[0]

    def until_it_fits(self, step: int, attempt: Callable[[], Result]) -> Result:
        """Call `attempt` until no worker runs out of memory, with `auto`; it does what it can in `apart`.

        Args:
            step: what is attempted, for messages.
            attempt: starts from nothing each time it is called.

        Raises:
            OutOfMemoryEverywhere: with the smallest chunk, or with the only worker's fixed one.
            OutOfMemory: on a worker among others, who know nothing of it.
        """
        while True:
            try:
                return attempt()
            except _TooMuch:
                pass  # here its frames are gone, and with them their tensors
            except RuntimeError as error:
                if not isinstance(error, OutOfMemory) and not is_out_of_memory(error):
                    raise
                kind = OutOfMemoryEverywhere if workers() == 1 else OutOfMemory
                raise kind(f"step {step}: {error if isinstance(error, OutOfMemory) else self._advice()}") from error
            if self.kept <= SMALLEST:
                raise OutOfMemoryEverywhere(f"step {step}: {self._advice()}")
            if self.kept == self.tokens:
                self.tokens = max(SMALLEST, self.tokens // 2)
            self.kept = self.tokens
            if self._device.type == "cuda":
                torch.cuda.empty_cache()

    def _advice(self) -> str:
        had = f"out of GPU memory with train.chunk_tokens = {'auto' if self.auto else self.tokens}"
        if self.auto and self.tokens > SMALLEST:  # outside of chunks
            return f"{had}, outside of chunks: lower train.batch_size, or {MORE}"
        if self.tokens <= SMALLEST:
            lowered = f", lowered from {self._first} to {self.tokens} tokens" if self.auto else ""
            return f"{had}{lowered}: lower encoder.max_length, {MORE}"
        return f"{had}: lower it, to {max(SMALLEST, self.tokens // 2)} for example, or set it to auto"
