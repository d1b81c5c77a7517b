"""Embed a corpus: write a vector for every document, and if asked for every sentence, with ids and texts.

A document's vector is the mean of that of its whole text and of its sentences', unless --reading says else, as
`infocse evaluate` has it. Actors of Ray Data write Parquet shards, or fragments of one Lance dataset; a shard is there
whole or not at all, and the same command goes on. Of a corpus that has grown --reuse takes vectors from an earlier
output. Every document is embedded, of all splits, also those of one sentence. `infocse search` searches the output.

Example:
  infocse embed --model runs/news/model --corpus.source 'news/*.parquet' --corpus.text body \\
      --output s3://bucket/news-vectors --precision fp16
  infocse embed --model runs/news/model --corpus.source 'news/*.parquet' --corpus.text body \\
      --corpus.metadata '{url: text, day: time}' --output news-vectors
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from infocse_ray.commands.job import run_job
from infocse_ray.settings.embed import Embed

_ESSENTIALS = (
    "model",
    "corpus.source",
    "corpus.text",
    "corpus.counterpart",
    "corpus.metadata",
    "output",
    "reuse",
    "sentences",
    "reading",
    "format",
    "precision",
    "dimensions",
)


def main(argv: Sequence[str] | None = None, prog: str = "infocse embed") -> int:
    """Run it; the exit status."""
    run_job(Embed, argv, prog, __doc__ or "", _work, _ESSENTIALS)
    return 0


def _work(settings: Embed) -> None:
    from infocse_ray.embedding.embed import embed_corpus
    from infocse_ray.runtime.progress import say

    embed_corpus(settings)
    say(f"search them: infocse search --index {shlex.quote(settings.output)} 'what you look for'")
