"""What is written of a shard: document and sentence vectors with their texts, whole, once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.pipeline import Pipeline
from infocse_ray.embedding import rows, shards, writer
from infocse_ray.embedding.index import Embedding, read_embedding
from infocse_ray.embedding.numbers import vectors_of
from infocse_ray.embedding.rows import document_schema
from infocse_ray.embedding.shards import EmbedShards
from infocse_ray.embedding.writer import ParquetWriter, Part
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.texts import tokenised
from infocse_ray.settings import fingerprint
from infocse_ray.settings.embed import Embed
from infocse_ray.stages.stage import read_stage
from infocse_ray.storage.folder import Storage
from tests.unit.indexes import TEXTS, Text, store_of, tiny, write_index


def read(output: Storage, over: str) -> dict[Any, dict]:
    """Rows by id (and number), read as any other program would."""
    table = pa.concat_tables(
        [pq.read_table((output / "vectors" / over / name).path) for name in (output / "vectors" / over).files()]
    )
    vectors = vectors_of(table)
    rows = table.drop_columns("vector").to_pylist()
    return {(r["doc_id"], r.get("number")): r | {"vector": v} for r, v in zip(rows, vectors, strict=True)}


def test_a_document_is_the_mean_of_its_sentences(tmp_path: Path, tiny_encoder: Path):
    output = write_index(tmp_path, tiny_encoder, reading="sentences", sentences=True)
    documents, sentences = read(output, "documents"), read(output, "sentences")
    assert {doc_id for doc_id, _ in documents} == {text.doc_id for text in TEXTS}
    encoder = tiny(tiny_encoder)
    for text in TEXTS:
        own = embed(encoder.eval(), tokenised(encoder, text.sentences)).vectors.numpy()
        mean = own.mean(0) / np.linalg.norm(own.mean(0))
        row = documents[text.doc_id, None]
        assert np.abs(row["vector"] - mean).max() < 1e-5
        assert (row["title"], row["sentences"]) == (text.title or text.sentences[0], len(text.sentences))
        assert row["text"] == " ".join(text.sentences)
        for number, sentence in enumerate(text.sentences):
            assert sentences[text.doc_id, number]["text"] == sentence
            assert np.abs(sentences[text.doc_id, number]["vector"] - own[number]).max() < 1e-5
    assert len(sentences) == sum(len(text.sentences) for text in TEXTS)
    assert read_embedding(output).dimension == 32
    assert (read_stage(output / "vectors").summary or {})["documents"] == len(TEXTS)


@pytest.mark.parametrize("sentences", [False, True])
@pytest.mark.parametrize(("reading", "dimensions"), [("whole", None), ("both", None), ("both", 8)])
def test_documents_are_read_whole_or_both_ways(
    tmp_path: Path, tiny_encoder: Path, reading: str, dimensions: int | None, sentences: bool
):
    output = write_index(tmp_path, tiny_encoder, reading=reading, dimensions=dimensions, sentences=sentences)
    documents = read(output, "documents")
    encoder = tiny(tiny_encoder).eval()
    longest = encoder.max_length
    assert (output / "vectors" / "sentences").exists() == sentences

    def unit(vectors: np.ndarray) -> np.ndarray:
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)

    cut = 0
    for text in TEXTS:
        own = unit(embed(encoder, tokenised(encoder, text.sentences)).vectors.numpy()[:, :dimensions])
        whole = tokenised(encoder, [" ".join(text.sentences)])
        cut += int(whole.lengths.max() > longest - 2)
        encoder.max_length = 64
        expected = unit(embed(encoder, whole).vectors.numpy()[0, :dimensions])
        encoder.max_length = longest
        if reading == "both":
            expected = unit(expected + unit(own.mean(0)))
        assert np.abs(documents[text.doc_id, None]["vector"] - expected).max() < 1e-5
    assert cut, "some text is longer than a sentence may be"


def test_fewer_dimensions_are_of_each_sentence_then_of_the_document(tmp_path: Path, tiny_encoder: Path):
    output = write_index(tmp_path, tiny_encoder, reading="sentences", dimensions=8, precision="fp16", sentences=True)
    documents, sentences = read(output, "documents"), read(output, "sentences")
    mean = np.mean([sentences["court", number]["vector"] for number in (0, 1)], axis=0)
    assert mean.shape == (8,)
    assert np.abs(documents["court", None]["vector"] - mean / np.linalg.norm(mean)).max() < 2e-3


def test_a_title_of_a_whole_paragraph_is_cut(tmp_path: Path, tiny_encoder: Path):
    output = write_index(tmp_path, tiny_encoder, [Text("long", ["tide " * 100 + ".", "A ship."])])
    title = read(output, "documents")["long", None]["title"]
    assert title.endswith(" …")
    assert len(title) <= 200


def test_a_text_has_spaces_between_sentences_where_its_writing_has_them(tmp_path: Path, tiny_encoder: Path):
    output = write_index(
        tmp_path, tiny_encoder, [Text("zh", ["一。", "二？", "三"]), Text("en", ["A tide.", "A ship."])]
    )
    texts = {name: row["text"] for (name, _), row in read(output, "documents").items()}
    assert texts == {"zh": "一。二？三", "en": "A tide. A ship."}


def embedding_of(folder: Path, encoder: Path, **settings: Any) -> Embedding:
    given = {"model": str(encoder), "output": str(folder), "corpus": {"source": "x"}, **settings}
    return Embedding.of(Embed.model_validate(given), "encoder", "corpus", 32)


def writing(tmp_path: Path, encoder: Path, texts: list[Text]) -> tuple[EmbedShards, Annotator, Storage]:
    loaded = tiny(encoder)
    store, place = store_of(tmp_path, loaded, texts)
    folder = Storage.open(str(tmp_path / "vectors"))
    annotator = Annotator(EncoderFolder.save(loaded, Storage.open(str(tmp_path / "e"))), "fp32", torch.device("cpu"))
    embedding = embedding_of(tmp_path, encoder, sentences=True)
    return EmbedShards(store, place, embedding, ParquetWriter(folder, document_schema(embedding))), annotator, folder


def test_whole_shards_are_left_and_what_is_missing_is_made(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    monkeypatch.setattr(writer, "_PART_ROWS", 3)
    work, annotator, folder = writing(tmp_path, tiny_encoder, TEXTS)
    counts = work(annotator, [0, 1, 2])
    assert [one["documents"] for one in counts] == [2, 1, 1]
    assert counts[0]["parts"] == 2, "files of sentences are of bounded size"
    files = [pq.ParquetFile((folder / name).path) for name in folder.files() if name.startswith("sentences/")]
    assert max(file.metadata.num_rows for file in files) == 3, "those of a document of four, too"
    before = {name: (folder / name).read_bytes() for name in folder.files()}
    lost = ["sentences/shard-000000-001.parquet", "documents/shard-000002.parquet"]
    for name in lost:
        (folder / name).delete()
    embedded = annotator.tokens
    assert work(annotator, [0, 1, 2]) == counts
    assert {name: (folder / name).read_bytes() for name in folder.files()} == before
    again = annotator.tokens - embedded
    assert work(annotator, [0, 1, 2]) == counts
    assert 0 < again < embedded
    assert annotator.tokens == embedded + again, "whole shards are not embedded again"


class _Together(NamedTuple):
    """Writes no shard before a part of each is embedded."""

    writer: ParquetWriter
    embedded: threading.Barrier

    def counts(self, shard: int) -> dict[str, int] | None:
        return self.writer.counts(shard)

    def write(self, shard: int, parts: Iterator[Part]) -> dict[str, int]:
        first = next(parts)
        self.embedded.wait(30)
        return self.writer.write(shard, itertools.chain([first], parts))


def test_shards_are_written_while_others_are_on_the_device(tmp_path: Path, tiny_encoder: Path):
    work, annotator, folder = writing(tmp_path / "one", tiny_encoder, TEXTS)
    counts = work(annotator, [0, 1, 2])
    work, annotator, beside = writing(tmp_path / "beside", tiny_encoder, TEXTS)
    together = _Together(ParquetWriter(beside, document_schema(work.embedding)), threading.Barrier(3))
    pipeline = Pipeline(lambda: annotator, work._replace(writer=together))
    with ThreadPoolExecutor(3) as calls:
        assert list(calls.map(pipeline, [[0], [1], [2]])) == [[one] for one in counts]
    assert {name: (beside / name).read_bytes() for name in beside.files()} == {
        name: (folder / name).read_bytes() for name in folder.files()
    }


def test_ids_are_looked_through_once_a_shard(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    work, annotator, _ = writing(tmp_path, tiny_encoder, TEXTS)
    tables: list[pa.Table] = []

    class Counted(shards.ShardTexts):
        def __init__(self, table: pa.Table) -> None:
            tables.append(table)
            super().__init__(table)

    monkeypatch.setattr(shards, "ShardTexts", Counted)
    assert work(annotator, [0])[0]["documents"] == 2, "two row groups"
    assert len(tables) == 1


def test_a_shard_without_documents_has_the_same_columns(tmp_path: Path, tiny_encoder: Path):
    work, annotator, folder = writing(tmp_path, tiny_encoder, TEXTS[:1])
    work(annotator, [0, 1])
    tables = [pq.read_table((folder / "documents" / f"shard-00000{i}.parquet").path) for i in (0, 1)]
    assert [len(table) for table in tables] == [1, 0]
    assert tables[0].schema.equals(tables[1].schema)


def test_texts_that_are_not_those_of_the_tokens_are_refused(tmp_path: Path, tiny_encoder: Path):
    work, annotator, _ = writing(tmp_path, tiny_encoder, TEXTS)
    changed = [text._replace(sentences=[*text.sentences, "More."]) for text in TEXTS]
    _, place = store_of(tmp_path / "changed", tiny(tiny_encoder), changed)
    with pytest.raises(ValueError, match=r"corpus\.source: its files changed"):
        work._replace(texts=place)(annotator, [0])


def test_another_embedding_is_refused_in_the_same_output(tmp_path: Path, tiny_encoder: Path):
    output = Storage.open(str(tmp_path / "index"))
    first = embedding_of(tmp_path, tiny_encoder)
    first._replace(corpus="one that was refused before anything was made of it").begin(output)
    first.begin(output)
    assert read_embedding(output) == first
    (output / "vectors" / "documents" / "shard-000000.parquet").write_bytes(b"")
    first.begin(output)
    first._replace(model="the same, elsewhere").begin(output)
    for change, said in [
        ({"precision": "fp16"}, "vectors of precision fp32, not fp16"),
        ({"dimensions": 8}, "vectors of dimensions all, not 8"),
        ({"sentences": True}, "vectors of sentences false, not true"),
        ({"format": "lance"}, "vectors of format parquet, not lance"),
    ]:
        with pytest.raises(ValueError, match=said):
            embedding_of(tmp_path, tiny_encoder, **change).begin(output)
    with pytest.raises(ValueError, match="vectors of encoder another model"):
        first._replace(encoder="other").begin(output)
    with pytest.raises(ValueError, match="vectors of corpus another, not this"):
        first._replace(corpus="other").begin(output)
    assert read_embedding(output) == first


def test_another_reading_names_other_vectors(tmp_path: Path, tiny_encoder: Path):
    named = {reading: embedding_of(tmp_path, tiny_encoder, reading=reading).identity() for reading in ("whole", "both")}
    plain = embedding_of(tmp_path, tiny_encoder, reading="sentences").identity()
    assert "sentences" not in plain, "as before there were others"
    assert len({plain, *named.values()}) == 3


@pytest.mark.parametrize("name", ["encoder/model.py", "vectors/old.npy", "documents.lance/data", "news.csv"])
def test_folders_that_nothing_embedded_made_are_left_alone(tmp_path: Path, tiny_encoder: Path, name: str):
    there = tmp_path / "index" / name
    there.parent.mkdir(parents=True)
    there.write_text("mine")
    with pytest.raises(
        ValueError, match=rf"^output = .*: there is {name.split('/')[0]} in it.*give a folder of its own$"
    ):
        write_index(tmp_path, tiny_encoder)
    assert there.read_text() == "mine"


def test_hidden_files_are_no_reason_to_refuse_an_output(tmp_path: Path, tiny_encoder: Path):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / ".DS_Store").write_text("")
    assert len(read(write_index(tmp_path, tiny_encoder), "documents")) == len(TEXTS)


def test_metadata_tells_embeddings_apart_and_only_where_there_is_any(tmp_path: Path, tiny_encoder: Path):
    typed = {"a": "text", "b": "integer"}
    plain, more, other, turned = (
        embedding_of(tmp_path, tiny_encoder, corpus={"source": "x", "metadata": metadata}, reading="sentences")
        for metadata in ({}, typed, typed | {"b": "text"}, dict(reversed(typed.items())))
    )
    assert plain.identity() == ("embed", 1, *plain._replace(model="")[:-2]), "what was embedded before stays"
    assert len({fingerprint(one.identity()) for one in (plain, more, other, turned)}) == 3
    assert document_schema(more) == document_schema(turned)
    output = Storage.open(str(tmp_path / "o"))
    more.begin(output)
    (output / "vectors" / "x").write_bytes(b"")
    more.begin(output)
    with pytest.raises(ValueError, match=r"has vectors of metadata \{'a': 'text', 'b': 'integer'\}, not .*; give"):
        other.begin(output)


def test_metadata_of_sentences_is_in_chunks_that_arrow_can_hold(monkeypatch):
    monkeypatch.setattr(rows, "_CHUNK_BYTES", 100)
    column = pa.array([{"a": "x" * 20}, {"a": "y" * 20}])
    repeated = rows._repeated(column, np.array([0, 0, 0, 1, 1, 1, 1]))
    assert repeated.to_pylist() == [{"a": "x" * 20}] * 3 + [{"a": "y" * 20}] * 4
    assert repeated.num_chunks > 2
    assert max(chunk.nbytes for chunk in repeated.chunks) <= 150
    assert len(rows._repeated(column, np.array([], np.int64))) == 0


def test_an_output_without_a_vector_yet_gives_way_to_what_the_corpus_is_by_now(tmp_path: Path, tiny_encoder: Path):
    output = Storage.open(str(tmp_path / "index"))
    first = embedding_of(tmp_path, tiny_encoder)
    first.begin(output)
    written = [
        output / name for name in ("encoder/stage.json", "vectors/started.json", "vectors/texts/shard-000000.parquet")
    ]
    for file in written:
        file.write_bytes(b"{}")
    first.begin(output)
    assert all(file.exists() for file in written), "of the same nothing is lost"
    changed = first._replace(corpus="whose files changed while texts were read")
    changed.begin(output)
    assert read_embedding(output) == changed
    assert not any(file.exists() for file in written)
