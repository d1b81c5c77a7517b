"""Vectors that are taken over from an earlier output: of documents that are what they were, and of no others."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.store import documents_of, shard_name
from infocse_ray.embedding import writer as writer_module
from infocse_ray.embedding.earlier import Earlier, Reader, _Along, digests_of
from infocse_ray.embedding.index import Embedding
from infocse_ray.embedding.lance_dataset import LanceWriter
from infocse_ray.embedding.numbers import vectors_of
from infocse_ray.embedding.rows import DIGEST, document_schema, sentence_schema
from infocse_ray.embedding.shards import EmbedShards
from infocse_ray.embedding.writer import ParquetWriter
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.errors import DamagedFile
from infocse_ray.settings.embed import Embed
from infocse_ray.stages.stage import look_again, run_stage
from infocse_ray.storage.checksums import checked, read_checked
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet
from tests.unit.indexes import Text, store_of, tiny

WORDS = ["ship", "tide", "storm", "island", "judge", "court", "trial", "bread", "soup", "oven", "moon", "comet"]


def made(number: int, words: int = 0) -> Text:
    """A document of two to four sentences."""
    rng = np.random.default_rng([number, words])
    sentences = [f"The {' and the '.join(rng.choice(WORDS, 3))}." for _ in range(2 + number % 3)]
    return Text(f"d{number}", sentences, f"title {number}")


class Output(NamedTuple):
    """What was written."""

    folder: Storage
    embedding: Embedding
    tokens: int
    """That were embedded for it."""
    counts: dict[str, int]


def write(
    folder: Path, encoder: Path, texts: list[Text], shards: int, reuse: Storage | None = None, **settings: Any
) -> Output:
    """As `infocse embed` does it."""
    asked = {"model": str(encoder), "output": str(folder), "compute": "fp32", "corpus": {"source": "x"}, **settings}
    loaded, output = tiny(encoder), Storage.open(str(folder / "output"))
    embedding = Embedding.of(Embed.model_validate(asked), loaded.fingerprint(), str(folder), loaded.dimension)
    earlier = None if reuse is None else Earlier.of(str(reuse), output, embedding)
    embedding.begin(output)
    saved = EncoderFolder.save(loaded, output / "encoder" / "model")
    annotator = Annotator(saved, "fp32", torch.device("cpu"))
    store, place = store_of(folder, loaded, texts, shards, by_key=True, metadata=embedding.metadata)
    totals: dict[str, int] = {}

    def work(stage: Any) -> dict[str, Any]:
        lance = LanceWriter(stage.folder, output) if embedding.format == "lance" else None
        writer = lance or ParquetWriter(stage.folder, document_schema(embedding))
        for one in EmbedShards(store, place, embedding, writer, earlier)(annotator, list(range(shards))):
            totals.update({name: totals.get(name, 0) + one[name] for name in ("documents", "sentences", "taken")})
        if lance is not None:
            lance.commit("documents", document_schema(embedding), shards)
            if embedding.sentences:
                lance.commit("sentences", sentence_schema(embedding), shards)
        return {**totals, "shards": shards}

    run_stage(output, output / "vectors", "embed", str(folder), work)
    return Output(output, embedding, annotator.tokens, totals)


def read(output: Output, over: str) -> dict[Any, dict]:
    """Rows by id, and number of a sentence."""
    if output.embedding.format == "lance":
        import lance

        table = lance.dataset((output.folder / f"{over}.lance").path).to_table()
    else:
        files = (output.folder / "vectors" / over).files()
        table = pa.concat_tables([pq.read_table((output.folder / "vectors" / over / name).path) for name in files])
    rows, vectors = table.drop_columns("vector").to_pylist(), vectors_of(table)
    return {(r["doc_id"], r.get("number")): r | {"vector": v} for r, v in zip(rows, vectors, strict=True)}


def changed(texts: list[Text]) -> list[Text]:
    """A corpus some days later: six documents went, were changed, or are other sentences of the same text; ten came."""
    words = " ".join(texts[5].sentences).split(" ")
    later = [
        *texts[2:4],
        made(4, 1),
        texts[5]._replace(sentences=[" ".join(words[:4]), *[" ".join(words[4:])] * (len(texts[5].sentences) - 1)]),
        texts[6]._replace(sentences=texts[6].sentences[::-1]),
        texts[7]._replace(sentences=texts[7].sentences[:-1]),
        texts[8]._replace(title="another title"),
        *texts[9:],
    ]
    return [*later, *[made(number) for number in range(100, 110)]]


@pytest.mark.parametrize(
    ("form", "settings"),
    [
        ("parquet", {"precision": "int8", "sentences": True, "reading": "sentences"}),
        ("parquet", {"precision": "fp32", "sentences": False, "reading": "both"}),
        ("lance", {"precision": "fp16", "sentences": True, "reading": "both", "dimensions": 8}),
        ("lance", {"precision": "fp32", "sentences": False, "reading": "whole"}),
    ],
)
@pytest.mark.parametrize(("before", "now"), [(5, 3), (2, 7)])
def test_documents_that_are_what_they_were_keep_their_vectors_and_no_others_do(
    tmp_path: Path, tiny_encoder: Path, monkeypatch, form: str, settings: dict[str, Any], before: int, now: int
):
    if form == "lance":
        pytest.importorskip("lance")
    monkeypatch.setattr(writer_module, "_PART_ROWS", 5)
    settings = {"format": form, **settings}
    texts = [made(number) for number in range(40)]
    first = write(tmp_path / "first", tiny_encoder, texts, before, **settings)
    later = changed(texts)
    second = write(tmp_path / "second", tiny_encoder, later, now, first.folder, **settings)
    anew = write(tmp_path / "anew", tiny_encoder, later, now, **settings)
    assert first.counts["taken"] == anew.counts["taken"] == 0
    assert second.counts == {**anew.counts, "taken": 34}, "40 less two that went and four that changed"
    assert 0 < second.tokens < anew.tokens / 2
    step = 2e-2 if settings["precision"] == "int8" else 2e-3 if settings["precision"] == "fp16" else 1e-5
    for over in ("documents", "sentences") if settings["sentences"] else ("documents",):
        rows, expected, old = read(second, over), read(anew, over), read(first, over)
        assert list(rows) == list(expected), "the same order"
        for name, row in rows.items():
            ours, theirs = row.pop("vector"), expected[name].pop("vector")
            assert {k: v for k, v in row.items() if k != "scale"} == {
                k: v for k, v in expected[name].items() if k != "scale"
            }
            assert np.abs(ours - theirs).max() < step, name
            if name[0] in {text.doc_id for text in [*texts[2:4], texts[8], *texts[9:]]}:
                assert np.array_equal(ours, old[name]["vector"]), "as it was stored"
    if settings["precision"] != "int8" and form == "lance":
        settings["format"] = "parquet"
    elif settings["precision"] != "int8" and importlib.util.find_spec("lance"):
        settings["format"] = "lance"
    third = write(tmp_path / "third", tiny_encoder, later, before, second.folder, **settings)
    assert (third.counts["taken"], third.tokens) == (len(later), 0), "and what was taken over is taken over again"
    for over in ("documents", "sentences") if settings["sentences"] else ("documents",):
        rows, expected = read(third, over), read(second, over)
        assert rows.keys() == expected.keys()
        assert all(np.array_equal(row["vector"], expected[name]["vector"]) for name, row in rows.items())


def test_what_cant_be_taken_over_is_refused(tmp_path: Path, tiny_encoder: Path):
    texts = [made(number) for number in range(4)]
    first = write(tmp_path / "first", tiny_encoder, texts, 2, reading="sentences")

    def refused(match: str, reuse: Storage = first.folder, **settings: Any) -> None:
        given = {"reading": "sentences", **settings}
        with pytest.raises(ValueError, match=match):
            write(tmp_path / "second", tiny_encoder, texts, 2, reuse, **given)

    refused("reuse = '.*': has vectors of precision fp32, which can't be taken over; leave out reuse", precision="fp16")
    refused("has vectors of reading sentences", reading="both")
    refused("has vectors of dimensions all, which", dimensions=8)
    refused("has vectors of compute fp32", compute="bf16")
    refused("has vectors of documents alone, which can't be taken over; leave out reuse", sentences=True)
    refused("reuse = '.*nothing': no vectors are there", Storage.open(str(tmp_path / "nothing")))
    refused("is the output, too; give another output", Storage.open(str(tmp_path / "second" / "output")))
    other = first.embedding._replace(encoder="another")
    with pytest.raises(ValueError, match=r"has vectors of another model .or max_length, pooling or prompts., which"):
        Earlier.of(str(first.folder), Storage.open(str(tmp_path / "o")), other)
    as_before_digests(first.folder / "vectors")
    refused("is of an earlier version, which didn't keep what documents are told by; leave out reuse")
    (first.folder / "vectors" / "stage.json").delete()
    refused("no vectors are there that `infocse embed` has finished")


def as_before_digests(folder: Storage) -> None:
    """Make a finished stage as it was before digests were kept."""
    commit = read_checked(folder / "stage.json")
    del commit["summary"]["taken"]
    for name in commit["files"]:
        if name.startswith("documents/"):
            commit["files"][name] = without_digests(folder / name)
    (folder / "stage.json").write_json(checked(commit))
    look_again()


def without_digests(file: Storage) -> int:
    """A file as it was before they were kept; its bytes."""
    with open_parquet(file) as opened:
        table = opened.read()
    write_parquet(file, table.drop_columns(DIGEST), [len(table)])
    return len(file.read_bytes())


def test_a_damaged_record_of_the_earlier_output_is_refused_by_name(tmp_path: Path, tiny_encoder: Path):
    """Not as damage of this one's, which would be made again."""
    texts = [made(number) for number in range(4)]
    first = write(tmp_path / "first", tiny_encoder, texts, 2)
    file = first.folder / "vectors" / "stage.json"
    file.write_bytes(file.read_bytes()[:-9])
    look_again()
    with pytest.raises(ValueError, match=r"^reuse = .*run its `infocse embed` again") as caught:
        write(tmp_path / "second", tiny_encoder, texts, 2, first.folder)
    assert not isinstance(caught.value, DamagedFile)


def test_a_lance_dataset_that_cant_be_read_any_more_is_embedded(tmp_path: Path, tiny_encoder: Path):
    pytest.importorskip("lance")
    texts = [made(number) for number in range(30)]
    first = write(tmp_path / "first", tiny_encoder, texts, 3, format="lance")
    data = Path((first.folder / "documents.lance" / "data").path)
    next(iter(sorted(data.iterdir()))).unlink()
    second = write(tmp_path / "second", tiny_encoder, texts, 3, first.folder, format="lance")
    assert (second.counts["documents"], second.counts["taken"] < 30) == (30, True)
    assert len(read(second, "documents")) == 30
    shutil.rmtree(data.parent)
    with pytest.raises(ValueError, match=r"^reuse = .*documents\.lance can't be read .*; leave out reuse") as caught:
        write(tmp_path / "third", tiny_encoder, texts, 3, first.folder, format="lance")
    assert not isinstance(caught.value, DamagedFile)


def test_rows_that_nobody_wants_are_not_kept(monkeypatch: pytest.MonkeyPatch):
    """Of a large index few documents may be wanted."""
    tables = [pa.table({"key": np.arange(100 * i, 100 * i + 100)}) for i in range(50)]
    held: list[int] = []
    concat = pa.concat_tables

    def watched(parts: list[pa.Table]) -> pa.Table:
        held.append(sum(map(len, parts)))
        return concat(parts)

    monkeypatch.setattr(pa, "concat_tables", watched)
    along = _Along(iter(tables))
    for wanted in ([7, 1212, 3001], [3002, 3050], [4999], [6000]):
        found = along.of(np.array(wanted))
        assert found is not None
        assert found["key"].to_pylist() == [key for key in wanted if key < 5000]
    assert max(held) < 150, "one row of each of 31 tables, and those behind what was wanted"


def test_another_corpus_is_sent_to_reuse_only_where_that_works(tmp_path: Path, tiny_encoder: Path):
    first = write(tmp_path / "first", tiny_encoder, [made(0)], 1, reading="sentences")

    def told(**changed: Any) -> str:
        with pytest.raises(ValueError, match="has vectors of corpus another, not this") as caught:
            first.embedding._replace(corpus="other", **changed).begin(first.folder)
        return str(caught.value)

    assert told().endswith("only what changed is embedded")
    assert told(precision="fp16").endswith("or remove that one")
    assert told(sentences=True).endswith("or remove that one")
    (first.folder / "vectors" / "stage.json").delete()
    assert told().endswith("or remove that one")


def test_what_cant_be_read_any_more_is_embedded(tmp_path: Path, tiny_encoder: Path):
    texts = [made(number) for number in range(30)]
    first = write(tmp_path / "first", tiny_encoder, texts, 3)
    file = first.folder / "vectors" / "documents" / shard_name(1)
    there = len(pq.read_table(file.path))
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 255
    file.write_bytes(bytes(content))
    second = write(tmp_path / "second", tiny_encoder, texts, 3, first.folder)
    assert 0 < there < 30
    assert second.counts["documents"] == 30
    assert 30 - there <= second.counts["taken"] < 30
    assert read(second, "documents").keys() == {(text.doc_id, None) for text in texts}


@pytest.mark.parametrize("form", ["parquet", "lance"])
def test_shards_that_an_earlier_version_began_are_made_again(tmp_path: Path, tiny_encoder: Path, form: str):
    if form == "lance":
        pytest.importorskip("lance")
    output = write(tmp_path / "first", tiny_encoder, [made(number) for number in range(4)], 2, format=form)
    folder = output.folder / "vectors"
    schema = document_schema(output.embedding)
    writer = LanceWriter(folder, output.folder) if form == "lance" else ParquetWriter(folder, schema)
    assert writer.counts(0) is not None
    if isinstance(writer, LanceWriter):
        piece = read_checked(writer.piece(0))
        del piece["counts"]["taken"]
        writer.piece(0).write_json(checked(piece))
    else:
        without_digests(folder / "documents" / shard_name(0))
    assert writer.counts(0) is None
    assert writer.counts(1) is not None


@pytest.mark.parametrize("lost", [0, 2, 4])
def test_a_document_whose_sentences_are_not_all_there_is_embedded(tmp_path: Path, tiny_encoder: Path, lost: int):
    texts = [made(number) for number in (0, 3, 6)]  # of two sentences each
    store, _ = store_of(tmp_path, tiny(tiny_encoder), texts, 1, by_key=True)
    whole = documents_of(pa.concat_tables(list(store.read(0, SPLITS, ["doc_id", "key", "sentences"]))))
    digests = digests_of(whole)
    earlier = pa.table({"key": whole.keys, DIGEST: digests, "sentences": [2, 2, 2], "vector": [1, 2, 3]})
    own = pa.table({"key": np.repeat(whole.keys, 2), "vector": [10, 11, 20, 21, 30, 31]})
    rows = [row for row in range(6) if row != lost]
    taken = Reader(_Along(iter([earlier])), _Along(iter([own.take(rows)])), ["vector"]).find(whole, digests)
    assert taken is not None
    expected = [0, 1, 2]
    expected[lost // 2] = -1
    assert taken.rows.tolist() == expected
    assert taken.sentences is not None
    starts = [taken.sentences["vector"][first].as_py() for first in taken.first_sentences]
    assert [start for i, start in enumerate(starts) if i != lost // 2] == [
        start for i, start in enumerate([10, 20, 30]) if i != lost // 2
    ]


def test_metadata_is_that_of_now_for_documents_and_their_sentences(tmp_path: Path, tiny_encoder: Path):
    texts = [made(number) for number in range(6)]
    asked = {"source": "x", "metadata": {"n": "integer"}}
    first = write(tmp_path / "first", tiny_encoder, texts, 2, sentences=True)
    named = [text._replace(metadata={"n": number}) for number, text in enumerate(texts)]
    second = write(tmp_path / "second", tiny_encoder, named, 2, first.folder, sentences=True, corpus=asked)
    assert second.tokens == 0, "no vector is made anew for it"
    for over in ("documents", "sentences"):
        rows = read(second, over)
        assert {key: row["metadata"]["n"] for key, row in rows.items()} == {key: int(key[0][1:]) for key in rows}
