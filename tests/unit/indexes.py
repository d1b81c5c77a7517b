"""What `infocse embed` writes, made in this process: a few documents with the tiny encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.corpus.metadata import metadata_type
from infocse_ray.corpus.schema import SPLITS, shard_of, stable_hash
from infocse_ray.corpus.store import TokenStore, shard_name
from infocse_ray.embedding.index import Embedding
from infocse_ray.embedding.lance_dataset import LanceWriter
from infocse_ray.embedding.rows import document_schema, sentence_schema
from infocse_ray.embedding.sampled import write_sampled
from infocse_ray.embedding.shards import EmbedShards
from infocse_ray.embedding.writer import ParquetWriter
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.texts import tokenised
from infocse_ray.settings import Encoder
from infocse_ray.settings.embed import Embed, MetadataType
from infocse_ray.stages.stage import run_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import write_parquet
from tests.unit.stores import Written, write_store

SHARDS = 3


class Text(NamedTuple):
    """A document to index."""

    doc_id: str
    sentences: list[str]
    title: str | None = None
    metadata: dict[str, Any] | None = None
    """Of the types that the index is asked for."""


TEXTS = [
    Text("sea", ["The old ship.", "A wave and a tide.", "The storm near the island."], "The harbour"),
    Text("court", ["A judge of the court.", "The trial and the verdict."]),
    Text("kitchen", ["Bread with butter.", "Salt in the soup.", "The oven.", "A pan and a spoon."]),
    Text("sky", ["The moon.", "A comet near the star."], "The eclipse"),
]


def tiny(encoder: Path, **shape: Any) -> SentenceEncoder:
    """The tiny encoder, loaded."""
    return load_encoder(encoder, Encoder(model=str(encoder), **{"max_length": 16, **shape}), cosine=True)


def store_of(
    folder: Path,
    encoder: SentenceEncoder,
    texts: Sequence[Text],
    shards: int = SHARDS,
    by_key: bool = False,
    metadata: dict[str, MetadataType] | None = None,
) -> tuple[TokenStore, Storage]:
    """A token store of the texts, dealt to shards in turn or as a corpus is, and the folder with the texts."""
    if by_key:
        texts = sorted(texts, key=lambda text: stable_hash(text.doc_id))
    written = []
    for text in texts:
        tokens = tokenised(encoder, text.sentences)
        rows = [tokens.values[a:b].tolist() for a, b in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)]
        written.append(Written(text.doc_id, rows))
    store = write_store(Storage.open(str(folder / "store")), written, shards, group=2 if by_key else 1, by_key=by_key)
    place = Storage.open(str(folder / "texts"))
    for shard in range(shards):
        dealt = texts[shard::shards]
        if by_key:
            dealt = [text for text in texts if shard_of(stable_hash(text.doc_id), shards) == shard]
        mine = [text._asdict() for text in reversed(dealt)]
        schema = pa.schema([("doc_id", pa.string()), ("title", pa.string()), ("sentences", pa.list_(pa.string()))])
        if metadata:
            schema = schema.append(pa.field("metadata", metadata_type(metadata)))
        write_parquet(place / shard_name(shard), pa.Table.from_pylist(mine, schema=schema), [len(mine)])
    return store, place


def index_in(folder: Path) -> Storage:
    """Where the index goes."""
    return Storage.open(str(folder / "index"))


def write_index(folder: Path, encoder: Path, texts: Sequence[Text] = TEXTS, **settings: Any) -> Storage:
    """An index in `<folder>/index`, as `infocse embed` with these settings leaves it."""
    output = index_in(folder)
    shape = {name: settings[name] for name in ("query_prompt", "document_prompt") if name in settings}
    loaded = tiny(encoder, **shape)
    given = Embed.model_validate(
        {
            "model": str(encoder),
            "output": "index",
            "max_length": 16,
            "compute": "fp32",
            "corpus": {"source": "x"},
            **settings,
        }
    )
    embedding = Embedding.of(given, loaded.fingerprint(), "corpus", loaded.dimension)
    embedding.begin(output)
    saved = EncoderFolder.save(loaded, output / "encoder" / "model")
    store, place = store_of(folder, loaded, texts, metadata=embedding.metadata)

    def work(stage: Any) -> dict[str, Any]:
        lance = LanceWriter(stage.folder, output) if embedding.format == "lance" else None
        writer = lance or ParquetWriter(stage.folder, document_schema(embedding))
        annotator = Annotator(saved, "fp32", torch.device("cpu"))
        counts = EmbedShards(store, place, embedding, writer)(annotator, list(range(SHARDS)))
        if lance is not None:
            lance.commit("documents", document_schema(embedding), SHARDS)
            if embedding.sentences:
                lance.commit("sentences", sentence_schema(embedding), SHARDS)
        write_sampled(stage.folder, place, SHARDS, "en")
        return {"documents": store.documents(SPLITS), "shards": len(counts)}

    run_stage(output, output / "vectors", "embed", "vectors", work)
    return output
