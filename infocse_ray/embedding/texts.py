"""The texts of a corpus, in the shards of its token store, which has token ids only: what a search shows.

They are read from the source once more, in tasks, and shuffled to their shards as the corpus stage does it. Of
rows with one id the first good one counts, as there.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import ray
from ray import ObjectRef

from infocse_ray.corpus.documents import Rejected, batches_of, document_of
from infocse_ray.corpus.labels import LabelTable
from infocse_ray.corpus.metadata import metadata_of, metadata_type
from infocse_ray.corpus.prepare import label_table
from infocse_ray.corpus.read import Piece
from infocse_ray.corpus.registry import KINDS
from infocse_ray.corpus.schema import shard_of, stable_hash
from infocse_ray.corpus.shuffle import Shuffle
from infocse_ray.corpus.source import Source, refuse_changed
from infocse_ray.corpus.store import shard_name
from infocse_ray.embedding.index import METADATA_COLUMN
from infocse_ray.runtime.progress import Board, say
from infocse_ray.settings.embed import EveryDocument, MetadataType
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet

_BATCH_CHARACTERS = 4 * 2**20

_FIELDS = [
    pa.field("shard", pa.int32()),
    pa.field("order", pa.int64()),
    pa.field("row", pa.int64()),
    pa.field("doc_id", pa.string()),
    pa.field("title", pa.string()),
    pa.field("sentences", pa.list_(pa.string())),
]
_KEPT = ["doc_id", "title", "sentences"]
_UNFIT = "unfit"
"""JSON: what a row has for metadata and isn't of the type, by name."""


def _schema(metadata: Mapping[str, MetadataType]) -> pa.Schema:
    typed = [pa.field(METADATA_COLUMN, metadata_type(metadata)), pa.field(_UNFIT, pa.string())] if metadata else []
    return pa.schema([*_FIELDS, *typed])


def write_texts(folder: Storage, corpus: EveryDocument, source: Source, shards: int) -> None:
    """Write a file of texts for each shard of the token store, unless all are there.

    Args:
        folder: where to.
        corpus: settings, those that the token store was made with.
        source: its files, with the columns of metadata among those that are read.
        shards: of the token store.

    Raises:
        UnreadableFile: a whole file can't be read.
        SourceChanged: a file changed, or went, while they were read: some may be of another version than the store.
    """
    names = {shard_name(shard) for shard in range(shards)}
    if names <= folder.files().keys():
        return
    with Board("reading texts", unit="rows") as board:
        read = functools.partial(
            _read_pieces,
            columns=source.columns,
            corpus=corpus,
            labels=label_table(corpus, source),
            shards=shards,
            board=board.handle,
        )
        shuffle = Shuffle(folder / "sorting", source.pieces, shards, _schema(corpus.metadata))
        counts = list(shuffle.run(read, _TextWriter(folder), board.tell))
    refuse_changed(corpus, source, folder)
    _say_unfit(counts, corpus.metadata)


def _say_unfit(counts: list[dict[str, Any]], metadata: Mapping[str, MetadataType]) -> None:
    """Tell what isn't of its type."""
    for name, kind in metadata.items():
        unfit = sum(one.get("unfit", {}).get(name, 0) for one in counts)
        example = next((one["examples"][name] for one in counts if name in one.get("examples", {})), "")
        if unfit:
            say(f"corpus.metadata.{name}: left out where it is no {kind}, such as {example!r} ({unfit:,} in all)")


def read_texts(folder: Storage, shard: int) -> pa.Table:
    """The texts of a shard.

    Returns:
        `doc_id`, `title` (null where a document has no counterpart) and `sentences`; and `metadata`, a struct, where
        any was asked for.
    """
    with open_parquet(folder / shard_name(shard)) as file:
        return file.read()


def _read_pieces(
    pieces: list[Piece],
    columns: dict[str, str],
    corpus: EveryDocument,
    labels: list[ObjectRef],
    shards: int,
    board: Any,
) -> Iterator[pa.Table]:
    """What a reading task does; the arguments are those of `corpus.prepare.tokenise_pieces`."""
    table: LabelTable | None = ray.get(labels[0]) if labels else None
    schema = _schema(corpus.metadata)
    for piece in pieces:
        for batch in batches_of(KINDS[corpus.kind].rows(piece, columns, corpus, table), _BATCH_CHARACTERS):
            documents = []
            for one in batch:
                with contextlib.suppress(Rejected):
                    if one.values is not None:
                        document = document_of(one.values, corpus)
                        documents.append(
                            {
                                "shard": shard_of(stable_hash(document["doc_id"]), shards),
                                "order": piece.order,
                                "row": one.number,
                                "doc_id": document["doc_id"],
                                "title": next(iter(document["counterparts"]), None),
                                "sentences": document["sentences"],
                                **_metadata(one.values, corpus.metadata),
                            }
                        )
            yield pa.Table.from_pylist(documents, schema=schema)
            board.add.remote(len(batch))


def _metadata(values: dict[str, Any], metadata: Mapping[str, MetadataType]) -> dict[str, Any]:
    if not metadata:
        return {}
    typed, unfit = metadata_of(values, metadata)
    return {METADATA_COLUMN: typed, _UNFIT: json.dumps(unfit) if unfit else None}


class _TextWriter(NamedTuple):
    """What a merging task does: write each document once, by the row that the token store has it from."""

    folder: Storage

    def __call__(self, shard: int, rows: pa.Table) -> dict[str, Any]:
        rows = rows.sort_by([("doc_id", "ascending"), ("order", "ascending"), ("row", "ascending")])
        ids = rows["doc_id"].to_pylist()
        first = [i == 0 or doc_id != ids[i - 1] for i, doc_id in enumerate(ids)]
        rows = rows.filter(pa.array(first, pa.bool_()))
        counts = {}
        kept = _KEPT
        if METADATA_COLUMN in rows.column_names:
            kept = [*_KEPT, METADATA_COLUMN]
            counts = _counted(rows)
        write_parquet(self.folder / shard_name(shard), rows.select(kept), [len(rows)])
        return counts

    def there(self, shard: int, counts: dict[str, Any]) -> bool:
        return (self.folder / shard_name(shard)).exists()


def _counted(rows: pa.Table) -> dict[str, Any]:
    """Of each name, how many documents' metadata isn't of its type, and one that isn't."""
    unfit: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for told in rows[_UNFIT].drop_null().to_pylist():
        its = json.loads(told)
        unfit.update(its.keys())
        examples = its | examples
    return {"unfit": unfit, "examples": examples}
