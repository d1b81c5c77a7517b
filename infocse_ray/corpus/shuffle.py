"""Reading a source in tasks and bringing together the rows of each shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import ray
from ray.data import DataContext
from ray.exceptions import RayError

from infocse_ray.corpus.read import Piece
from infocse_ray.corpus.source import packs_of
from infocse_ray.errors import UnreadableFile
from infocse_ray.runtime.failures import caused_by

SHUFFLED_BYTES = 256 * 2**20
"""What a task of the shuffle takes in at once, and so its memory; Ray Data's own is 1 GiB."""


def by_shard(
    pieces: Sequence[Piece],
    shards: int,
    read: Callable[..., Iterator[pa.Table]],
    reading: Mapping[str, Any],
    write: Callable[..., pa.Table],
    writing: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """Read, shuffle, write: what `write` returns, row by row, in any order.

    Args:
        pieces: of files.
        shards: how many there are; one without a row is not written.
        read: gets `pieces`, lists of `Piece` as mappings, and `reading`; its tables have a column `shard`.
        reading: its other arguments.
        write: gets the rows of one shard, and `writing`.
        writing: its other arguments.

    Raises:
        UnreadableFile: a whole file can't be read.
    """
    context = DataContext.get_current()
    context.shuffle_input_batch_bytes = SHUFFLED_BYTES
    packs = [{"pieces": [piece._asdict() for piece in pack]} for pack in packs_of(list(pieces))]
    rows = ray.data.from_items(packs, override_num_blocks=len(packs)).map_batches(
        read,  # pyright: ignore[reportArgumentType]
        batch_size=1,
        batch_format="pyarrow",
        zero_copy_batch=True,
        fn_kwargs=dict(reading),
    )
    # A task for each of Ray Data's default 200 partitions would cost a small corpus most of its time.
    partitions = min(shards, context.default_hash_shuffle_parallelism)
    written = rows.groupby("shard", num_partitions=partitions).map_groups(
        write,  # pyright: ignore[reportArgumentType]
        batch_format="pyarrow",
        fn_kwargs=dict(writing),
    )
    try:
        yield from written.iter_rows()
    except RayError as error:
        if (unreadable := caused_by(error, UnreadableFile)) is not None:
            raise unreadable from error
        raise
