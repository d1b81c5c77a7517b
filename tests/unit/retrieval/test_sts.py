"""Pairs of sentences with scores: as they come in files, and how an encoder agrees with them."""

from __future__ import annotations

import csv
import gzip
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy.stats import spearmanr

from infocse_ray.encoder.load import load_encoder
from infocse_ray.retrieval.sts import StsPairs, read_sts, sts_spearman
from infocse_ray.settings import Encoder
from tests.conftest import TOPICS, topic_sentence

DATA = Path(__file__).parents[3] / "shared" / "data" / "stsb" / "sts-dev.csv"
PAIRS = [(f'a "quoted {i}', f"{i}, and b", i / 2) for i in range(12)]


def expected(found: StsPairs) -> None:
    assert list(zip(found.first, found.second, found.scores.tolist(), strict=True)) == PAIRS


@pytest.mark.parametrize("header", [[], ["score\tid\tsentence2\tSentence1"]])
def test_tab_separated(tmp_path, header):
    rows = [f"{s}\t{n}\t{b}\t{a}" if header else f"{a}\t{b}\t{s}" for n, (a, b, s) in enumerate(PAIRS)]
    (tmp_path / "pairs.tsv").write_text("\n".join(header + rows))
    expected(read_sts(str(tmp_path / "pairs.tsv")))
    (tmp_path / "pairs.csv.gz").write_bytes(gzip.compress("\r\n".join(header + rows).encode()))
    expected(read_sts(str(tmp_path / "pairs.csv.gz")))


def test_the_benchmarks_own_columns_with_licences_at_times(tmp_path):
    rows = [f"news\tMSRpar\t2012\t{n:04}\t{s}\t{a}\t{b}" + "\tlicence" * (n % 3) for n, (a, b, s) in enumerate(PAIRS)]
    (tmp_path / "sts.csv").write_text("\n".join(rows) + "\n")
    expected(read_sts(str(tmp_path / "sts.csv")))


@pytest.mark.parametrize("mark", [",", ";"])
@pytest.mark.parametrize("name", ["pairs.csv", "pairs.txt"])
def test_as_pandas_writes_it(tmp_path, mark, name):
    with open(tmp_path / name, "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=mark)
        writer.writerows(
            [("", "Sentence2", "score", "sentence1"), *((n, b, s, a) for n, (a, b, s) in enumerate(PAIRS))]
        )
    expected(read_sts(str(tmp_path / name)))


def test_json_lines_and_parquet(tmp_path):
    rows = [{"score": s, "sentence1": a, "sentence2": b, "more": 1} for a, b, s in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "pairs.parquet")
    (tmp_path / "pairs.json").write_text(json.dumps(rows, indent=1))
    found = [read_sts(str(tmp_path / name)) for name in ("pairs.jsonl", "pairs.parquet", "pairs.json")]
    for one in found:
        expected(one)
    assert found[0].fingerprint == found[1].fingerprint
    assert found[0].fingerprint != found[0]._replace(scores=found[0].scores + 1).fingerprint


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("pairs.tsv", "a\tb\t1\n" * 9, "9 pairs are too few to correlate anything; give at least 10"),
        ("pairs.tsv", "a\tb\t1\n" * 20, "all 20 pairs have the score 1; give ones that differ"),
        ("pairs.tsv", "a\tb\t1\na\tb\tmuch\n", "row 2: its score 'much' is no number"),
        ("pairs.tsv", "a\tb\tnan\n", "row 1: its score 'nan' is no number"),
        ("pairs.tsv", "a\tb\t1\na\tb\n", "row 2 has 2 tab-separated columns, not 3"),
        ("pairs.tsv", "a\t \t1\n", "row 1 has no text in sentence1 or sentence2"),
        ("pairs.csv", "a,b,1\n", "row 1 has 1 tab-separated columns; give sentence1, sentence2, score"),
        ("pairs.tsv", b"a\t\xff\t1\n", "row 1 is not UTF-8"),
        ("pairs.jsonl", '{"sentence1": "a", "score": 1}', "no column 'sentence2'; there is sentence1, score"),
        ("pairs.jsonl", '{"sentence1": "a"', "row 1 is not JSON"),
        ("pairs.parquet", "PAR0", "can't be read: "),
        ("pairs.csv", "sentence1,sentence2,score\na,b\n", "row 1 has not as many cells as the header"),
        ("pairs.csv", b"sentence1,sentence2,score\na,\xff,1\n", "row 1 is not UTF-8"),
        ("pairs.csv", 'sentence1,sentence2,score\na,"b,1\n', "line 2: unexpected end of data"),
        (
            "pairs.csv",
            "sentence1,sentence2,scores\na,b,1\n",
            "no column 'score'; there is sentence1, sentence2, scores",
        ),
        ("pairs.tsv", "sentence1,sentence2,score\na,b,1\n", "row 1 has 1 tab-separated columns"),
        ("pairs.json", "[1]", "row 1 is not a JSON object"),
        ("pairs.tsv.gz", "no gzip", "can't be read: "),
        ("", "", "no such file; name one with columns sentence1, sentence2, score, or leave it out"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, name, content, said):
    if name:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    uri = str(tmp_path / (name or "none.tsv"))
    with pytest.raises(ValueError, match=r"^validate\.sts = ") as error:
        read_sts(uri)
    assert f"{uri!r}: {said}" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def encoder(tiny_encoder):
    return load_encoder(tiny_encoder, Encoder(model=str(tiny_encoder), max_length=16), cosine=False)


def some_pairs() -> StsPairs:
    draw, scores = random.Random(0), np.random.default_rng(0).normal(size=40)
    texts = [topic_sentence(draw.choice(sorted(TOPICS)), draw) for _ in range(80)]
    return StsPairs(texts[:40], texts[40:], scores)


def test_spearman_of_cosines(encoder, monkeypatch):
    pairs = some_pairs()
    vectors = []
    for texts in (pairs.first, pairs.second):
        inputs = encoder.tokenizer(texts, truncation=True, max_length=16, padding=True, return_tensors="pt")
        with torch.inference_mode():
            vectors.append(encoder(inputs["input_ids"], inputs["attention_mask"]))
    cosines = torch.cosine_similarity(*vectors).double().numpy()
    expected = spearmanr(cosines, pairs.scores)[0]
    assert sts_spearman(encoder, pairs) == pytest.approx(expected, abs=1e-3)
    monkeypatch.setattr("infocse_ray.retrieval.sts.SENTENCES_AT_ONCE", 7)
    assert sts_spearman(encoder, pairs) == pytest.approx(expected, abs=1e-3)
    # Judged as it judges itself, or the other way round.
    assert sts_spearman(encoder, pairs._replace(scores=cosines)) == pytest.approx(1.0, abs=1e-3)
    assert sts_spearman(encoder, pairs._replace(scores=-cosines)) == pytest.approx(-1.0, abs=1e-3)


def test_cosines_that_are_all_the_same_say_nothing(encoder):
    pairs = some_pairs()
    assert sts_spearman(encoder, pairs._replace(first=["The sea."] * 40, second=["The sky."] * 40)) == 0.0


@pytest.mark.skipif(not DATA.exists(), reason="the STS benchmark is not there")
def test_the_benchmark():
    found = read_sts(str(DATA))
    assert len(found.first) == 1500
    assert (found.scores.min(), found.scores.max()) == (0.0, 5.0)
    assert found.first[0] == "A man with a hard hat is dancing."
