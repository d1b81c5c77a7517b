"""Labels in files of their own: joined by id, of either format, with the bad lines such files have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infocse_ray.corpus.source import find_source
from infocse_ray.errors import UnreadableFile
from infocse_ray.settings import Corpus
from tests.conftest import write_jsonl
from tests.unit.corpus.test_corpora import labels_of, lines_of, read

BODY = {"sentences": ["One.", "Two."]}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Three documents, one of which has a counterpart in its own file, and an integer for an id."""
    rows = [{"id": "a", **BODY}, {"id": "b", **BODY, "counterpart": "own"}, {"id": 7, **BODY}]
    return write_jsonl(tmp_path / "docs.jsonl", rows)


def labelled(corpus: Path, rows: list[dict[str, Any]] | Path, **settings: Any) -> list[dict[str, Any]]:
    """The documents with labels from a file of these rows."""
    labels = rows if isinstance(rows, Path) else write_jsonl(corpus.parent / "labels.jsonl", rows)
    documents, reasons = read(corpus, "auto", labels=str(labels), **settings)
    assert reasons == []
    return documents


def counterparts(documents: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {document["doc_id"]: document["counterparts"] for document in documents}


def test_labels_are_joined_by_id(corpus: Path):
    rows = [
        {"id": "a", "counterpart": "first"},
        {"id": "a", "counterpart": ["second", " first ", None]},
        {"id": 7, "counterpart": "seventh"},
    ]
    found = labelled(corpus, rows)
    assert counterparts(found) == {"a": ["first", "second"], "b": [], "7": ["seventh"]}, "b's own is not read"
    assert find_source(Corpus(source=str(corpus), labels=str(corpus.parent / "labels.jsonl"))).columns["counterpart"]


def test_labels_say_splits(corpus: Path):
    rows = [{"id": "a", "counterpart": "x", "split": "dev"}, {"id": "b", "counterpart": "y", "split": "test"}]
    found = {d["doc_id"]: d["split"] for d in labelled(corpus, rows, valid_fraction=0.0, test_fraction=0.0)}
    assert found == {"a": "valid", "b": "test", "7": "train"}, "the unlabelled one's is drawn"


@pytest.mark.parametrize(
    ("own", "of_labels", "split"),
    [
        ("test", "train", "test"),
        ("dev", "test", "test"),
        ("train", "valid", "valid"),
        ("test", None, "test"),
        (float("nan"), "test", "test"),
        ("?", "test", None),
    ],
)
def test_what_a_document_holds_out_its_labels_dont_give_away(
    tmp_path: Path, own: Any, of_labels: str | None, split: str | None
):
    corpus = write_jsonl(tmp_path / "docs.jsonl", [{"id": "a", "split": own, **BODY}])
    labels = write_jsonl(tmp_path / "labels.jsonl", [{"id": "a", "counterpart": "x", "split": of_labels}])
    found, lines = read(corpus, "auto", labels=str(labels))
    assert [(d["split"], d["counterparts"]) for d in found] == ([(split, ["x"])] if split else [])
    assert lines == ([] if split else ["split is none of train, valid, test"])


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_what_late_rows_say_is_read(tmp_path: Path, ending: str):
    """A hundred rows are looked at before; documents of CSV have no other split to bring."""
    documents = [{"id": f"d{number}", **BODY} for number in range(200)]
    corpus = write_jsonl(tmp_path / "docs.jsonl", documents)
    if ending == "csv":
        lines = "".join(f"{one['id']},One. Two.\n" for one in documents)
        corpus = tmp_path / "docs.csv"
        corpus.write_text(f"id,text\n{lines}")
    rows: list[dict[str, Any]] = [{"id": f"d{number}"} for number in range(150)]
    rows += [{"id": f"d{number}", "query": "x", "split": "test"} for number in range(150, 200)]
    labels = write_jsonl(tmp_path / "labels.jsonl", rows)
    settings: dict[str, Any] = {"counterpart": "query", "valid_fraction": 0.0, "test_fraction": 0.0}
    found, _ = read(corpus, "auto", labels=str(labels), **settings)
    assert {d["doc_id"] for d in found if d["split"] == "test"} == {f"d{number}" for number in range(150, 200)}
    assert {d["doc_id"] for d in found if d["counterparts"]} == {f"d{number}" for number in range(150, 200)}


@pytest.mark.parametrize("reverse", [False, True])
def test_a_document_with_labels_of_two_splits_is_in_the_more_held_out(corpus: Path, reverse: bool):
    rows = [
        {"id": "a", "counterpart": "trained on", "split": "train"},
        {"id": "a", "counterpart": "asked", "split": "test"},
        {"id": "a", "counterpart": "of no split"},
        {"id": "b", "counterpart": "validated on", "split": "dev"},
        {"id": "b", "counterpart": "as well", "split": "train"},
    ]
    found = labelled(corpus, rows[::-1] if reverse else rows, valid_fraction=0.0, test_fraction=0.0)
    assert {d["doc_id"]: (d["split"], sorted(d["counterparts"])) for d in found} == {
        "a": ("test", ["asked", "of no split"]),
        "b": ("valid", ["validated on"]),
        "7": ("train", []),
    }
    lines = lines_of(labels_of(Corpus(source=str(corpus), labels=str(corpus.parent / "labels.jsonl"))))
    assert sorted(line[0] for line in lines if "another split" in line[3]) == ["a", "b"]


def test_parquet_labels_with_named_columns(corpus: Path):
    table = pa.table({"doc": ["a", "b", "b"], "title": ["x", "y", "z"]})
    file = corpus.parent / "labels.parquet"
    pq.write_table(table, file, row_group_size=1)
    docs = write_jsonl(corpus.parent / "named.jsonl", [{"doc": "a", **BODY}, {"doc": "b", **BODY}])
    found = labelled(docs, file, id="doc", counterpart="title")
    assert counterparts(found) == {"a": ["x"], "b": ["y", "z"]}


def test_labels_name_documents_whether_their_numbers_are_floats_or_not(tmp_path: Path):
    documents, labels = tmp_path / "docs.parquet", tmp_path / "labels.parquet"
    floats, integers = pa.array([1.0, None, 3.0]), pa.array([1, 2, 3])
    for of_documents, of_labels in ((floats, floats), (floats, integers), (integers, floats)):
        pq.write_table(pa.table({"id": of_documents, "sentences": [["One.", "Two."]] * 3}), documents)
        pq.write_table(pa.table({"id": of_labels, "counterpart": ["x", "y", "z"]}), labels)
        found, _ = read(documents, "auto", labels=str(labels))
        named = counterparts(found)
        assert (named["1"], named["3"]) == (["x"], ["z"])


def test_labels_of_text_files_name_them(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs" / f"{name}.txt").write_text("A sentence. Another one.")
    labels = write_jsonl(tmp_path / "elsewhere.jsonl", [{"file": "two.txt", "query": "q"}])
    documents, _ = read(tmp_path / "docs", "auto", labels=str(labels), id="file", counterpart="query")
    assert counterparts(documents) == {"one.txt": [], "two.txt": ["q"]}


def test_lines_that_give_no_label_are_listed(corpus: Path):
    file = corpus.parent / "labels.jsonl"
    lines = [
        b'{"id": "a", "counterpart": "fine"}',
        b'{"id": "nobody", "counterpart": "x"}',
        b'{"counterpart": "x"}',
        b'{"id": "a", "counterpart": " "}',
        b'{"id": "b", "counterpart": "x", "split": "other"}',
        b"not json",
        b'{"id": "a\\ud800", "counterpart": "x"}',
        b'{"id": "b", "counterpart": ["x", "y\\ud800"]}',
    ]
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    settings = Corpus(source=str(corpus), labels=str(file))
    found = [(doc_id, reason, label) for doc_id, _, _, reason, label in lines_of(labels_of(settings))]
    assert found == [
        ("a", "label of a missing document", True),
        ("nobody", "label of a missing document", True),
        (None, "label without an id", False),
        ("a", "label without a text", False),
        ("b", "split is none of train, valid, test", False),
        (None, "not JSON", False),
        (None, "not UTF-8", False),
        ("b", "not UTF-8", False),
    ]
    assert counterparts(labelled(corpus, file)) == {"a": ["fine"], "b": [], "7": []}


def test_a_missing_number_is_no_id(corpus: Path):
    file = corpus.parent / "labels.parquet"
    pq.write_table(pa.table({"id": [7.0, float("nan")], "counterpart": ["fine", "x"]}), file)
    settings = Corpus(source=str(corpus), labels=str(file))
    found = [(doc_id, reason) for doc_id, _, _, reason, _ in lines_of(labels_of(settings))]
    assert found == [("7", "label of a missing document"), (None, "label without an id")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"labels": "none.jsonl"}, "corpus.labels = 'none.jsonl': no such file"),
        ({"labels": "docs.txt"}, r"corpus\.labels: .*docs\.txt: unknown kind of file"),
        ({"labels": "labels.jsonl", "counterpart": "title"}, r"corpus\.labels: .*labels\.jsonl: no column 'title'"),
        ({"labels": "docs.jsonl"}, r"corpus\.labels: .*docs\.jsonl is a file of corpus.source too"),
        ({"source": "docs.txt", "text_files": "line", "labels": "labels.jsonl"}, "corpus.labels = 'labels.jsonl': the"),
    ],
)
def test_what_can_not_be_joined_is_refused(
    corpus: Path, settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(corpus.parent)
    write_jsonl(corpus.parent / "labels.jsonl", [{"id": "a", "counterpart": "x"}])
    (corpus.parent / "docs.txt").write_text("A line.\n")
    with pytest.raises(ValueError, match=f"^{message}"):
        find_source(Corpus.model_validate({"source": "docs.jsonl", **settings}))


def test_kinds_that_bring_labels_take_no_others():
    with pytest.raises(ValueError, match=r"corpus\.labels = 'x': corpus\.kind = mind brings its labels with it"):
        Corpus(source="a", kind="mind", labels="x")


@pytest.mark.parametrize("name", ["labels.jsonl.gz", "labels.parquet"])
def test_a_label_file_that_can_not_be_read_is_named(corpus: Path, name: str):
    file = corpus.parent / name
    file.write_bytes(b"neither")
    with pytest.raises(UnreadableFile, match=rf"^corpus\.labels: .*{name}: can't be read"):
        find_source(Corpus(source=str(corpus), labels=str(file)))


def test_labels_name_another_corpus(corpus: Path):
    labels = write_jsonl(corpus.parent / "labels.jsonl", [{"id": "a", "counterpart": "x", **BODY}])
    sources: list[dict[str, Any]] = [
        {"source": str(corpus)},
        {"source": str(corpus), "labels": str(labels)},
        {"source": [str(corpus), str(labels)]},
    ]
    found = [find_source(Corpus.model_validate(source)).fingerprint for source in sources]
    assert len(set(found)) == 3, "as labels and as documents the same files are two corpora"
