"""What is found, on Parquet copied into Lance and on Lance itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infocse_ray.embedding.numbers import vector_columns
from infocse_ray.errors import StorageUnavailable
from infocse_ray.search import copied, engine
from infocse_ray.search.engine import Engine
from infocse_ray.search.index import Index
from infocse_ray.storage.folder import Storage
from tests.unit.indexes import TEXTS, write_index

lance = pytest.importorskip("lance")


def random_engine(folder: Path, rows: int, cosine: bool = True) -> tuple[Engine, np.ndarray]:
    vectors = np.random.default_rng(0).standard_normal((rows, 16)).astype(np.float32)
    table = pa.table({"doc_id": [str(i) for i in range(rows)], **vector_columns(vectors, "fp32")})
    return Engine(lance.write_dataset(table, str(folder / "rows.lance")), cosine), vectors


@pytest.mark.parametrize("cosine", [True, False])
def test_an_exact_search_gives_the_most_similar_in_order(tmp_path: Path, cosine: bool):
    searched, vectors = random_engine(tmp_path, 300, cosine)
    query = vectors[7] * 3
    scores = vectors @ query
    if cosine:
        scores /= np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    found = searched.search(query, 5)
    assert not searched.approximate
    best = np.argsort(-scores)[:5]
    assert found["doc_id"].to_pylist() == [str(i) for i in best]
    assert np.abs(found["similarity"].to_numpy() - scores[best]).max() < 1e-4
    assert found.column_names == ["doc_id", "similarity"]


def test_many_vectors_are_indexed_once_and_can_still_be_searched_exactly(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(engine, "EXACT_ROWS", 1_000)
    searched, vectors = random_engine(tmp_path, 2_000)
    assert searched.approximate
    assert "indexing 2,000 vectors, once" in capsys.readouterr().out
    plan = searched._dataset.scanner(nearest={"column": "vector", "q": vectors[0], "k": 3}).explain_plan()
    assert "ANN" in plan
    exact = searched.search(vectors[3], 10, exact=True)["doc_id"].to_pylist()
    near = searched.search(vectors[3], 10)["doc_id"].to_pylist()
    assert exact[0] == near[0] == "3"
    assert len({*exact} & {*near}) >= 8
    again = Engine(lance.dataset(str(tmp_path / "rows.lance")), True)
    assert again.approximate
    assert "indexing" not in capsys.readouterr().out


def test_an_index_that_another_process_built_meanwhile_is_taken(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(engine, "EXACT_ROWS", 1_000)
    plain = lance.LanceDataset.create_index

    def late(self: Any, *given: object, **how: object) -> None:
        plain(lance.dataset(self.uri), *given, **how)
        plain(self, *given, **how)  # whose version is no longer the latest

    monkeypatch.setattr(lance.LanceDataset, "create_index", late)
    searched, vectors = random_engine(tmp_path, 2_000)
    assert searched.approximate
    assert searched.search(vectors[3], 1)["doc_id"].to_pylist() == ["3"]


def test_where_nothing_can_be_written_many_vectors_are_searched_exactly(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(engine, "EXACT_ROWS", 1_000)

    def refuse(*_: object, **__: object) -> None:
        raise OSError("Permission denied")

    monkeypatch.setattr(lance.LanceDataset, "create_index", refuse)
    searched, vectors = random_engine(tmp_path, 2_000)
    assert not searched.approximate
    assert "compared with all vectors: they can't be indexed (Permission denied)" in capsys.readouterr().out
    assert searched.search(vectors[3], 1)["doc_id"].to_pylist() == ["3"]


def test_what_is_asked_for_exactly_is_compared_with_every_vector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"EXACT_ROWS": 1_000, "_LIST_ROWS": 10, "_FEWEST_PROBED": 1, "_PROBED": 0.01}.items():
        monkeypatch.setattr(engine, name, value)
    searched, vectors = random_engine(tmp_path, 2_000)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    missed = 0
    for query in vectors[:5]:
        right = [str(row) for row in np.argsort(-(unit @ query))[:10]]
        assert searched.search(query, 10, exact=True)["doc_id"].to_pylist() == right
        assert searched.candidates(query, None, 10, exact=True)["doc_id"].to_pylist() == right
        assert searched.search_both(query, "", 0.0, 10, exact=True)["doc_id"].to_pylist() == right
        missed += searched.search(query, 10)["doc_id"].to_pylist() != right
    assert missed, "lists that aren't looked into have some"


def test_lists_are_as_many_as_can_be_found():
    assert [engine.lists_for(rows) for rows in (100, 200_000, 4_000_000, 10**8)] == [1, 195, 3906, 4096]


@pytest.mark.parametrize(
    "settings",
    [{}, {"precision": "fp16"}, {"precision": "int8"}, {"format": "lance"}, {"format": "lance", "precision": "fp16"}],
    ids=str,
)
def test_every_way_to_store_gives_the_same_results(tmp_path: Path, tiny_encoder: Path, settings):
    output = write_index(tmp_path, tiny_encoder, sentences=True, **settings)
    index = Index(str(output))
    assert len(index) == len(TEXTS)
    for text in TEXTS:
        hits = index.search(" ".join(text.sentences), top=2)
        assert [hit.rank for hit in hits] == [1, 2]
        assert hits[0].text == " ".join(text.sentences) or hits[0].similarity >= hits[1].similarity
    sentences = Index(str(output), over="sentences")
    assert len(sentences) == sum(len(text.sentences) for text in TEXTS)
    hit = sentences.search("A comet near the star.", top=1)[0]
    assert (hit.doc_id, hit.number, hit.title) == ("sky", 1, "The eclipse")
    assert hit.similarity == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize(
    ("precision", "kind"), [("fp32", pa.float32()), ("fp16", pa.float16()), ("int8", pa.float16())]
)
def test_a_copy_has_the_digits_that_were_stored(tmp_path: Path, tiny_encoder: Path, precision: Any, kind: pa.DataType):
    index = Index(str(write_index(tmp_path, tiny_encoder, precision=precision)), words=0.0)
    assert index.engine._dataset.schema.field("vector").type.value_type == kind


def test_parquet_is_copied_once_and_again_when_it_is_others(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    output = write_index(tmp_path, tiny_encoder)
    Index(str(output))
    copied: list[str] = []
    plain = lance.write_dataset
    monkeypatch.setattr(lance, "write_dataset", lambda *a, **k: copied.append(a[1]) or plain(*a, **k))
    Index(str(output))
    assert copied == []
    (output / "search" / "documents.json").write_bytes(b"{}")
    assert len(Index(str(output)).search("tide", top=9)) == len(TEXTS), "what is there is replaced, not added to"
    assert len(copied) == 1
    (output / "search" / "documents.lance").delete()
    assert len(Index(str(output)).search("tide", top=9)) == len(TEXTS)
    assert len(copied) == 2


def test_two_that_copy_at_the_same_time_both_get_the_copy(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    output = write_index(tmp_path, tiny_encoder)
    plain = lance.write_dataset

    def late(*args: Any, **named: Any) -> None:
        monkeypatch.setattr(lance, "write_dataset", plain)
        Index(str(output))  # the other one, which has copied it meanwhile
        raise OSError("Dataset already exists")

    monkeypatch.setattr(lance, "write_dataset", late)
    assert len(Index(str(output)).search("tide", top=9)) == len(TEXTS)
    (output / "search" / "documents.json").delete()
    monkeypatch.setattr(copied, "_PATIENCE", 0.2)
    monkeypatch.setattr(lance, "write_dataset", lambda *_, **__: exec("raise OSError('full')"))
    with pytest.raises(OSError, match="full"):
        Index(str(output))


def test_the_same_share_of_the_lists_is_looked_into_where_an_earlier_version_made_more(tmp_path: Path, monkeypatch):
    random_engine(tmp_path, 3000)
    place = str(tmp_path / "rows.lance")
    lance.dataset(place).create_index("vector", "IVF_SQ", metric="cosine", num_partitions=300)
    monkeypatch.setattr(engine, "EXACT_ROWS", 1000)
    monkeypatch.setattr(engine, "_LIST_ROWS", 10)
    monkeypatch.setattr(engine, "_MOST_LISTS", 100)
    asked: list[int] = []

    class Noted:
        def __init__(self) -> None:
            self._dataset = lance.dataset(place)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._dataset, name)

        def to_table(self, nearest: dict[str, Any], **how: Any) -> pa.Table:
            asked.append(nearest["maximum_nprobes"])
            return self._dataset.to_table(nearest=nearest, **how)

    assert len(Engine(Noted(), cosine=True).search(np.ones(16, np.float32), 5)) == 5
    assert asked == [30]


@pytest.mark.parametrize("how", ["a file", "part of a file", "the versions"])
def test_a_damaged_copy_is_made_again(tmp_path: Path, tiny_encoder: Path, how: str, capsys):
    output = write_index(tmp_path, tiny_encoder)
    found = Index(str(output)).search("tide", top=9)
    copy = output / "search" / "documents.lance"
    [name] = (copy / "data").files()
    if how == "a file":
        (copy / "data" / name).delete()
    elif how == "part of a file":
        (copy / "data" / name).write_bytes((copy / "data" / name).read_bytes()[:50])
    else:
        (copy / "_versions").delete()
    assert Index(str(output)).search("tide", top=9) == found
    said = capsys.readouterr().out
    assert "documents.lance" in said
    assert "; it is made again" in said


def test_a_copy_that_can_not_be_looked_at_for_now_is_left_alone(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    output = write_index(tmp_path, tiny_encoder)
    opened = Index(str(output))
    before = (output / "search").files().keys()
    plain = Storage.files

    def away(self: Storage, *arguments: Any) -> Any:
        if self.name == "_versions":
            raise StorageUnavailable("out of reach")
        return plain(self, *arguments)

    monkeypatch.setattr(Storage, "files", away)
    with pytest.raises(StorageUnavailable):
        Index(str(output))
    monkeypatch.undo()
    copy = output / "search" / "documents.lance" / "_versions"
    contents = {name: (copy / name).read_bytes() for name in copy.files()}
    for name in contents:
        (copy / name).write_bytes(b"x")
    with pytest.raises(ValueError, match=r"can't be opened \(.*\); if it is damaged remove it, and it is made again"):
        Index(str(output))
    for name, content in contents.items():
        (copy / name).write_bytes(content)
    assert (output / "search").files().keys() == before
    assert len(opened.search("tide", top=9)) == len(TEXTS)
