"""A corpus embedded into Parquet or a Lance dataset: the work of `infocse embed`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple, cast

from infocse_ray.annotate.actor import in_actors, told
from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.corpus.metadata import check_types, metadata_columns
from infocse_ray.corpus.prepare import prepare, reading, show_rejected
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.source import Source, find_source
from infocse_ray.corpus.store import TokenStore, shard_name
from infocse_ray.corpus.unknown import warn_of_unknown
from infocse_ray.embedding.earlier import Earlier
from infocse_ray.embedding.encoder import load
from infocse_ray.embedding.index import Embedding
from infocse_ray.embedding.lance_dataset import LanceWriter, forget_lost, require_lance
from infocse_ray.embedding.rows import document_schema, sentence_schema
from infocse_ray.embedding.sampled import write_sampled
from infocse_ray.embedding.shards import EmbedShards
from infocse_ray.embedding.texts import write_texts
from infocse_ray.embedding.writer import ParquetWriter
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import Precision
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.reading import ReadAs
from infocse_ray.loop.its_run import say_unlike_its_run
from infocse_ray.runtime.cluster import Placement, connect, placement, quiet_data
from infocse_ray.runtime.progress import Bar, say
from infocse_ray.runtime.tasks import in_one_task
from infocse_ray.settings import Annotate, Corpus, fingerprint
from infocse_ray.settings.embed import Embed, EveryDocument
from infocse_ray.stages.at_work import at_work
from infocse_ray.stages.lease import Lease
from infocse_ray.stages.repair import repairing
from infocse_ray.stages.shared import check_shared
from infocse_ray.stages.stage import Stage, is_begun, run_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted

_LEASE = ".embed.lease"
"""In an output, while it is written."""


class _Job(NamedTuple):
    """What is to be embedded, by what, where to."""

    settings: Embed
    output: Storage
    corpus: EveryDocument
    """Without splits."""
    source: Source
    """Of what makes documents."""
    shown: Source
    """The same files, metadata read, too."""
    encoder: SentenceEncoder
    embedding: Embedding
    earlier: Earlier | None


@repairing
def embed_corpus(settings: Embed) -> Storage:
    """Embed and report; the output.

    Raises:
        ValueError: a setting doesn't fit, or the output, or what is to be reused, is of other settings.
        RunInUse: another process embeds into it.
    """
    if settings.format == "lance":
        require_lance("format = lance")
    corpus = without_splits(settings.corpus)
    source = find_source(corpus)
    source.columns.pop("split", None)
    shown = replace(source, columns=source.columns | metadata_columns(corpus, source))
    check_types(corpus, shown)
    encoder = load(settings)
    if settings.dimensions is not None and settings.dimensions > encoder.dimension:
        raise ValueError(
            f"dimensions = {settings.dimensions}: {redacted(settings.model)} has {encoder.dimension}; ask for at most "
            "so many"
        )
    embedding = Embedding.of(settings, encoder.fingerprint(), corpus_identity(corpus, source), encoder.dimension)
    output = Storage.lasting(settings.output, "output")
    # What is finished needs nothing any more.
    reuse = None if (output / "vectors" / "stage.json").exists() else settings.reuse
    earlier = None if reuse is None else Earlier.of(reuse, output, embedding)
    Storage.for_runs(settings.output, "output")  # now, so that what is refused leaves no folder
    root = Storage.for_runs(settings.storage)
    # Another's settings, encoder and vectors would be mixed with these.
    with Lease(output / _LEASE, f"output = {str(output)!r}") as lease:
        lease.take()
        known = embedding.begin(output)
        with at_work(root, "embed"):
            _embed_into(_Job(settings, output, corpus, source, shown, encoder, embedding, earlier), root, known)
    return output


def _embed_into(job: _Job, root: Storage, known: bool) -> None:
    settings, output, embedding = job.settings, job.output, job.embedding
    connect()
    where = placement(Annotate(num_workers=settings.num_workers, use_gpu=settings.use_gpu))
    store = prepare(root, job.corpus, job.source, job.encoder.corpus_tokenizer())
    say(f"{store.documents(SPLITS):,} documents; {show_rejected(store)}")
    warn_of_unknown(store, redacted(settings.model))
    say_unlike_its_run(settings, besides=", and another output")
    identity = fingerprint(*embedding.identity(), store.fingerprint)
    if not known:
        embedding.know_again(output, is_begun(output / "vectors", identity))
    _save(job)
    if (output / "vectors" / "stage.json").exists() and not is_begun(output / "vectors", identity):
        raise ValueError(  # an earlier version read the same files otherwise
            f"output = {str(output)!r}: has vectors of other documents than this corpus is read as now; give another "
            "folder, or remove that one"
        )
    if embedding.format == "lance":
        forget_lost(output / "vectors", output, embedding.sentences)
    stage = run_stage(
        output,
        output / "vectors",
        "embed",
        identity,
        lambda stage: _embed(stage, job, store, where),
        piecewise=True,
    )
    counts = stage.summary or {}
    say(
        f"{counts['documents']:,} documents of {counts['sentences']:,} sentences, {embedding.dimension} dimensions, "
        f"{embedding.precision}: {output}"
    )


def without_splits(corpus: EveryDocument) -> EveryDocument:
    """The corpus with all its documents, whatever their split."""
    return corpus.model_copy(update={"split": None, "valid_fraction": 0.0, "test_fraction": 0.0})


def corpus_identity(corpus: Corpus, source: Source) -> str:
    """Names the documents, and what is read of them."""
    return fingerprint("corpus", source.fingerprint, source.columns, reading(corpus))


def _save(job: _Job) -> None:
    """Write the encoder into the output, and how documents are read with it."""

    def save(stage: Stage) -> dict[str, Any]:
        folder, settings = stage.folder / "model", job.settings
        saved = EncoderFolder.save(job.encoder, folder)
        said = {name: getattr(settings, name) for name in ("reading", "max_length", "similarity")}
        ReadAs(**said, language=job.corpus.language).write(folder)
        return {"max_length": saved.max_length}

    run_stage(job.output, job.output / "encoder", "encoder", fingerprint("encoder", job.embedding.encoder), save)


def _embed(stage: Stage, job: _Job, store: TokenStore, where: Placement) -> dict[str, Any]:
    """Write the vectors of every shard that isn't there; the stage's summary."""
    quiet_data()
    embedding = job.embedding
    texts = stage.folder / "texts"
    write_texts(texts, job.corpus, job.shown, store.shards)
    lance = LanceWriter(stage.folder, job.output) if embedding.format == "lance" else None
    writer = lance or ParquetWriter(stage.folder, document_schema(embedding))
    work = EmbedShards(store, texts, embedding, writer, job.earlier)
    documents = TrainingDocuments(store, list(SPLITS))
    tokens = told(documents.tokens * (2 if embedding.reading == "both" else 1), job.settings.num_workers)
    folder = embedding.encoder_folder(job.output)
    totals: Counter[str] = Counter(documents=0, sentences=0, taken=0)
    bar = Bar("embedding", documents.count, "documents")
    precision = cast(Precision, embedding.compute)
    for counts in in_actors(documents.groups(), folder, precision, where, work, bar.title, tokens=tokens):
        totals.update({name: counts[name] for name in totals})
        bar.to(totals["documents"])
    bar.close()
    if job.earlier is not None:
        say(f"{totals['taken']:,} of {totals['documents']:,} documents keep the vectors that they had")
    if lance is not None:
        check_shared(stage.folder, (f"fragments/{lance.piece(shard).name}" for shard in range(store.shards)), "output")
        lance.commit("documents", document_schema(embedding), store.shards)
        if embedding.sentences:
            lance.commit("sentences", sentence_schema(embedding), store.shards)
    else:
        check_shared(stage.folder, (f"documents/{shard_name(shard)}" for shard in range(store.shards)), "output")
    in_one_task(write_sampled, stage.folder, texts, store.shards, job.corpus.language)
    texts.delete()
    return {**totals, "shards": store.shards}
