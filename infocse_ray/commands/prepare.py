"""Do the corpus stage alone: read, check, split into sentences, tokenise once.

The token store goes to <storage>/corpora/<fingerprint>, where pretrain with the same corpus, encoder and storage
finds it. Rows that make no document are set aside with a reason; --list_rejected prints them.

Example:
  infocse prepare --storage runs --model path/to/encoder --corpus.source 'news/*.jsonl.zst'
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from infocse_ray.commands.job import run_job
from infocse_ray.corpus.prepare import prepare, rejected_rows, show_rejected
from infocse_ray.corpus.source import find_source
from infocse_ray.encoder.layout import read_prompts
from infocse_ray.encoder.model import load_tokenizer, tokenizer_json
from infocse_ray.encoder.prompts import prompt_tokens
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.runtime.cluster import connect
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Corpus, Section
from infocse_ray.stages.repair import repairing
from infocse_ray.storage.folder import Storage


class Prepare(Section):
    """The corpus stage alone."""

    model: str = Field(description="Encoder whose tokenizer is used: a folder, a URI or a hub name.")
    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")
    list_rejected: bool = Field(default=False, description="Print every row set aside: file, row, id, reason.")
    corpus: Corpus


@repairing
def prepare_corpus(settings: Prepare) -> None:
    """Prepare and report."""
    source = find_source(settings.corpus)
    folder = resolve_encoder(settings.model)
    tokenizer = tokenizer_json(load_tokenizer(folder, settings.model))
    try:
        tokenizer = prompt_tokens(read_prompts(folder), tokenizer).tokenizer
    except ValueError as error:
        raise ValueError(f"model = {settings.model!r}: {error}") from error
    root = Storage.for_runs(settings.storage)
    connect()
    store = prepare(root, settings.corpus, source, tokenizer)
    summary = store.summary
    say(f"token store: {store.folder}")
    say(f"{summary['sentences']:,} sentences, {summary['tokens']:,} tokens of type {summary['token_type']}")
    for split, count in summary["documents"].items():
        say(f"{split}: {count:,} documents, {summary['labelled'][split]:,} counterparts to find")
    say(show_rejected(store))
    if settings.list_rejected:
        for row in rejected_rows(store):
            say(f"{row['file']}\t{row['row']}\t{row['doc_id'] or ''}\t{row['reason']}")


_ESSENTIALS = ("model", "corpus.source", "corpus.text", "corpus.counterpart", "storage", "list_rejected")


def main(argv: Sequence[str] | None = None, prog: str = "infocse prepare") -> int:
    """Run it; the exit status."""
    run_job(Prepare, argv, prog, __doc__ or "", prepare_corpus, _ESSENTIALS)
    return 0
