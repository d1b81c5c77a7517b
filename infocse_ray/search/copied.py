"""The Lance dataset that an index is searched in: what `infocse embed` wrote, or a copy of its Parquet files."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from infocse_ray.embedding.index import Embedding, Over
from infocse_ray.embedding.lance_dataset import check_whole, damage_of, dataset_place, open_dataset, require_lance
from infocse_ray.embedding.numbers import vector_fields, vectors_of
from infocse_ray.runtime.progress import Bar, say
from infocse_ray.storage.checksums import checked, verified
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet

_CANT_WRITE = re.compile(r"os error (1|13|30)\b|AccessDenied")
"""In what Lance says of a folder that it may not write into: EPERM, EACCES, EROFS, and S3's word for it."""
_PATIENCE = 10.0
"""Seconds for another process that has copied vectors to say so."""


def dataset_of(output: Storage, embedding: Embedding, over: Over, vectors: str) -> Any:
    """Of documents, or their sentences, opened; the first time Parquet files are copied.

    The arguments are those of `engine.open_engine`.

    Raises:
        ValueError: Lance isn't installed, or the copy can't be written.
        DamagedFile: a file is missing or cut off.
    """
    require_lance("infocse search")
    if embedding.format == "lance":
        return check_whole(output / f"{over}.lance")
    return open_dataset(_copied(output, embedding, over, vectors))


def _copied(output: Storage, embedding: Embedding, over: Over, vectors: str) -> Storage:
    """The Parquet files as a Lance dataset beside them, copied unless they were."""
    import lance

    target, done = output / "search" / f"{over}.lance", output / "search" / f"{over}.json"
    if _is_copied(target, done, vectors):
        if (why := damage_of(target)) is None:
            return target
        say(f"{why}; it is made again")  # as another version: who has the earlier one open keeps what there is of it
    # int8 can't be searched by Lance as it is, and half precision has more than all of its digits.
    precision = "fp16" if embedding.precision == "int8" else embedding.precision
    folder = output / "vectors" / over
    names = sorted(name for name in folder.files() if name.endswith(".parquet"))
    with open_parquet(folder / names[0]) as first:
        fields = [field for field in first.schema_arrow if field.name not in ("vector", "scale")]
    schema = pa.schema([*fields, *vector_fields(embedding.dimension, precision)])
    uri, options = dataset_place(target)
    failed: list[Exception] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from _batches(folder, names, schema)
        except Exception as error:
            failed.append(error)  # Lance makes it text
            raise

    try:
        lance.write_dataset(batches(), uri, schema, mode="overwrite", storage_options=options)
    except OSError as error:
        if failed:
            raise failed[0] from None
        if _CANT_WRITE.search(str(error)):
            raise ValueError(
                f"index = {str(output)!r}: its first search copies the vectors into the engine, beside them, and "
                "nothing can be written there; search it once where it can be, or embed with --format lance"
            ) from error
        # Another process, or thread, copied the same at the same time, and says so next.
        if not _comes(lambda: _is_copied(target, done, vectors)):
            raise
        return target
    done.write_json(checked({"vectors": vectors}))
    return target


def _is_copied(target: Storage, done: Storage, vectors: str) -> bool:
    """Whether a copy is there, and what says of which vectors it is says of these."""
    return target.exists() and done.exists() and verified(done.read_bytes()) == {"vectors": vectors}


def _comes(there: Callable[[], bool]) -> bool:
    """Whether something is there, at the latest some seconds from now."""
    until = time.monotonic() + _PATIENCE
    while not there():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def _batches(folder: Storage, names: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of the files, a row group at a time."""
    kind = schema.field("vector").type.value_type.to_pandas_dtype()
    bar = Bar("copying vectors into the engine, once", len(names), "files")
    for name in names:
        with open_parquet(folder / name) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                if "scale" in table.column_names:
                    vectors = vectors_of(table).astype(kind)
                    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
                    table = table.drop_columns(["vector", "scale"]).append_column("vector", column)
                yield from table.cast(schema).to_batches()
        bar.add(1)
    bar.close()
