"""The outer loop (Alg. 1): annotate with the encoder there is, train on the pairs, validate, repeat.

1. f is the starting encoder, iteration 0.
2. Iteration t annotates every document with f (Eq. 4) and trains f on the pairs (Eq. 5).
3. The loop ends when an iteration's validation score doesn't grow; the best encoder comes back.
Every step is a stage: killed anywhere, the same command goes on from there.
"""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from infocse_ray import __version__
from infocse_ray.annotate.annotations import Annotations
from infocse_ray.annotate.stage import annotate
from infocse_ray.cluster import connect, placement
from infocse_ray.corpus.prepare import prepare, show_rejected
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.source import Source, find_source
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.model import SentenceEncoder, load_encoder, tokenizer_json
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.loop.card import model_card
from infocse_ray.loop.evaluate import evaluate
from infocse_ray.loop.first_encoder import FirstEncoder, first_encoder, load_first_encoder, save_first_encoder
from infocse_ray.loop.identity import annotate_identity, run_identity, train_identity
from infocse_ray.loop.manifest import Manifest
from infocse_ray.positives.document import mix
from infocse_ray.progress import say
from infocse_ray.retrieval.validation import On
from infocse_ray.settings import Settings, fingerprint
from infocse_ray.stage import Stage, run_stage
from infocse_ray.storage import Storage
from infocse_ray.train.loop import Training
from infocse_ray.train.trainer import train

_PACKAGES = ("ray", "torch", "transformers", "tokenizers", "numpy", "scipy", "pyarrow")
_FEW_DOCUMENTS = 100


class Inputs(NamedTuple):
    """What a run starts from, checked before anything runs."""

    source: Source
    encoder: SentenceEncoder
    tokenizer: str
    fingerprint: str
    """Of the encoder."""
    first: SentenceEncoder | None = None
    """What annotates the first iteration, if not the encoder."""


def check(settings: Settings) -> Inputs:
    """Find the corpus and load the encoder on this machine.

    Raises:
        ValueError: one line that names the setting, the value and the fix.
    """
    source = find_source(settings.corpus)
    encoder = load_encoder(
        resolve_encoder(settings.encoder.model),
        settings.encoder,
        cosine=settings.train.similarity == "cosine",
    )
    first = load_first_encoder(settings)
    return Inputs(source, encoder, tokenizer_json(encoder.tokenizer), encoder.fingerprint(), first)


def pretrain(settings: Settings) -> dict[str, Any]:
    """Adapt an encoder to a corpus; the result is in `<storage>/<name>/model`.

    Returns:
        The content of `metrics.json`: per iteration the validation and test metrics, counts and seconds per
        stage; `best_iteration`; the settings and versions.

    Raises:
        ValueError: a setting doesn't fit the corpus, the encoder or the cluster; nothing was trained.
        TrainingStopped: training can't go on; what was finished is kept.
    """
    inputs = check(settings)
    root = Storage.open(settings.storage)
    run = root / settings.name
    manifest = Manifest(run)
    first_fingerprint = inputs.first.fingerprint() if inputs.first else None
    identity = run_identity(
        settings, inputs.source.fingerprint, inputs.fingerprint, inputs.tokenizer, first_fingerprint
    )
    if manifest.finished(identity):
        say(f"{run} is finished with these settings; nothing to do. Its encoder is in {run / 'model'}")
        return (run / "metrics.json").read_json()
    Storage.for_runs(settings.storage)
    connect()
    where = {"annotate": placement(settings.annotate), "train": placement(settings.train)}
    manifest.begin(settings.model_dump(mode="json"))

    store = prepare(root, settings.corpus, inputs.source, inputs.tokenizer)
    manifest.add("corpus", Stage("prepare", store.fingerprint, store.folder, store.summary))
    documents = sum(store.summary["documents"].values())
    say(
        f"corpus: {documents:,} documents, {store.summary['sentences']:,} sentences, "
        f"{store.summary['tokens']:,} tokens; {show_rejected(store)}"
    )
    on = validation_of(settings, store)
    splits = training_splits(settings, on)
    check_sizes(settings, store, splits, on, where["train"].workers)

    start = run_stage(
        root,
        run / "iteration_0" / "encoder",
        "encoder",
        fingerprint("encoder", inputs.fingerprint),
        lambda stage: {"max_length": EncoderFolder.save(inputs.encoder, stage.folder / "model").max_length},
    )
    manifest.add("iteration_0/encoder", start)
    encoders = [EncoderFolder(start.folder / "model", inputs.fingerprint, settings.encoder.max_length)]
    first = None
    if inputs.first is not None:
        saved = save_first_encoder(root, run, inputs.first)
        manifest.add("first_encoder", saved)
        first = first_encoder(saved, inputs.first, root, settings, inputs.source, inputs.tokenizer)
    metric = settings.validate.metric
    iterations: list[dict[str, Any]] = [{"iteration": 0}]
    best, best_score = 0, 0.0
    for t in range(1, settings.loop.max_iterations + 1):
        say(f"iteration {t}")
        folder = run / f"iteration_{t}"
        # Later rounds are annotated by the encoder as trained so far.
        by = first if first is not None and t == 1 else FirstEncoder(encoders[-1], None)
        annotated = _annotate(root, folder / "annotations", settings, store, splits, by, where["annotate"], t)
        manifest.add(f"iteration_{t}/annotations", annotated)
        annotations = Annotations.of(annotated)
        counts = annotations.summary
        say(
            f"  annotated: {counts['documents']:,} documents, {counts['clusters']:,} clusters, "
            f"{counts['pairs']:,} pairs "
            f"({annotated.seconds:.0f} s)"
        )
        trained = _train(root, folder / "train", settings, store, annotations, encoders[-1], where["train"], on, t)
        manifest.add(f"iteration_{t}/train", trained)
        summary = trained.summary or {}
        history = {entry["step"]: entry for entry in summary["history"]}
        if t == 1:
            iterations[0]["validation"] = history[0]
            best_score = history[0][metric]
        model = trained.folder / "models" / f"step-{summary['best_step']:08d}"
        encoders.append(EncoderFolder(model, fingerprint("encoder", trained.fingerprint), settings.encoder.max_length))
        iterations.append(
            {
                "iteration": t,
                "validation": history[summary["best_step"]],
                "annotations": {k: v for k, v in counts.items() if k != "pairs_by_lane"},
                "train": {k: v for k, v in summary.items() if k != "history"},
                "history": summary["history"],
                "seconds": {"annotate": annotated.seconds, "train": trained.seconds},
            }
        )
        grew = summary["best"] > best_score
        say(
            f"  trained: {summary['steps']:,} steps, best {metric} {summary['best']:.4f} at step "
            f"{summary['best_step']:,} ({trained.seconds:.0f} s); "
            f"{'better than' if grew else 'no growth over'} {best_score:.4f}"
        )
        if not grew:
            break
        best, best_score = t, summary["best"]
    if store.summary["labelled"]["test"]:
        tested = evaluate(
            root,
            run / "test",
            store,
            encoders,
            "test",
            "counterpart",
            settings.encoder.precision,
            where["train"],
        )
        for entry, stage in zip(iterations, tested, strict=True):
            manifest.add(f"iteration_{entry['iteration']}/test", stage)
            entry["test"] = (stage.summary or {})["metrics"]
    metrics = {
        "name": settings.name,
        "best_iteration": best,
        "validate_on": on,
        "corpus": {
            "documents": documents,
            **{k: store.summary[k] for k in ("sentences", "tokens", "rejected", "seconds")},
        },
        "iterations": iterations,
        "settings": settings.model_dump(mode="json"),
        "versions": versions(),
    }
    _export(encoders[best], run / "model", model_card(settings, metrics))
    (run / "metrics.json").write_json(metrics)
    manifest.finish(identity)
    say(
        f"the best encoder is that of iteration {best}; it is in {run / 'model'}, its figures in {run / 'metrics.json'}"
    )
    return metrics


def validation_of(settings: Settings, store: TokenStore) -> On:
    """What validation documents must find.

    Raises:
        ValueError: counterparts are asked for and no validation document has one.
    """
    asked = settings.validate.on
    labelled = store.summary["labelled"]["valid"]
    if asked == "counterpart" and not labelled:
        raise ValueError(
            "validate.on = counterpart: no validation document has a counterpart; name the column with "
            "corpus.counterpart, raise corpus.valid_fraction, or set validate.on to halves"
        )
    return asked if asked != "auto" else "counterpart" if labelled else "halves"


def training_splits(settings: Settings, on: On) -> list[str]:
    """The splits whose sentences are trained on; documents that validate without labels must stay unseen."""
    if settings.corpus.unlabelled == "train":
        return ["train"]
    return [split for split in SPLITS if on == "counterpart" or split != "valid"]


def check_sizes(settings: Settings, store: TokenStore, splits: list[str], on: On, workers: int) -> None:
    """Refuse, before any GPU time is spent, what the corpus is too small for; warn of a noisy validation.

    Raises:
        ValueError: fewer training documents than pairs in a batch, fewer lanes than workers, no validation.
    """
    training = store.documents(splits)
    if settings.train.batch_size > training:
        raise ValueError(
            f"train.batch_size = {settings.train.batch_size}: the corpus has {training} training documents and a batch "
            f"takes one pair from each; set it to {training} or less"
        )
    if workers > store.summary["lanes"]:
        raise ValueError(
            f"train.num_workers = {workers}: corpus.lanes = {store.summary['lanes']} is the most; raise corpus.lanes"
        )
    held_out = store.summary["labelled" if on == "counterpart" else "documents"]["valid"]
    if held_out < 2:
        raise ValueError(
            f"corpus.valid_fraction = {settings.corpus.valid_fraction}: {held_out} documents to validate on; raise it "
            "or mark more documents valid in the split column"
        )
    if held_out < _FEW_DOCUMENTS:
        say(f"warning: only {held_out} validation documents: recall is known to about {0.5 / held_out**0.5:.2f}")


def _annotate(
    root: Storage,
    folder: Storage,
    settings: Settings,
    store: TokenStore,
    splits: list[str],
    by: FirstEncoder,
    where: Any,
    t: int,
) -> Stage:
    identity = annotate_identity(settings, store.fingerprint, by.encoder.fingerprint, splits)
    work = functools.partial(
        annotate,
        store=store,
        splits=splits,
        encoder=by.encoder,
        settings=settings.annotate,
        seed=settings.seed,
        precision=settings.encoder.precision,
        placement=where,
        title=f"iteration {t}: annotating",
        encoder_store=by.store,
    )
    return run_stage(root, folder, "annotate", identity, work)


def _train(
    root: Storage,
    folder: Storage,
    settings: Settings,
    store: TokenStore,
    annotations: Annotations,
    encoder: EncoderFolder,
    where: Any,
    on: On,
    t: int,
) -> Stage:
    identity = train_identity(settings, annotations.fingerprint, encoder.fingerprint, on, t)
    training = Training(settings, store, annotations, encoder, mix(settings.seed, t), folder, on)
    work = functools.partial(train, training=training, placement=where, title=f"iteration {t}: training")
    return run_stage(root, folder, "train", identity, work)


def _export(encoder: EncoderFolder, target: Storage, card: str) -> None:
    source = encoder.folder.local_copy(encoder.fingerprint)
    with tempfile.TemporaryDirectory() as temporary:
        (Path(temporary) / "README.md").write_text(card)
        target.delete()
        target.upload(source)
        target.upload(temporary)


def versions() -> dict[str, str]:
    """Versions of what computed a result."""
    found = {package: importlib.metadata.version(package) for package in _PACKAGES}
    return {"infocse_ray": __version__, "python": platform.python_version(), **found}
