"""The validation questions that an export is checked on: the run's, whose model it is, or those of a corpus."""

from __future__ import annotations

from typing import NamedTuple

from infocse_ray.corpus.prepare import prepare
from infocse_ray.corpus.source import find_source
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.reading import ReadAs
from infocse_ray.loop.checks import validation_of
from infocse_ray.loop.its_run import RunOf
from infocse_ray.retrieval.held_out import HeldOut
from infocse_ray.retrieval.validation import On, Questions, questions_for
from infocse_ray.runtime.cluster import connect
from infocse_ray.settings import Corpus, Settings
from infocse_ray.settings.export import Export
from infocse_ray.storage.folder import Storage

MAX_LENGTH = 32
"""Where nobody knows how texts are read, as encoder.max_length has it."""


class Asked(NamedTuple):
    """Validation questions, tokenised."""

    questions: Questions | HeldOut
    on: str
    """What documents must find."""


def max_length_of(settings: Export, read: ReadAs | None) -> int:
    """Tokens that texts are cut to in the check.

    Args:
        settings: of the export.
        read: how documents are read with the encoder, where that is known.
    """
    return settings.max_length or (MAX_LENGTH if read is None else read.max_length)


def corpus_named(settings: Export, run: RunOf | None) -> None:
    """Refuse a check that there is nothing to do with, before any work.

    Raises:
        ValueError: neither is it a run's model nor is a corpus named.
    """
    if not settings.check:
        return
    if settings.corpus.source is not None:
        find_source(_corpus(settings))
    elif run is None or "corpus" not in run.manifest.stages:
        raise ValueError(
            f"model = {settings.model!r}: belongs to no run, so there are no questions to check the export with; name "
            "documents with corpus.source, or give --check false"
        )


def questions(settings: Export, run: RunOf | None, read: ReadAs | None, encoder: SentenceEncoder) -> Asked:
    """Read them.

    Args:
        settings: of the export.
        run: whose model it is.
        read: how documents are read with the encoder, where that is known.
        encoder: what is exported, which has the tokenizer.

    Raises:
        ValueError: there are none.
    """
    store, on, its = _of_corpus(settings, read, encoder) if settings.corpus.source else _of_run(run)
    most, validate = settings.max_documents or its.validate.max_documents, its.validate  # pyright: ignore
    asked = questions_for(
        store,
        "valid",
        on,
        most,
        seed=its.seed,
        max_candidates=validate.max_candidates,
        reading=validate.reading,
    )
    if not asked.doc_ids:
        raise ValueError(
            f"max_documents = {most}, corpus.valid_fraction = {its.corpus.valid_fraction}: no validation document asks "
            f"in the check; raise {'either' if settings.corpus.source else 'the former'}, or give --check false"
        )
    return Asked(asked, on)


_Store = tuple[TokenStore, On, Settings]
"""A corpus, what its documents must find, and how a run asks them."""


def _of_run(run: RunOf | None) -> _Store:
    assert run is not None
    folder = run.manifest.folder(run.root, "corpus")
    try:
        store = TokenStore.open(folder)
    except FileNotFoundError:
        raise ValueError(
            f"{folder}: the run's tokenised corpus is gone; name its documents with corpus.source"
        ) from None
    on: On = "counterpart" if run.manifest.job in ("finetune", "plusplus") else validation_of(run.settings, store)
    return store, on, run.settings


def _of_corpus(settings: Export, read: ReadAs | None, encoder: SentenceEncoder) -> _Store:
    corpus = _corpus(settings)
    connect()
    source = find_source(corpus)
    store = prepare(Storage.for_runs(settings.storage), corpus, source, encoder.corpus_tokenizer())
    given = {"name": "export", "encoder": {"model": settings.model}, "corpus": corpus}
    plain = Settings.model_validate(given | ({} if read is None else {"validate": {"reading": read.reading}}))
    return store, validation_of(plain, store), plain


def _corpus(settings: Export) -> Corpus:
    return Corpus.model_validate(settings.corpus.model_dump())
