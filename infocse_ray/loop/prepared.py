"""A corpus prepared by itself, and what came of it said: the work of `infocse prepare`."""

from __future__ import annotations

from infocse_ray.corpus.prepare import prepare, rejected_rows, show_rejected
from infocse_ray.corpus.source import find_source
from infocse_ray.corpus.unknown import warn_of_unknown
from infocse_ray.encoder.layout import read_prompts
from infocse_ray.encoder.prompts import prompt_tokens
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.encoder.tokenizer import load_tokenizer, tokenizer_json
from infocse_ray.runtime.cluster import connect
from infocse_ray.runtime.progress import say
from infocse_ray.settings.commands import Prepare
from infocse_ray.stages.repair import repairing
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted


@repairing
def prepare_corpus(settings: Prepare) -> None:
    """Prepare and report."""
    source = find_source(settings.corpus)
    folder = resolve_encoder(settings.model)
    tokenizer = tokenizer_json(load_tokenizer(folder, settings.model))
    try:
        read = prompt_tokens(read_prompts(folder), tokenizer).tokenizer
    except ValueError as error:
        raise ValueError(f"model = {settings.model!r}: {error}") from error
    root = Storage.for_runs(settings.storage)
    connect()
    store = prepare(root, settings.corpus, source, read)
    summary = store.summary
    say(f"token store: {store.folder}")
    say(f"{summary['sentences']:,} sentences, {summary['tokens']:,} tokens of type {summary['token_type']}")
    for split, count in summary["documents"].items():
        say(f"{split}: {count:,} documents, {summary['labelled'][split]:,} counterparts to find")
    say(show_rejected(store))
    warn_of_unknown(store, redacted(settings.model))
    if settings.list_rejected:
        for row in rejected_rows(store):
            say(f"{row['file']}\t{row['row']}\t{row['doc_id'] or ''}\t{row['reason']}")
