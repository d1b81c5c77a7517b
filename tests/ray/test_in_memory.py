"""A Ray Dataset as documents: its tasks write it, and what it holds names it, whatever its blocks and their order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import ray

from infocse_ray.corpus.in_memory import corpus_of
from infocse_ray.corpus.registry import KINDS
from infocse_ray.corpus.source import find_source
from infocse_ray.settings import Corpus
from infocse_ray.storage.folder import Storage

ROWS = [{"key": f"d{i}", "body": f"One {i}. Größe."} for i in range(50)]
NAMED = {"id": "key", "text": "body"}


def read(corpus: Corpus) -> list[str]:
    source = find_source(corpus)
    rows = [r.values for p in source.pieces for r in KINDS["auto"].rows(p, source.columns, corpus, None)]
    return sorted(f"{row['id']} {row['text']}" for row in rows if row)


@pytest.mark.usefixtures("ray_cluster")
def test_a_ray_dataset_is_written_by_its_tasks_and_named_by_its_rows(tmp_path: Path) -> None:
    root = Storage.open(str(tmp_path))
    table = pa.Table.from_pylist([row | {"other": i} for i, row in enumerate(ROWS)])
    first = corpus_of(ray.data.from_arrow(table).repartition(3), root, NAMED)
    assert read(first) == sorted(f"{row['key']} {row['body']}" for row in ROWS)
    (folder,) = (tmp_path / "sources").iterdir()
    assert len(list(folder.glob("*.parquet"))) == 3
    # Other blocks, in another order, are the same documents; one that is another is another source.
    again = corpus_of(ray.data.from_arrow(table.take(list(range(50))[::-1])), root, NAMED)
    assert again == first
    changed = corpus_of(ray.data.from_arrow(table.slice(1)), root, NAMED)
    assert changed.source != first.source
    assert len(list((tmp_path / "sources").iterdir())) == 2
    with pytest.raises(ValueError, match=r"corpus\.text = 'nope': no such column; there is key, body, other"):
        corpus_of(ray.data.from_arrow(table), root, {"text": "nope"})
    with pytest.raises(ValueError, match="there are none"):
        corpus_of(ray.data.from_arrow(table).filter(lambda row: False), root, NAMED)
