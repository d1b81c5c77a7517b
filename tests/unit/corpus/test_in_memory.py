"""Documents given from Python: what they may be, that the same are the same source, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import ValidationError

from infocse_ray.corpus import in_memory
from infocse_ray.corpus.documents import document_of
from infocse_ray.corpus.in_memory import corpus_of
from infocse_ray.corpus.registry import KINDS
from infocse_ray.corpus.source import find_source
from infocse_ray.settings import Corpus
from infocse_ray.settings.embed import EveryDocument
from infocse_ray.storage.folder import Storage

TEXTS = ["Eins. Größe.", "Zwei. Drei.", "Vier. Fünf."]
ROWS = [{"key": i, "body": text, "title": None if i else "T", "other": object} for i, text in enumerate(TEXTS)]
NAMED = {"id": "key", "text": "body", "counterpart": "title"}
WANTED = [{"id": i, "text": text, "counterpart": None if i else "T"} for i, text in enumerate(TEXTS)]


def read(corpus: Corpus) -> list[Any]:
    source = find_source(corpus)
    return [
        row.values or row.reason
        for piece in source.pieces
        for row in KINDS["auto"].rows(piece, source.columns, corpus, None)
    ]


@pytest.fixture
def root(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "runs"))


class Dataset:
    """As much of datasets.Dataset as is used, with rows that were selected."""

    __module__ = "datasets.arrow_dataset"

    def __init__(self, table: pa.Table) -> None:
        self.table, self.column_names = table, table.column_names

    def select_columns(self, names: list[str]) -> Dataset:
        return Dataset(self.table.select(names))

    def with_format(self, kind: str) -> Dataset:
        assert kind == "arrow"
        return self

    def iter(self, batch_size: int) -> Iterator[pa.Table]:
        yield from (self.table.slice(begin, batch_size) for begin in range(0, len(self.table), batch_size))


def test_texts_and_lists_of_sentences(root: Storage) -> None:
    assert read(corpus_of(TEXTS, root)) == [{"text": text} for text in TEXTS]
    assert read(corpus_of((text for text in TEXTS), root)) == [{"text": text} for text in TEXTS]
    assert read(corpus_of([["a", "b"], ("c", "d")], root)) == [{"sentences": ["a", "b"]}, {"sentences": ["c", "d"]}]


def test_numpys_texts_are_texts(root: Storage) -> None:
    texts = np.array(["A text. Of two.", "Another one. Of two."])
    assert read(corpus_of(texts, root)) == [{"text": text} for text in texts.tolist()]


@pytest.mark.parametrize("kind", ["dicts", "pandas", "arrow", "datasets"])
def test_tables_have_the_columns_that_are_named(root: Storage, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    table = pa.Table.from_pylist([{k: v for k, v in row.items() if k != "other"} for row in ROWS])
    documents = {"dicts": ROWS, "pandas": pd.DataFrame(ROWS), "arrow": table, "datasets": Dataset(table)}[kind]
    monkeypatch.setattr(in_memory, "_PART_ROWS", 2)
    corpus = corpus_of(documents, root, NAMED)
    assert read(corpus) == WANTED
    assert corpus.text == "body"
    # What there is once is there once, whatever it came in.
    assert corpus.source == corpus_of(ROWS, root, NAMED).source
    assert corpus_of(ROWS[::-1], root, NAMED).source != corpus.source
    with pytest.raises(ValueError, match=r"corpus\.text = 'nope': no such column; there is key, body, title"):
        corpus_of(documents, root, NAMED | {"text": "nope"})
    with pytest.raises(ValueError, match=r"neither a `text` nor a `sentences` column; name one of key, body, title"):
        corpus_of(documents, root)


def test_columns_may_have_numbers_for_names(root: Storage) -> None:
    for documents in (pd.DataFrame(TEXTS), [{0: text} for text in TEXTS]):
        with pytest.raises(ValueError, match=r"name one of 0 with corpus\.text"):
            corpus_of(documents, root)
        assert read(corpus_of(documents, root, {"text": "0"})) == [{"text": text} for text in TEXTS]


def test_frames_with_lists_gaps_and_several_types(root: Storage) -> None:
    frame = pd.DataFrame({"id": ["a", 7], "sentences": [np.array(["x", "y"]), ["z"]], "counterpart": ["q", ["r", "s"]]})
    assert read(corpus_of(frame, root)) == [
        {"id": "a", "sentences": ["x", "y"], "counterpart": ["q"]},
        {"id": "7", "sentences": ["z"], "counterpart": ["r", "s"]},
    ]
    frame = pd.DataFrame({"text": ["a", np.nan, None], "counterpart": ["x", np.nan, pd.NA]})
    nothing = {"text": None, "counterpart": None}
    for documents in (frame, frame.to_dict("records")):
        assert read(corpus_of(documents, root)) == [{"text": "a", "counterpart": "x"}, nothing, nothing]


@pytest.mark.parametrize("make", [list, pd.DataFrame])
def test_ids_may_be_hashes_of_any_length(root: Storage, make: Any) -> None:
    ids = [2**63, 2**64, 7, None]
    documents = [{"id": one, "text": "A ship. A judge."} for one in ids]
    corpus = corpus_of(make(documents).astype({"id": object}) if make is pd.DataFrame else documents, root)
    assert [document_of(row, corpus)["doc_id"] for row in read(corpus)[:3]] == [str(one) for one in ids[:3]]
    with pytest.raises(ValueError, match="'text' can't be read"):
        corpus_of([{"id": "a", "text": 2**64}], root)


def test_integers_that_pandas_made_floats_are_integers_as_ids(root: Storage) -> None:
    frame = pd.DataFrame({"id": [1, None, 3], "sentences": [["a", "b"]] * 3})
    assert frame["id"].dtype == float
    corpus = corpus_of(frame, root)
    assert [document_of(row, corpus)["doc_id"] for row in read(corpus) if row["id"] is not None] == ["1", "3"]
    for name in ("id", "key"):
        rows = [{name: 1.0, "text": "A."}, {name: "x", "text": "B."}, {name: None, "text": "2.0"}]
        assert [row["id"] for row in read(corpus_of(rows, root, {"id": name}))] == ["1", "x", None]


def test_the_same_documents_are_the_same_source_written_once(root: Storage, tmp_path: Path) -> None:
    first = corpus_of(TEXTS, root)
    (folder,) = (tmp_path / "runs" / "sources").iterdir()
    assert str(folder) == first.source
    times = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    again = corpus_of(list(TEXTS), root)
    assert (again, {file: file.stat().st_mtime_ns for file in folder.iterdir()}) == (first, times)
    # In another storage, at another time, too: the stages that it leads to are the same.
    elsewhere = corpus_of(TEXTS, Storage.open(str(tmp_path / "elsewhere")))
    assert elsewhere.source != first.source
    assert find_source(elsewhere).fingerprint == find_source(first).fingerprint
    other = corpus_of([*TEXTS[:2], "Vier. Sechs."], root)
    assert find_source(other).fingerprint != find_source(first).fingerprint


def test_what_is_interrupted_leaves_nothing_that_is_taken_for_whole(
    root: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(in_memory, "_move", interrupted)
        with pytest.raises(KeyboardInterrupt):
            corpus_of(TEXTS, root)
    assert list((tmp_path / "runs" / "sources").iterdir()) == []
    assert read(corpus_of(TEXTS, root)) == [{"text": text} for text in TEXTS]


def test_a_remote_storage_takes_them_too() -> None:
    storage = Storage.open("memory://in-memory-test/runs")
    assert read(corpus_of(TEXTS, storage)) == [{"text": text} for text in TEXTS]


def test_text_that_is_not_utf8_is_set_aside_by_the_stage(root: Storage) -> None:
    assert read(corpus_of(["A. B.", "\ud800. C."], root)) == [{"text": "A. B."}, "not UTF-8"]
    assert read(corpus_of([["A."], ["\ud800"]], root)) == [{"sentences": ["A."]}, "not UTF-8"]


def test_paths_stay_paths(root: Storage, tmp_path: Path) -> None:
    for paths, source in (
        ("news", "news"),
        (tmp_path, str(tmp_path)),
        ([tmp_path], [str(tmp_path)]),
        (["a.csv", "news/*.jsonl.gz"], ["a.csv", "news/*.jsonl.gz"]),
    ):
        assert corpus_of(paths, root, {"encoding": "cp1252"}).source == source
    assert not (tmp_path / "runs").exists()
    assert read(corpus_of(["See a.txt", "A. B."], root)) == [{"text": "See a.txt"}, {"text": "A. B."}]


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        (3, "are of type int; give a list of texts"),
        (None, "are of type NoneType; give a list"),
        (b"abc", "are of type bytes; give"),
        ({"text": ["A."]}, "are of type dict; give"),
        ({"A. B."}, "are of type set; give"),
        (["A. B.", 3], "item 1 is a int and item 0 a str; give all of one kind"),
        ([3], "item 0 is a int; give a list of texts"),
        ([], "there are none"),
        (pd.DataFrame({"text": []}), "there are none"),
        (pd.DataFrame([]), "^documents: there are none, or they have no columns; give some"),
        ([{}], "^documents: there are none, or they have no columns"),
        ("", "is an empty str, which names no file; give a list of texts, or paths"),
        ("One text.\nAnother.", "is a str, which names files, and is no path; give a list of texts"),
        ([{"text": {"a": 1}}, {"text": "b"}], "'text' can't be read: .*; give a text, or a list of texts"),
        ([["a", 3]], "'sentences' can't be read"),
        (pd.DataFrame([[1, 2]], columns=["text", "text"]), "have several columns 'text'"),
    ],
)
def test_what_is_no_documents_is_refused(root: Storage, tmp_path: Path, documents: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        corpus_of(documents, root)
    assert not list((tmp_path / "runs").glob("sources/*"))


def test_several_splits_are_refused(root: Storage) -> None:
    kind = type("DatasetDict", (dict,), {"__module__": "datasets.dataset_dict"})
    with pytest.raises(
        ValueError, match=r"are of type datasets\.dataset_dict\.DatasetDict; .*; choose one of its splits: tr"
    ):
        corpus_of(kind(train=[]), root)


def test_settings_that_do_not_go_with_them_are_refused(root: Storage) -> None:
    for settings, said in (
        ({"source": "a"}, "corpus.source: the documents are given"),
        ({"kind": "mind"}, "corpus.kind = 'mind': is for files"),
        ({"text": "t", "id": "i"}, "corpus.id = 'i': a list of texts has no such column"),
        ({"lanes": 0}, "lanes"),
    ):
        with pytest.raises(ValueError, match=said):
            corpus_of(TEXTS, root, settings)


def test_settings_take_paths_and_no_tables() -> None:
    assert Corpus.model_validate({"source": Path("a/b")}).source == "a/b"
    assert Corpus.model_validate({"source": ["a", Path("b")]}).source == ["a", "b"]
    for wrong in (pd.DataFrame({"text": TEXTS}), {"text": TEXTS}, (text for text in TEXTS)):
        with pytest.raises(ValidationError, match="settings name files: give paths, or, in Python, give the documents"):
            Corpus.model_validate({"source": wrong})


@pytest.mark.parametrize("form", ["dicts", "pandas", "arrow", "datasets"])
def test_metadata_is_written_with_them(root: Storage, form: str):
    rows = [{"text": text, "year": 2020 + i, "other": "no"} for i, text in enumerate(TEXTS)]
    documents: Any = rows
    if form == "pandas":
        documents = pd.DataFrame(rows)
    elif form != "dicts":
        documents = pa.Table.from_pylist(rows) if form == "arrow" else Dataset(pa.Table.from_pylist(rows))
    corpus = corpus_of(documents, root, {"metadata": {"year": "integer"}}, EveryDocument)
    source = find_source(corpus)
    source.columns["metadata:year"] = "year"
    found = [row.values for row in KINDS["auto"].rows(source.pieces[0], source.columns, corpus, None)]
    assert found == [{"text": text, "metadata:year": 2020 + i} for i, text in enumerate(TEXTS)]
    with pytest.raises(ValueError, match=r"corpus.metadata: no column 'yeer'; there is text, year, other"):
        corpus_of(documents, root, {"metadata": {"yeer": "integer"}}, EveryDocument)


def test_texts_have_no_metadata(root: Storage):
    for documents, what in ((TEXTS, "texts"), ([["Eins."], ["Zwei."]], "lists")):
        with pytest.raises(ValueError, match=rf"corpus.metadata = .*: a list of {what} has no further columns; give d"):
            corpus_of(documents, root, {"metadata": {"x": "text"}}, EveryDocument)


@pytest.mark.parametrize("form", ["dicts", "pandas"])
def test_metadata_of_several_types_is_not_made_one(root: Storage, form: str):
    times = [date(2026, 1, 1), datetime(2026, 1, 2, 10, 30), None]
    rows = [{"text": text, "when": when} for text, when in zip(TEXTS, times, strict=True)]
    documents: Any = rows
    if form == "pandas":
        documents = pd.DataFrame(rows)
        documents["when"] = pd.Series(times, dtype=object)
    corpus = corpus_of(documents, root, {"metadata": {"when": "time"}}, EveryDocument)
    source = find_source(corpus)
    source.columns["metadata:when"] = "when"
    found = [row.values or {} for row in KINDS["auto"].rows(source.pieces[0], source.columns, corpus, None)]
    assert [row["metadata:when"] for row in found] == ["2026-01-01", "2026-01-02T10:30:00", None]


@pytest.mark.parametrize("corpus", [{"text": "body"}, {"text": "body", "id": "key", "metadata": ["year"]}])
def test_an_index_of_a_name_that_is_read_is_a_column(root: Storage, corpus: dict[str, Any]):
    name = corpus.get("id", "id")
    frame = pd.DataFrame({name: [5, 6], "year": ["2020", "2021"], "body": TEXTS[:2]})
    expected = corpus_of(frame, root, corpus, EveryDocument)
    indexed = frame.set_index([name, "year"])
    assert corpus_of(indexed, root, corpus, EveryDocument) == expected
    assert [row["id"] for row in read(expected)] == [5, 6]
    both = frame.set_index(pd.Index([8, 9], name=name))
    assert corpus_of(both, root, corpus, EveryDocument) == expected, "a column of the name is meant"
    assert in_memory._with_index(frame, EveryDocument(source="x", **corpus)) is frame, "nothing is copied for nothing"
    assert [row["text"] for row in read(corpus_of(frame[["body"]], root, {"text": "body"}))] == TEXTS[:2]


def test_columns_that_say_how_often_a_value_comes_are_read(root: Storage):
    ids = pc.run_end_encode(pa.array(["a", "b", "b"]))  # pyright: ignore
    rows = read(corpus_of(pa.table({"id": ids, "text": TEXTS}), root, {}))
    assert [(row["id"], row["text"]) for row in rows] == list(zip("abb", TEXTS, strict=True))


def test_what_documents_from_python_are_is_no_file_that_isnt_read(root: Storage, capsys: pytest.CaptureFixture[str]):
    find_source(corpus_of(TEXTS, root, {}))
    assert capsys.readouterr().out == ""
