"""Where a method's examples are, and how many each lane has: counted before training begins.

Annotating counts InfoCSE's as it writes clusters; other methods' are counted by Ray Data tasks that read documents.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import ray

from infocse_ray.annotate.annotations import read_examples
from infocse_ray.methods.method import Method
from infocse_ray.runtime.cluster import quiet_data
from infocse_ray.runtime.progress import Bar
from infocse_ray.sampling.shards import Shards
from infocse_ray.stages.stage import Stage


class Examples(NamedTuple):
    """Counted examples."""

    source: Shards
    fingerprint: str
    summary: dict[str, Any]

    @property
    def by_lane(self) -> np.ndarray:
        """int64 [lanes]: examples of each."""
        return np.asarray(self.summary["examples_by_lane"], dtype=np.int64)

    @property
    def of_largest_lane(self) -> float:
        """The part of all examples that the lane with most has."""
        return float(self.by_lane.max() / self.by_lane.sum())

    @classmethod
    def of(cls, stage: Stage, source: Shards) -> Examples:
        """The output of a finished stage of `count_examples`."""
        assert stage.summary is not None
        return cls(source, stage.fingerprint, stage.summary)


def count_examples(source: Shards, method: Method, title: str) -> dict[str, Any]:
    """Count every document's examples.

    Args:
        source: the documents.
        method: makes the examples.
        title: of the progress bar.

    Returns:
        `examples_by_lane`, `examples`, `documents` that give some, `none` that give none, and `short`, how many are
        shorter than the method's published window.
    """
    if (known := _known(source, method)) is not None:
        return known
    by_lane = np.zeros(source.lanes, dtype=np.int64)
    totals: Counter[str] = Counter({"examples": 0, "documents": 0, "none": 0, "short": 0})
    bar = Bar(title, None, "documents")
    for row in over_shards(source, _count, method=method):
        counts = json.loads(row["counts"])
        for shard, examples in counts.pop("shards"):
            by_lane[shard % source.lanes] += examples
        totals.update(counts)
        bar.to(totals["documents"] + totals["none"])
    bar.close()
    return dict(totals) | {"examples_by_lane": by_lane.tolist()}


def _known(source: Shards, method: Method) -> dict[str, Any] | None:
    """What `count_examples` returns, where annotating counted it."""
    if source.annotations is None or method.pairs_at is None:
        return None
    if (found := read_examples(source.annotations, method.pairs_at)) is None:
        return None
    none = found.documents - found.paired
    totals = {"examples": sum(found.by_lane), "documents": found.paired, "none": none, "short": 0}
    return totals | {"examples_by_lane": found.by_lane}


def over_shards(source: Shards, work: Callable[..., pa.Table], **arguments: Any) -> Iterator[dict[str, Any]]:
    """The rows that Ray Data tasks return for the shards, a few each, as they come.

    Args:
        source: the shards.
        work: called with a table of packs, each a list of `shards`, `source` and the arguments.
        arguments: the same for every task.
    """
    quiet_data()
    numbers = source.numbers
    together = max(1, len(numbers) // 256)
    packs = [{"shards": list(numbers[i : i + together])} for i in range(0, len(numbers), together)]
    # A task for each of many small shards would cost more than reading them; a large cluster has more to do at once.
    tasks = max(16, 4 * int(ray.cluster_resources().get("CPU", 1)))
    dataset = ray.data.from_items(packs, override_num_blocks=min(len(packs), tasks))
    counts = dataset.map_batches(
        work, batch_size=None, batch_format="pyarrow", fn_kwargs={"source": source, **arguments}
    )
    yield from counts.iter_rows()


def _count(packs: pa.Table, source: Shards, method: Method) -> pa.Table:
    rows = []
    for shard in [shard for pack in packs["shards"].to_pylist() for shard in pack]:
        counts: Counter[str] = Counter()
        with source.open(shard) as opened:
            for documents in opened.read_all(opened.groups()):
                counted = method.count(documents)
                given = counted.examples > 0
                counts.update(
                    examples=int(counted.examples.sum()),
                    documents=int(given.sum()),
                    none=int((~given).sum()),
                    short=int(counted.short.sum()),
                )
        rows.append(json.dumps({"shards": [(shard, counts["examples"])], **counts}))
    return pa.table({"counts": pa.array(rows, pa.string())})
