"""A corpus embedded on Ray, and searched."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import infocse_ray
from infocse_ray.corpus.store import TokenStore
from infocse_ray.embedding import embed as embed_module
from infocse_ray.embedding import sampled
from infocse_ray.embedding.embed import embed_corpus
from infocse_ray.encoder.reading import ReadAs
from infocse_ray.errors import RunInUse
from infocse_ray.loop.its_run import how_read
from infocse_ray.settings.embed import Embed, EveryDocument
from infocse_ray.stages.lease import Lease
from infocse_ray.storage.checksums import checked, read_checked
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents, write_jsonl

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.mark.usefixtures("workers_here")
def test_embeds_goes_on_and_finds(tiny_encoder: Path, tmp_path: Path, capsys):
    pytest.importorskip("lance")
    documents = [*make_documents(60), {"id": "short", "sentences": ["One comet."], "counterpart": "Alone"}]
    settings = Embed(
        model=str(tiny_encoder),
        output=str(tmp_path / "index"),
        sentences=True,
        storage=str(tmp_path / "runs"),
        num_workers=1,
        corpus=EveryDocument(source=str(write_jsonl(tmp_path / "c.jsonl", documents))),
    )
    output = embed_corpus(settings)
    its = how_read(str(output / "encoder" / "model"))
    assert its == ReadAs(reading="both", max_length=32, similarity="cosine", language="en")
    assert re.search(r"61 documents of \d+ sentences, 32 dimensions, fp32", capsys.readouterr().out)
    names = sorted((output / "vectors").files())
    assert not [name for name in names if name.startswith("texts")], "what only the embedding needed is gone"
    read = {over: pq.read_table((output / "vectors" / over).path) for over in ("documents", "sentences")}
    assert sorted(read["documents"]["doc_id"].to_pylist()) == sorted(one["id"] for one in documents)
    texts = dict(zip(read["documents"]["doc_id"].to_pylist(), read["documents"]["text"].to_pylist(), strict=True))
    assert all(texts[one["id"]] == " ".join(one["sentences"]) for one in documents)
    assert len(read["sentences"]) == sum(len(one["sentences"]) for one in documents)
    kept = pq.read_table((output / "vectors" / "sampled.parquet").path)["sentences"].to_pylist()
    assert sorted(kept) == sorted(one["sentences"] for one in documents if len(one["sentences"]) > 1)
    before = {name: (output / "vectors" / name).read_bytes() for name in names}
    lost = next(name for name in names if name.startswith("documents/"))
    (output / "vectors" / lost).delete()
    from infocse_ray.stages.stage import look_again

    look_again()
    embed_corpus(settings)
    after = {name: (output / "vectors" / name).read_bytes() for name in sorted((output / "vectors").files())}
    changed = {name for name in before if before[name] != after[name]}
    assert before.keys() == after.keys()
    assert changed <= {"stage.json", "started.json"}, "what was lost is as it was"
    hit = infocse_ray.Index(str(tmp_path / "index"), over="sentences").search("One comet.", top=1)[0]
    assert (hit.doc_id, hit.number, hit.title) == ("short", 0, "Alone")
    with pytest.raises(ValueError, match="has vectors of precision fp32, not fp16"):
        embed_corpus(settings.model_copy(update={"precision": "fp16"}))


@pytest.mark.usefixtures("workers_here")
def test_an_output_is_one_process_s_at_a_time_and_of_one_reading_of_the_corpus(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    looked: list[str] = []
    monkeypatch.setattr(embed_module, "check_shared", lambda folder, names, setting: looked.extend([*names, setting]))
    settings = Embed(
        model=str(tiny_encoder),
        output=str(tmp_path / "index"),
        storage=str(tmp_path / "runs"),
        num_workers=1,
        corpus=EveryDocument(source=str(write_jsonl(tmp_path / "c.jsonl", make_documents(8)))),
    )
    output = Storage.open(settings.output)
    with Lease(output / ".embed.lease", "another") as lease:
        lease.take()
        with pytest.raises(RunInUse, match=r"^output = '.*index': another driver is at work on it"):
            embed_corpus(settings)
        assert not (output / "embedding.json").exists(), "what is asked for is the other's business"
    embed_corpus(settings)
    assert not (output / ".embed.lease").exists()
    assert looked == [*sorted(n for n in (output / "vectors").files() if n.startswith("documents/")), "output"]
    commit = read_checked(output / "vectors" / "stage.json")
    (output / "vectors" / "stage.json").write_json(checked(commit | {"fingerprint": "of an earlier version"}))
    with pytest.raises(ValueError, match=r"has vectors of other documents than this corpus is read as now; give anoth"):
        embed_corpus(settings)
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert names == ["embedding.json", "encoder", "stages", "vectors"], "nothing is put beside"


def test_documents_from_python_into_lance(tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lance = pytest.importorskip("lance")
    monkeypatch.setattr(sampled, "read_texts", lambda *_: pytest.fail("the driver reads a shard, which may be 1 GiB"))
    told: list[float] = []
    in_actors = embed_module.in_actors

    def telling(*arguments: Any, tokens: float) -> Any:
        told.append(tokens)
        return in_actors(*arguments, tokens=tokens)

    monkeypatch.setattr(embed_module, "in_actors", telling)
    table = pa.table({"id": ["x", "y"], "text": ["A ship. The tide.", "A judge. The law."]})
    place = infocse_ray.embed(
        str(tiny_encoder), table, output=str(tmp_path / "o"), storage=str(tmp_path / "r"), format="lance"
    )
    assert sorted(lance.dataset(f"{place}/documents.lance").to_table()["doc_id"].to_pylist()) == ["x", "y"]
    assert infocse_ray.Index(place).search("the tide", top=2)[0].doc_id in ("x", "y")
    (corpus,) = (tmp_path / "r" / "corpora").iterdir()
    assert told == [2 * TokenStore.open(Storage.open(str(corpus))).summary["tokens"]], "sentences, and documents whole"
    output = Storage.open(place)
    commit = read_checked(output / "vectors" / "stage.json")
    (output / "vectors" / "stage.json").write_json(checked(commit | {"fingerprint": "of an earlier version"}))
    (output / "documents.lance" / "data").delete()
    with pytest.raises(ValueError, match="has vectors of other documents than this corpus is read as now"):
        infocse_ray.embed(
            str(tiny_encoder), table, output=str(tmp_path / "o"), storage=str(tmp_path / "r"), format="lance"
        )
    assert (output / "vectors" / "stage.json").exists(), "what is another's isn't made again"


@pytest.mark.usefixtures("workers_here")
def test_a_grown_corpus_keeps_the_vectors_of_what_it_had(tiny_encoder: Path, tmp_path: Path, capsys):
    documents = make_documents(30)
    corpus = {"sentences": "sentences", "counterpart": "counterpart"}
    given: dict[str, Any] = {"storage": tmp_path / "r", "num_workers": 1, "corpus": corpus}
    infocse_ray.embed(tiny_encoder, documents, output=tmp_path / "monday", **given)
    later = [documents[0] | {"sentences": ["Something else.", "Altogether."]}, *documents[1:], *make_documents(33)[30:]]
    with pytest.raises(ValueError, match=r"has vectors of corpus another, .* with reuse = '.*monday' only what"):
        infocse_ray.embed(tiny_encoder, later, output=tmp_path / "monday", **given)
    capsys.readouterr()
    place = infocse_ray.embed(tiny_encoder, later, output=tmp_path / "tuesday", reuse=tmp_path / "monday", **given)
    assert "29 of 33 documents keep the vectors that they had" in capsys.readouterr().out
    rows = {
        day: pq.read_table(tmp_path / day / "vectors" / "documents").drop_columns("key").to_pylist()
        for day in ("monday", "tuesday")
    }
    monday, tuesday = ({row["doc_id"]: row for row in rows[day]} for day in ("monday", "tuesday"))
    assert tuesday.keys() == {one["id"] for one in later}
    assert [doc_id for doc_id in monday if tuesday[doc_id] != monday[doc_id]] == [documents[0]["id"]]
    with pytest.raises(ValueError, match="no vectors are there"):
        infocse_ray.embed(tiny_encoder, later, output=tmp_path / "wednesday", reuse=tmp_path / "sunday", **given)
    assert not (tmp_path / "wednesday").exists()
    shutil.rmtree(tmp_path / "monday")
    infocse_ray.embed(tiny_encoder, later, output=place, reuse=tmp_path / "monday", **given)
    infocse_ray.embed(tiny_encoder, later, output=place, **given)
    assert "33 documents of" in capsys.readouterr().out, "the same output, whatever it took over"


@pytest.mark.usefixtures("workers_here")
def test_metadata_goes_with_the_vectors_and_is_that_of_now(tiny_encoder: Path, tmp_path: Path, capsys):
    pytest.importorskip("lance")
    documents = [one | {"year": 2000 + i, "tags": ["a"] * (i % 2)} for i, one in enumerate(make_documents(12))]
    documents[3]["year"] = "long ago"
    given: dict[str, Any] = {"storage": tmp_path / "r", "num_workers": 1, "sentences": True}
    plain = {"sentences": "sentences", "counterpart": "counterpart"}
    wanted = plain | {"metadata": {"year": "integer", "tags": "texts"}}
    infocse_ray.embed(tiny_encoder, documents, output=tmp_path / "monday", corpus=plain, **given)
    place = infocse_ray.embed(
        tiny_encoder, documents, output=tmp_path / "o", corpus=wanted, reuse=tmp_path / "monday", **given
    )
    out = capsys.readouterr().out
    assert "corpus.metadata.year: left out where it is no integer, such as 'long ago' (1 in all)" in out
    assert "12 of 12 documents keep the vectors that they had" in out
    index = infocse_ray.Index(place)
    found = index.search("anything", top=20, where="metadata.year >= 2008 AND array_has(metadata.tags, 'a')")
    assert {hit.doc_id for hit in found} == {documents[9]["id"], documents[11]["id"]}
    unfit = plain | {"metadata": {"counterpart": "time"}}
    with pytest.raises(ValueError, match=r"corpus.metadata.counterpart = time: of 12 documents looked at 12 have none"):
        infocse_ray.embed(tiny_encoder, documents, output=tmp_path / "q", corpus=unfit, **given)
    assert not (tmp_path / "q").exists()
    documents[9]["year"] = 1900
    again = infocse_ray.embed(
        tiny_encoder, documents, output=tmp_path / "p", corpus=wanted, reuse=place, format="lance", **given
    )
    assert "12 of 12 documents keep the vectors that they had" in capsys.readouterr().out
    [hit] = infocse_ray.Index(again, over="sentences").search("anything", top=1, where="metadata.year < 2000")
    assert (hit.doc_id, hit.metadata) == (documents[9]["id"], {"year": 1900, "tags": ["a"]})


def test_a_damaged_note_of_what_was_asked_for_is_written_again(tiny_encoder: Path, tmp_path: Path, capsys):
    documents = make_documents(6)
    given: dict[str, Any] = {"storage": tmp_path / "r", "num_workers": 1, "output": tmp_path / "o"}
    infocse_ray.embed(tiny_encoder, documents, **given)
    note = tmp_path / "o" / "embedding.json"
    whole = note.read_bytes()
    note.write_bytes(whole[:40])
    with pytest.raises(ValueError, match=r"its embedding.json is damaged, and what its vectors are nobody knows; "):
        infocse_ray.embed(tiny_encoder, documents, **given, precision="fp16")
    assert note.read_bytes() == whole[:40]
    infocse_ray.embed(tiny_encoder, documents, **given)
    assert "embedding.json was damaged; it is written again" in capsys.readouterr().out
    assert note.read_bytes() == whole
    assert not list((tmp_path / "o").glob("*.damaged"))
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "embedding.json").write_text("{}")
    with pytest.raises(ValueError, match=r"there is embedding.json in it, which `infocse embed` didn't make; give a"):
        infocse_ray.embed(tiny_encoder, documents, storage=tmp_path / "r", num_workers=1, output=tmp_path / "p")
    assert [file.name for file in (tmp_path / "p").iterdir()] == ["embedding.json"]
