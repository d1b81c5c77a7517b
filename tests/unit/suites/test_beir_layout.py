"""Data sets in BEIR's layout: read, counted, and refused in one line."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from infocse_ray.storage.folder import Storage
from infocse_ray.suites import beir_layout
from infocse_ray.suites.beir_layout import BeirSet, beir_folders, read_beir
from tests.unit.suites.data_sets import append, write_set


def read(folder: Path, split: str = "test") -> BeirSet:
    return read_beir(Storage.open(str(folder)), split)


def test_a_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    documents = write_set(tmp_path / "one")
    data = read(tmp_path / "one")
    assert (data.name, data.documents, data.notes) == ("one", 30, [])
    assert data.query_ids == sorted(f"q{d['id']}" for d in documents)
    assert dict(zip(data.query_ids, data.queries, strict=True))["qdoc-00003"] == documents[3]["counterpart"]
    assert data.relevant["qdoc-00003"] == {"doc-00003": 1}
    monkeypatch.setattr(beir_layout, "_BLOCK_BYTES", 700)
    blocks = data.blocks()
    assert len(blocks) > 5
    by_block = [passage for block in blocks for passage in data.passages(block)]
    assert by_block == list(data.passages())
    assert [p.doc_id for p in by_block] == [d["id"] for d in documents]
    assert by_block[3].whole == " ".join(documents[3]["sentences"])
    monkeypatch.setattr(beir_layout, "_MOST_BLOCKS", 4)
    assert len(data.blocks()) == 4


@pytest.mark.parametrize(
    ("ending", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", pa.Codec("zstd").compress)]
)
def test_compressed_is_the_same(tmp_path: Path, ending: str, compress: Callable[[bytes], bytes]):
    write_set(tmp_path / "one")
    plain = read(tmp_path / "one")
    passages = list(plain.passages())
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        file = tmp_path / "one" / name
        Path(f"{file}{ending}").write_bytes(bytes(compress(file.read_bytes())))
        file.unlink()
    packed = read(tmp_path / "one")
    assert len(packed.blocks()) == 1
    assert list(packed.passages(packed.blocks()[0])) == passages
    assert packed.fingerprint == plain.fingerprint


def test_what_cannot_be_used_is_counted(tmp_path: Path):
    write_set(tmp_path)
    append(tmp_path / "corpus.jsonl", "no JSON", {"_id": "empty", "title": "", "text": " "}, {"text": "no id"})
    append(tmp_path / "corpus.jsonl", '{"_id": "half", "text": "\\ud800"}', {"_id": "a\0b", "text": "what ends its id"})
    append(tmp_path / "queries.jsonl", {"_id": "q-blank", "text": " "}, {"_id": "q-zero", "text": "a judge"})
    append(tmp_path / "qrels" / "test.tsv", "unknown\tdoc-00001\t1", "qdoc-00001\tnowhere\t1", "q-zero\tdoc-00001\t0")
    before = read(tmp_path)
    assert before.notes == [
        "5 lines of the corpus without an id or a text",
        "1 lines of queries.jsonl without an id or a text",
        "1 judgements of unknown queries",
        "1 judgements of unknown documents",
        "1 queries without a relevant document",
    ]
    assert (before.documents, len(before.queries)) == (30, 30)
    assert before.relevant["qdoc-00001"] == {"doc-00001": 1}
    append(tmp_path / "corpus.jsonl", {"_id": "nowhere", "text": "the ship"})
    after = read(tmp_path)
    assert after.relevant["qdoc-00001"] == {"doc-00001": 1, "nowhere": 1}
    assert after.fingerprint != before.fingerprint


def test_of_an_id_that_comes_again_the_first_question_counts(tmp_path: Path):
    write_set(tmp_path)
    before = read(tmp_path)
    append(tmp_path / "corpus.jsonl", {"_id": "doc-00001", "text": "other words"}, {"_id": " ", "text": "no id"})
    append(tmp_path / "queries.jsonl", {"_id": "qdoc-00001", "text": "what nobody asked"})
    after = read(tmp_path)
    assert after.notes == [
        "1 lines of the corpus without an id or a text",
        "1 lines of the corpus with an id that another has; the best of them counts",
        "1 lines of queries.jsonl with an id that another has; the first counts",
    ]
    assert after.queries == before.queries


def test_ids_are_the_same_with_space_around_them(tmp_path: Path):
    write_set(tmp_path)
    append(tmp_path / "corpus.jsonl", {"_id": " d1 ", "text": "the ship"})
    append(tmp_path / "queries.jsonl", {"_id": " q1 ", "text": "a ship"})
    append(tmp_path / "qrels" / "test.tsv", " q1 \t d1 \t1")
    data = read(tmp_path)
    assert data.notes == []
    assert data.relevant["q1"] == {"d1": 1}
    assert list(data.passages())[-1].doc_id == "d1"


def test_folders_of_data_sets(tmp_path: Path):
    for name in ("b", "a"):
        write_set(tmp_path / name)
    assert [folder.name for folder in beir_folders(str(tmp_path))] == ["a", "b"]
    assert [folder.name for folder in beir_folders(str(tmp_path / "a"))] == ["a"]
    write_set(tmp_path / "a" / "below")
    assert [folder.name for folder in beir_folders(str(tmp_path / "a"))] == ["a"], "it is one itself"
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match=r"none': no corpus\.jsonl in it, nor in a folder in it; BEIR's layout is"):
        beir_folders(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("queries.jsonl", None, "no queries.jsonl in it"),
        ("qrels/test.tsv", None, "no qrels/test.tsv in it; set qrels to dev or train"),
        ("queries.jsonl", "", "no query of qrels/test.tsv has a relevant document (30 judgements of unknown queries)"),
        ("corpus.jsonl", "{}\n", "corpus.jsonl has no document; a line is a JSON object with _id and text"),
        (
            "qrels/test.tsv",
            "a\tb\tc\nq\td\t1\t2\t3\n",
            "test.tsv, line 2: give a query's id, a document's id and a whole",
        ),
        ("qrels/test.tsv", "a\tb\tc\nq\td\t0.5\n", "test.tsv, line 2: give a query's id, a document's id and a whole"),
        ("qrels/test.tsv", f"a\tb\tc\nq\td\t{2**15}\n", "test.tsv, line 2: give a query's id"),
        ("qrels/test.tsv", "a\tb\tc\nq\td\t1e12\n", "test.tsv, line 2: give a query's id"),
        ("qrels/test.tsv", "a\tb\tc\nq\td\tmuch\n", "test.tsv, line 2: give a query's id, a document's id and a whole"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, file: str, content: str | None, said: str):
    write_set(tmp_path)
    for split in ("dev", "train"):
        (tmp_path / "qrels" / f"{split}.tsv").write_text("")
    (tmp_path / file).unlink() if content is None else (tmp_path / file).write_text(content)
    with pytest.raises(ValueError, match=r"^suite_path = ") as error:
        read(tmp_path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_judgements_without_a_line_that_names_them(tmp_path: Path):
    write_set(tmp_path)
    (tmp_path / "qrels" / "test.tsv").write_text(" qdoc-00001\tdoc-00001 \t2\n")
    before = read(tmp_path)
    assert before.relevant == {"qdoc-00001": {"doc-00001": 2}}
    (tmp_path / "qrels" / "test.tsv").write_text("qdoc-00001\tdoc-00001\t1\n")
    assert read(tmp_path).fingerprint != before.fingerprint, "it is less relevant"


def test_judgements_as_trec_has_them(tmp_path: Path):
    write_set(tmp_path)
    path = tmp_path / "qrels" / "test.tsv"
    _, *lines = path.read_text().splitlines()
    before = read(tmp_path)
    for between in ("0", "Q0"):
        path.write_text("".join(f"{line}\n" for line in (one.replace("\t", f"\t{between}\t", 1) for one in lines)))
        assert read(tmp_path).relevant == before.relevant


def test_of_texts_white_space_is_no_part(tmp_path: Path):
    write_set(tmp_path)
    before = read(tmp_path)
    questions = tmp_path / "queries.jsonl"
    lines = [line for line in questions.read_text().splitlines() if json.loads(line)["_id"] != "qdoc-00001"]
    questions.write_text("\n".join([*lines, json.dumps({"_id": "qdoc-00001", "text": " another \n question "})]))
    data = read(tmp_path)
    assert dict(zip(data.query_ids, data.queries, strict=True))["qdoc-00001"] == "another question"
    assert data.fingerprint != before.fingerprint, "it asks something else"
    append(tmp_path / "corpus.jsonl", {"_id": "untitled", "text": " the ship\n"})
    append(tmp_path / "corpus.jsonl", {"_id": "titled", "title": "\tA ship ", "text": " sails"})
    assert [passage.whole for passage in read(tmp_path).passages()][-2:] == ["the ship", "A ship sails"]


def test_the_order_of_judgements_changes_nothing(tmp_path: Path):
    write_set(tmp_path)
    before = read(tmp_path)
    head, *lines = (tmp_path / "qrels" / "test.tsv").read_text().splitlines()
    (tmp_path / "qrels" / "test.tsv").write_text("\n".join([head, *reversed(lines)]))
    assert read(tmp_path)[3:] == before[3:]
