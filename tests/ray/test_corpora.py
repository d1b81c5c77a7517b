"""The corpus stage on the paper's corpora: labels from files of their own, looked up by the tasks that read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from infocse_ray.corpus import prepare as prepare_module
from infocse_ray.corpus.prepare import prepare, rejected_rows
from infocse_ray.corpus.schema import SPLITS, stable_hash
from infocse_ray.corpus.source import find_source
from infocse_ray.corpus.store import TokenStore, counterparts_of, documents_of
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.errors import UnreadableFile
from infocse_ray.retrieval.validation import questions_for
from infocse_ray.settings import Corpus
from infocse_ray.storage.folder import Storage

pytestmark = pytest.mark.usefixtures("ray_cluster")

DOCUMENTS = 60


@pytest.fixture(scope="module")
def tokenizer(tiny_encoder: Path) -> str:
    return (tiny_encoder / "tokenizer.json").read_text()


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


@pytest.fixture(scope="module")
def msmarco(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Document i has i % 3 queries; every sixth is of the dev set; 40 labels are of documents that are not there."""
    folder = tmp_path_factory.mktemp("msmarco")
    docs = [f"D{i}\thttp://d\tTitle\tWave {i} and tide. A ship. The old moon {i}." for i in range(DOCUMENTS)]
    write_lines(folder / "msmarco-docs.tsv.gz", [*docs, "D900\thttp://d\tToo few", "D901\thttp://d\tt\tOne sentence."])
    for name, mine in (("doctrain", lambda i: i % 6 != 2), ("docdev", lambda i: i % 6 == 2)):
        asked = [(i, j) for i in range(DOCUMENTS) for j in range(i % 3) if mine(i)]
        write_lines(folder / f"msmarco-{name}-queries.tsv.gz", [f"{i}00{j}\tship of {i} or {j}" for i, j in asked])
        write_lines(folder / f"msmarco-{name}-qrels.tsv.gz", [f"{i}00{j} 0 D{i} 1" for i, j in asked])
    missing = [f"1000 0 D{i} 1" for i in range(1000, 1040)]
    more = ["1000 0 D900 1", "1000 0 D901 1", "nonsense"]
    write_lines(folder / "msmarco-doc-more-qrels.tsv.gz", missing + more)
    return folder


def rows_of(store: TokenStore) -> dict[str, dict[str, Any]]:
    rows = [row for shard in range(store.shards) for t in store.read(shard, SPLITS) for row in t.to_pylist()]
    assert len({row["doc_id"] for row in rows}) == len(rows)
    return {row["doc_id"]: row for row in rows}


def test_a_document_of_several_queries_is_stored_once_and_asks_for_each(msmarco, tokenizer, tmp_path):
    corpus = Corpus(source=str(msmarco), kind="msmarco", lanes=4)
    store = prepare(Storage.open(str(tmp_path)), corpus, find_source(corpus), CorpusTokenizer(tokenizer))
    rows = rows_of(store)
    ready = Tokenizer.from_str(tokenizer)
    assert rows.keys() == {f"D{i}" for i in range(DOCUMENTS)}
    for i in range(DOCUMENTS):
        texts = [f"ship of {i} or {j}" for j in range(i % 3)]
        row = rows[f"D{i}"]
        assert row["counterparts"] == [ready.encode(text, add_special_tokens=False).ids for text in texts]
        assert row["counterpart_keys"] == [stable_hash(text) for text in texts]
        assert (row["split"] == "valid") == (i % 6 == 2)
    # What is trained on: three sentences of each document, however many queries it has.
    assert store.documents(SPLITS) == DOCUMENTS
    assert store.summary["sentences"] == 3 * DOCUMENTS
    tables = [t for shard in range(store.shards) for t in store.read(shard, SPLITS)]
    assert sum(len(documents_of(t).sentences) for t in tables) == 3 * DOCUMENTS
    assert sum(len(counterparts_of(t).tokens) for t in tables) == DOCUMENTS
    assert sum(store.summary["labelled"].values()) == DOCUMENTS
    assert store.summary["labelled"]["valid"] == 2 * DOCUMENTS // 6
    assert len(questions_for(store, "valid", "counterpart").doc_ids) == 2 * DOCUMENTS // 6
    # Labels of nothing, also in shards that no document is in; the label of a document set aside goes with it.
    assert store.summary["rejected"] == {
        "document not of 4 columns": 1,
        "fewer than 2 sentences": 1,
        "qrels line not of `query 0 document relevance`": 1,
        "qrels line of a missing document": 41,
    }
    listed = [row for row in rejected_rows(store) if row["reason"] == "qrels line of a missing document"]
    assert {row["doc_id"] for row in listed} == {"D900"} | {f"D{i}" for i in range(1000, 1040)}
    lines = gzip.decompress((msmarco / "msmarco-doc-more-qrels.tsv.gz").read_bytes()).split(b"\n")
    for row in listed:
        assert Path(row["file"]).name == "msmarco-doc-more-qrels.tsv.gz"
        assert lines[row["row"] - 1] == f"1000 0 {row['doc_id']} 1".encode()


def test_news_get_their_headlines(tokenizer, tmp_path, monkeypatch):
    news = [f"N{i}\tc\ts\tThe old ship {i}\tAbstract\thttps://m/mind/AA{i}.html\t[]\t[]\n" for i in range(30)]
    for folder in ("train", "dev"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "news.tsv").write_text("".join(news))
    bodies = [{"nid": f"AA{i}", "body": [f"Wave {i}.", "A tide."]} for i in range(0, 30, 2)]
    (tmp_path / "msn.json").write_text("[\n" + ",\n".join(map(json.dumps, bodies)) + "\n]")
    corpus = Corpus(source=[str(tmp_path / name) for name in ("train", "dev", "msn.json")], kind="mind", lanes=2)
    store = prepare(Storage.open(str(tmp_path / "runs")), corpus, find_source(corpus), CorpusTokenizer(tokenizer))
    rows = rows_of(store)
    assert {doc_id: row["counterpart_keys"] for doc_id, row in rows.items()} == {
        f"N{i}": [stable_hash(f"The old ship {i}")] for i in range(0, 30, 2)
    }
    assert store.summary["rejected"] == {"news without a crawled body": 15}
    assert {row["doc_id"] for row in rejected_rows(store)} == {f"N{i}" for i in range(1, 30, 2)}
    monkeypatch.setattr(prepare_module, "_prepare", lambda *_, **__: pytest.fail("a job was started"))
    prepare(Storage.open(str(tmp_path / "runs")), corpus, find_source(corpus), CorpusTokenizer(tokenizer))
    (tmp_path / "dev" / "news.tsv").write_text("".join(news[1:]))
    with pytest.raises(pytest.fail.Exception, match="a job was started"):
        prepare(Storage.open(str(tmp_path / "runs")), corpus, find_source(corpus), CorpusTokenizer(tokenizer))


def test_a_label_file_that_can_not_be_read_is_named(msmarco, tokenizer, tmp_path):
    for file in msmarco.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    broken = tmp_path / "msmarco-doctrain-qrels.tsv.gz"
    broken.write_bytes(broken.read_bytes()[:-20])
    corpus = Corpus(source=str(tmp_path), kind="msmarco", lanes=2)
    with pytest.raises(UnreadableFile) as error:
        prepare(Storage.open(str(tmp_path / "runs")), corpus, find_source(corpus), CorpusTokenizer(tokenizer))
    assert str(error.value).startswith(f"corpus.source: {broken}: can't be read: ")
    assert "\n" not in str(error.value)
