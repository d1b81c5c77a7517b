"""The texts of a corpus on their way to the shards of its token store."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa

from infocse_ray.corpus.metadata import metadata_columns
from infocse_ray.corpus.source import find_source
from infocse_ray.embedding.embed import without_splits
from infocse_ray.embedding.texts import _read_pieces, _TextWriter, read_texts
from infocse_ray.settings.embed import EveryDocument
from infocse_ray.storage.folder import Storage
from tests.conftest import write_jsonl


def test_the_first_good_row_of_an_id_counts_and_documents_of_one_sentence_do(tmp_path: Path):
    rows = [
        {"id": "a", "sentences": None, "counterpart": "bad"},
        {"id": "a", "sentences": ["One.", " "], "counterpart": ["Title", "another"]},
        {"id": "a", "sentences": ["Later."], "counterpart": "later"},
        {"id": "b", "sentences": ["Two.", "Three  more."]},
    ]
    corpus = without_splits(EveryDocument(source=str(write_jsonl(tmp_path / "c.jsonl", rows))))
    source = find_source(corpus)
    board = SimpleNamespace(add=SimpleNamespace(remote=lambda n: None))
    read = pa.concat_tables([*_read_pieces(source.pieces, source.columns, corpus, [], 1, board)])
    folder = Storage.open(str(tmp_path / "texts"))
    _TextWriter(folder)(0, read.take([2, 1, 0]))
    assert read_texts(folder, 0).to_pylist() == [
        {"doc_id": "a", "title": "Title", "sentences": ["One."]},
        {"doc_id": "b", "title": None, "sentences": ["Two.", "Three more."]},
    ]


def test_metadata_of_the_row_that_counts_is_kept_and_what_is_none_is_counted(tmp_path: Path):
    rows = [
        {"id": "a", "sentences": None, "year": 1},
        {"id": "a", "sentences": ["One."], "year": "2"},
        {"id": "a", "sentences": ["Later."], "year": "never"},
        {"id": "b", "sentences": ["Two."], "year": "soon"},
        {"id": "c", "sentences": ["Three."]},
    ]
    given = EveryDocument(source=str(write_jsonl(tmp_path / "c.jsonl", rows)), metadata={"year": "integer"})
    corpus = without_splits(given)
    source = find_source(corpus)
    columns = source.columns | metadata_columns(corpus, source)
    board = SimpleNamespace(add=SimpleNamespace(remote=lambda n: None))
    read = pa.concat_tables([*_read_pieces(source.pieces, columns, corpus, [], 1, board)])
    folder = Storage.open(str(tmp_path / "texts"))
    assert _TextWriter(folder)(0, read) == {"unfit": {"year": 1}, "examples": {"year": "soon"}}
    kept = {row["doc_id"]: row["metadata"] for row in read_texts(folder, 0).to_pylist()}
    assert kept == {"a": {"year": 2}, "b": {"year": None}, "c": {"year": None}}


def test_splits_and_lengths_leave_nothing_out_unless_asked():
    assert without_splits(EveryDocument(source="x", split="s")).model_dump()["split"] is None
    asked = without_splits(EveryDocument(source="x", min_sentences=3, lanes=2))
    assert (asked.min_sentences, asked.lanes) == (3, 2)
