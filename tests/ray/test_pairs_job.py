"""The command that shows pairs, on a corpus of its own."""

import pytest

from infocse_ray.annotate.shown import show_pairs
from infocse_ray.settings import Corpus
from infocse_ray.settings.commands import LookAtPairs
from tests.conftest import make_documents, write_jsonl

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_shows_the_kinds_of_pairs_and_their_text(tiny_encoder, tmp_path, capsys):
    documents = make_documents(60)
    corpus = write_jsonl(tmp_path / "c.jsonl", documents)
    settings = LookAtPairs(
        model=str(tiny_encoder),
        documents=20,
        show=3,
        storage=str(tmp_path / "runs"),
        corpus=Corpus(source=str(corpus), lanes=4),
    )
    show_pairs(settings)
    out = capsys.readouterr().out
    seen, _, shown = out.partition("| pairs |")
    documents_seen = int(seen.split(" documents, ")[0].split()[-1])
    assert 20 <= documents_seen < 60  # whole shards, no more than are needed
    rows = [line for line in out.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows[2:]] == [
        "| edges",
        "| chained",
        "| rest of the document",
        "| other documents",
    ]
    words = {word.lower().strip(".,") for d in documents for s in d["sentences"] for word in s.split()}
    sentences = [line.strip() for line in shown.splitlines() if line.startswith("  ")]
    assert len(sentences) == 6
    assert {word.strip(".,") for s in sentences for word in s.split()} & words
