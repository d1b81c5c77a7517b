"""A labelled corpus in BEIR's layout, as it is read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infocse_ray.commands import prepare
from infocse_ray.settings import Corpus
from infocse_ray.storage.folder import Storage
from infocse_ray.suites.beir_layout import read_beir
from infocse_ray.suites.write_beir import empty_folder, write_beir
from tests.conftest import make_documents, write_jsonl


def test_documents_and_their_counterparts(tmp_path: Path):
    rows = [{**d, "split": ("train", "valid", "test")[i % 3]} for i, d in enumerate(make_documents(30))]
    rows[4]["counterpart"] = rows[3]["counterpart"]
    rows[5]["counterpart"] = ["One.", "Two."]
    bad = [{"id": "short", "sentences": ["One."]}, {**rows[0], "sentences": ["Again.", "Again, once."]}]
    source = write_jsonl(tmp_path / "c.jsonl", [*rows, *bad])
    folder = empty_folder(str(tmp_path / "beir"))
    counts = write_beir(Corpus(source=str(source)), folder)
    assert counts == {"documents": 30, "queries": 30, "judgements": 31, "left out": 2}
    whole = read_beir(folder, "all")
    assert (whole.documents, len(whole.queries), whole.notes) == (30, 30, [])
    by_text = dict(zip(whole.queries, whole.query_ids, strict=True))
    assert whole.relevant[by_text[rows[3]["counterpart"]]] == {"doc-00003": 1, "doc-00004": 1}
    assert whole.relevant[by_text["Two."]] == {"doc-00005": 1}
    passages = {passage.doc_id: passage for passage in whole.passages()}
    assert passages["doc-00002"].text == "\n\n".join(rows[2]["sentences"])
    of_test = read_beir(folder, "test")
    assert {doc for docs in of_test.relevant.values() for doc in docs} == {
        r["id"] for r in rows if r["split"] == "test"
    }
    shared = {name: read_beir(folder, name).relevant[by_text[rows[3]["counterpart"]]] for name in ("train", "dev")}
    assert shared["dev"] == {"doc-00003": 1, "doc-00004": 1}, "a hit is one wherever the other document is"
    assert shared["train"] == {"doc-00003": 1}, "what is held out is in no file to train on"
    assert (tmp_path / "beir" / "qrels" / "dev.tsv").exists()


def test_a_text_stays_as_it_is_and_an_id_is_one_cell(tmp_path: Path):
    rows = [{"id": f"a\t{i}", "text": f"One  {i}.\nTwo.", "counterpart": f'"{i}"'} for i in range(2)]
    write_beir(Corpus(source=str(write_jsonl(tmp_path / "c.jsonl", rows))), Storage.open(str(tmp_path / "beir")))
    written = [json.loads(line) for line in (tmp_path / "beir" / "corpus.jsonl").read_text().splitlines()]
    assert written[0] == {"_id": "a 0", "title": "", "text": "One  0.\nTwo."}
    assert read_beir(Storage.open(str(tmp_path / "beir")), "all").notes == []


def test_labels_in_files_of_their_own_are_the_queries(tmp_path: Path):
    rows = [{"id": d["id"], "sentences": d["sentences"]} for d in make_documents(3)]
    labels = write_jsonl(tmp_path / "l.jsonl", [{"id": "doc-00001", "counterpart": "One?", "split": "test"}])
    corpus = Corpus(source=str(write_jsonl(tmp_path / "c.jsonl", rows)), labels=str(labels))
    assert write_beir(corpus, Storage.open(str(tmp_path / "beir")))["judgements"] == 1
    data = read_beir(Storage.open(str(tmp_path / "beir")), "test")
    assert (data.queries, list(data.relevant.values())) == (["One?"], [{"doc-00001": 1}])


def test_it_is_refused_without_counterparts_or_where_files_are(tmp_path: Path):
    rows = [{"id": d["id"], "sentences": d["sentences"]} for d in make_documents(3)]
    corpus = Corpus(source=str(write_jsonl(tmp_path / "c.jsonl", rows)))
    with pytest.raises(ValueError, match="beir: no document has a counterpart"):
        write_beir(corpus, Storage.open(str(tmp_path / "beir")))
    assert not (tmp_path / "beir").exists()
    with pytest.raises(ValueError, match="there are files in it; name a new folder"):
        empty_folder(str(tmp_path))


def test_what_is_no_folder_is_refused_before_the_corpus_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    for beir, said in (
        ("file", "beir = 'file': is a file; name a folder, or a URI"),
        ("", "beir = '': names no folder; give one, or a URI"),
        ("file/below", "beir = 'file/below': can't be written: "),
        ("odd://a", "beir = 'odd://a': odd://a can't be opened: "),
    ):
        with pytest.raises(SystemExit) as ended:
            prepare.main(["--model", "none", "--corpus.source", "none.jsonl", "--beir", beir])
        assert ended.value.code == 2
        [line] = [line for line in capsys.readouterr().err.splitlines() if "loading torch" not in line]
        assert line.startswith(f"infocse prepare: error: {said}")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
