"""Text that a tokenizer doesn't know: counted, said, and shown where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models

from infocse_ray.corpus.documents import tokenise_rows
from infocse_ray.corpus.prepare import ShardWriter
from infocse_ray.corpus.read import SourceRow
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.corpus.unknown import warn_of_unknown
from infocse_ray.settings import Corpus
from infocse_ray.storage.folder import Storage

VOCABULARY = {"a": 0, "b": 1, "[X]": 2}
MODELS: dict[str, tuple[Any, int | None]] = {
    "word pieces": (models.WordPiece(VOCABULARY, unk_token="[X]"), 2),
    "words": (models.WordLevel(VOCABULARY, unk_token="[X]"), 2),
    "byte pairs": (models.BPE(VOCABULARY, [], unk_token="[X]"), 2),
    "byte pairs of all bytes": (models.BPE(VOCABULARY, []), None),
    "unigrams": (models.Unigram([("a", -1.0), ("[X]", -2.0), ("b", -3.0)], unk_id=1), 1),
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_token_for_what_is_unknown(kind: str):
    model, expected = MODELS[kind]
    assert CorpusTokenizer(Tokenizer(model).to_str()).ready().unknown == expected


def test_a_shard_counts_it(tmp_path: Path, tiny_encoder: Path):
    ready = CorpusTokenizer((tiny_encoder / "tokenizer.json").read_text()).ready()
    rows = [SourceRow(i, {"sentences": ["the ship", "\u4e00 \u4e8c tide"]}, None) for i in range(3)]
    rows[2].values["id"] = "other"  # pyright: ignore
    table = tokenise_rows(rows, "f", 0, Corpus(source="x"), ready, pa.uint16(), 1)
    for unknown, count in ((ready.unknown, 4), (None, 0)):
        counted = ShardWriter(Storage.open(str(tmp_path)), Storage.open(str(tmp_path / "lines")), unknown)(0, table)
        assert (counted["unknown"], counted["tokens"]) == (count, 10)


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({"tokens": 100, "unknown": 5}, "5%"),
        ({"tokens": 100, "unknown": 4}, ""),
        ({"tokens": 100}, ""),
        ({"tokens": 0}, ""),
    ],
)
def test_where_it_is_much_it_is_said(summary: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]):
    warn_of_unknown(TokenStore(Storage.open("x"), "f", summary), "m")
    out = capsys.readouterr().out
    assert (
        out.startswith(f"warning: {said} of the corpus' tokens are unknown to the tokenizer of m") if said else not out
    )
