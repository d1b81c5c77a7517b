"""What a user could take instead of a run: words alone, both ways, and whole documents, beside what the run left."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from infocse_ray.benchmarks.alternatives import run
from infocse_ray.benchmarks.asked_texts import ranks_of
from infocse_ray.benchmarks.by_words import scores_by_words
from infocse_ray.corpus.schema import stable_hash
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.retrieval.validation import questions_for
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import write_parquet
from tests.unit.stores import Written, write_store

pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")

TEXTS = {  # sentences, counterparts, split
    "sea": (["wave tide wave", "ship sail"], ["wave tide"], "test"),
    "court": (["judge law", "the trial"], ["judge", "law trial"], "test"),
    # Its words are all in the sea's counterpart, too, and its own has none of them.
    "other": (["wave tide"], ["moon orbit"], "test"),
    "more": (["moon star", "orbit"], ["star wave"], "train"),
}


def words_in(folder: Storage, tokenizer: Tokenizer) -> TokenStore:
    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    written = [
        Written(name, [ids(s) for s in sentences], counterparts=[ids(c) for c in counterparts], split=split)
        for name, (sentences, counterparts, split) in TEXTS.items()
    ]
    return write_store(folder, written, 2)


def test_ties_count_against_and_other_counterparts_do_not(tmp_path: Path, tiny_encoder: Path):
    tokenizer = Tokenizer.from_file(str(tiny_encoder / "tokenizer.json"))
    store = words_in(Storage.open(str(tmp_path)), tokenizer)
    questions = questions_for(store, "test", "counterpart")
    for name, scores in scores_by_words(questions, store, CorpusTokenizer(tokenizer.to_str()).ready(), "en").items():
        found = sorted(zip(questions.doc_ids, ranks_of(questions, scores).tolist(), strict=True))
        # Both of court's are first: neither is ranked against the other. "moon orbit" shares nothing with its document,
        # as two others, and the sea's and "star wave" do: a tie with nothing counts against.
        assert found == [("court", 1), ("court", 1), ("other", 5), ("sea", 1)], name


def test_runs_beside_it(tmp_path: Path, tiny_encoder: Path, capsys: pytest.CaptureFixture[str]):
    root = Storage.open(str(tmp_path))
    tokenizer = Tokenizer.from_file(str(tiny_encoder / "tokenizer.json"))
    store = words_in(root / "corpora" / "c", tokenizer)
    stage = {"fingerprint": "f", "files": {}}
    (root / "corpora" / "c" / "stage.json").write_json(checked(stage | {"kind": "prepare", "summary": store.summary}))
    asked = [("sea", "wave tide"), ("court", "judge"), ("court", "law trial"), ("other", "moon orbit")]
    for number, name in enumerate(("one", "two")):
        places = {
            "corpus": "corpora/c",
            "iteration_0/encoder": f"{name}/came",
            "start/test": f"{name}/s",
            "iteration_1/test": f"{name}/t",
        }
        stages = {key: {"folder": place} for key, place in places.items()}
        (root / name / "manifest.json").write_json(checked({"format": 2, "stages": stages}))
        for place in ("model", "came/model"):
            shutil.copytree(tiny_encoder, tmp_path / name / place)
        for place, ranks in (("s", [1, 1, 1, 5]), ("t", [1 + 5 * number] * 4)):
            keys = [stable_hash(repr(tokenizer.encode(c, add_special_tokens=False).ids)) for _, c in asked]
            table = pa.table({"doc_id": [d for d, _ in asked], "key": keys, "rank": ranks})
            write_parquet(root / name / place / "ranks" / "part-00000.parquet", table, [len(table)])
    run(asking(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    cells = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:6]] for line in lines if "|" in line
    }
    # Of four questions by words three have rank 1 and one has 5; the trained encoders rank 1 and 6, in the mean.
    assert cells["BM25: counterparts ask"][0].startswith("1.0000")
    assert cells["BM25: counterparts ask"][2].startswith("0.8000")
    # Question by question the start ranks as the words do.
    assert cells["start"] == ["1.0000", same := "+0.0000 (+0.0000 to +0.0000)", "0.8000", same]
    assert cells["iteration_1"][0] == "0.5000"
    assert cells["iteration_1"][2] == f"{(1 + 1 / 6) / 2:.4f}"
    assert cells["iteration_1"][3].startswith(f"{(1 + 1 / 6) / 2 - 0.8:+.4f}")


def test_runs_of_two_corpora_and_unfinished_ones_are_refused(tmp_path: Path):
    root = Storage.open(str(tmp_path))
    for name in ("one", "two"):
        stages = {"corpus": {"folder": f"corpora/{name}"}}
        (root / name / "manifest.json").write_json(checked({"format": 2, "stages": stages}))
    with pytest.raises(
        ValueError, match=r"^--runs: .*one is not finished; give finished runs, as `infocse runs` lists"
    ):
        run(asking(tmp_path))
    for name in ("one", "two"):
        (root / name / "model" / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"--runs: they are of 2 corpora; give runs of one at a time"):
        run(asking(tmp_path))


def asking(folder: Path) -> argparse.Namespace:
    return argparse.Namespace(storage=str(folder), runs=["one", "two"], language="en")
