"""Prepare a corpus and nothing else: read it, check it, split it into sentences, tokenise it once.

The token store goes to <storage>/corpora/<fingerprint>, where pretrain with the same corpus, encoder and storage
finds it. Rows that can't be used are set aside with a reason; --list_rejected prints them. With --beir DIR documents
and counterparts are also written in BEIR's layout, for `infocse evaluate --suite beir`.

Example:
  infocse prepare --storage runs --model path/to/encoder --corpus.source 'news/*.jsonl.zst'
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_job
from infocse_ray.settings.commands import Prepare

_ESSENTIALS = ("model", "corpus.source", "corpus.text", "corpus.counterpart", "storage", "list_rejected", "beir")


def main(argv: Sequence[str] | None = None, prog: str = "infocse prepare") -> int:
    """Run it; the exit status."""
    run_job(Prepare, argv, prog, __doc__ or "", _work, _ESSENTIALS)
    return 0


def _work(settings: Prepare) -> None:
    from infocse_ray.loop.prepared import prepare_corpus
    from infocse_ray.suites.write_beir import empty_folder, write_beir

    folder = None if settings.beir is None else empty_folder(settings.beir)
    prepare_corpus(settings)
    if folder is not None:
        write_beir(settings.corpus, folder)
