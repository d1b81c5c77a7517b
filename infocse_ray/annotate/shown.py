"""The pairs that an encoder would be trained on, shown: the work of `infocse pairs`."""

from __future__ import annotations

import numpy as np
import torch

from infocse_ray.annotate.documents import joined
from infocse_ray.annotate.pairs import KINDS, QUANTILES, Pairs, look_at_pairs
from infocse_ray.corpus.copies import without_copies
from infocse_ray.corpus.prepare import prepare
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.source import find_source
from infocse_ray.corpus.store import Documents, TokenStore, documents_of
from infocse_ray.encoder.embed import embed, for_inference
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.runtime.cluster import connect
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Encoder
from infocse_ray.settings.commands import LookAtPairs
from infocse_ray.settings.text import plain
from infocse_ray.stages.at_work import at_work
from infocse_ray.stages.repair import repairing
from infocse_ray.storage.folder import Storage

_MOST_CHARACTERS = 10_000
"""Of a sentence."""


@repairing
def show_pairs(settings: LookAtPairs) -> None:
    """Cluster and print."""
    source = find_source(settings.corpus)
    shape = Encoder(model=settings.model, pooling=settings.pooling, max_length=settings.max_length)
    encoder = load_encoder(resolve_encoder(settings.model), shape, cosine=settings.similarity == "cosine")
    root = Storage.for_runs(settings.storage)
    connect()
    with at_work(root, "pairs"):
        documents = _first(prepare(root, settings.corpus, source, encoder.corpus_tokenizer()), settings.documents)
    documents, distinct = without_copies(documents, encoder.room())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    vectors = embed(for_inference(encoder, settings.precision, device), documents.sentences).vectors
    pairs = look_at_pairs(vectors, documents.offsets, settings.k, settings.seed)
    copies = len(distinct.node) - len(distinct.rows)
    say(
        f"{len(documents.keys):,} documents, {len(distinct.node):,} sentences, {copies:,} of them copies of another of "
        "their document, which are left out\n"
    )
    for line in table(pairs):
        say(line)
    for row in np.linspace(0, len(pairs.shown) - 1, settings.show).round().astype(int) if len(pairs.shown) else []:
        say(f"\n{pairs.cosines[row]:.2f}")
        for sentence in pairs.shown[row]:
            say(f"  {_text(encoder, documents, int(sentence))}")


def table(sample: Pairs) -> list[str]:
    """The kinds of pairs as Markdown."""
    trained = sum(kind.pairs for kind in sample.kinds[:2])
    quartiles = " | ".join(f"cosine at {q:.0%}" for q in QUANTILES)
    lines = [f"| pairs | number | of those trained on | {quartiles} | unrelated |", "| --- |" + " ---: |" * 6]
    for kind in sample.kinds:
        share = f"{kind.pairs / trained:.1%}" if kind.name in KINDS[:2] and trained else ""
        cosines = " | ".join(f"{c:.2f}" for c in kind.cosines) if kind.cosines else " | " * (len(QUANTILES) - 1)
        unrelated = f"{kind.unrelated:.1%}" if kind.cosines else ""
        lines.append(f"| {kind.name} | {kind.pairs:,} | {share} | {cosines} | {unrelated} |")
    return lines


def _first(store: TokenStore, count: int) -> Documents:
    """Documents of the first shards: which a document is in is chance, drawn by its id."""
    parts: list[Documents] = []
    for shard in range(store.shards):
        parts += [documents_of(table) for table in store.read(shard, SPLITS)]
        if sum(len(part.keys) for part in parts) >= count:
            break
    return joined(parts)


def _text(encoder: SentenceEncoder, documents: Documents, sentence: int) -> str:
    """A sentence as far as the encoder reads it, without what a terminal would obey."""
    start, end = documents.sentences.offsets[sentence : sentence + 2]
    most = encoder.room()
    read = encoder.tokenizer.decode(documents.sentences.values[start : min(end, start + most)].tolist())
    return plain(read, _MOST_CHARACTERS) + (" ..." if end - start > most else "")
