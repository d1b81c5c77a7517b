"""The outer loop (Alg. 1): annotate with the encoder there is, train on the pairs, validate, repeat.

1. f is the starting encoder, trained with another strategy first (`loop.initialization`): iteration 0.
2. Iteration t annotates every document with f (Eq. 4) and trains f on the pairs (Eq. 5).
3. The loop ends when an iteration's validation score doesn't grow; the best encoder comes back.
A strategy that needs no annotation trains once. Every step is a stage: killed anywhere, the same command goes on.
"""

from __future__ import annotations

import importlib.metadata
import platform
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from infocse_ray import __version__
from infocse_ray.cluster import connect, placement
from infocse_ray.corpus.prepare import prepare, show_rejected
from infocse_ray.corpus.source import Source, find_source
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.lexicon import Lexicon
from infocse_ray.encoder.model import SentenceEncoder, load_encoder, tokenizer_json
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.loop.card import model_card
from infocse_ray.loop.checks import check_sizes, training_splits, validation_of
from infocse_ray.loop.evaluate import evaluate
from infocse_ray.loop.first_encoder import FirstEncoder, first_encoder, load_first_encoder, save_first_encoder
from infocse_ray.loop.identity import initialization_of, run_identity
from infocse_ray.loop.manifest import Manifest
from infocse_ray.loop.rounds import Rounds, round_report
from infocse_ray.positives.registry import pooling_of, strategy_of
from infocse_ray.positives.strategy import Strategy
from infocse_ray.progress import say
from infocse_ray.settings import Settings, fingerprint
from infocse_ray.stage import Stage, run_stage
from infocse_ray.storage import Storage
from infocse_ray.train.loop import Budget

_PACKAGES = ("ray", "torch", "transformers", "tokenizers", "numpy", "scipy", "pyarrow")


class Inputs(NamedTuple):
    """What a run starts from, checked before anything runs."""

    source: Source
    encoder: SentenceEncoder
    tokenizer: str
    fingerprint: str
    """Of the encoder."""
    annotator: SentenceEncoder | None
    """What annotates the first iteration, if not the encoder."""
    initialization: Strategy | None
    """What the encoder is initialised with."""
    strategy: Strategy | None
    """What it is trained with."""


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
        pooling=pooling_of(settings.train.strategy),
    )
    lexicon = Lexicon.of(encoder)
    strategy = strategy_of(settings.train.strategy, settings, lexicon)
    return Inputs(
        source,
        encoder,
        tokenizer_json(encoder.tokenizer),
        encoder.fingerprint(),
        load_first_encoder(settings) if strategy is not None and strategy.annotated else None,
        strategy_of(initialization_of(settings), settings, lexicon),
        strategy,
    )


def pretrain(settings: Settings) -> dict[str, Any]:
    """Adapt an encoder to a corpus; the result is in `<storage>/<name>/model`.

    Returns:
        The content of `metrics.json`: per iteration the validation and test metrics, counts and seconds per
        stage (iteration 0 is the encoder as it starts or as it is initialised); `best_iteration`; the settings and
        versions.

    Raises:
        ValueError: a setting doesn't fit the corpus, the encoder or the cluster; nothing was trained.
        TrainingStopped: training can't go on; what was finished is kept.
    """
    inputs = check(settings)
    root = Storage.open(settings.storage)
    run = root / settings.name
    manifest = Manifest(run)
    named = inputs.annotator.fingerprint() if inputs.annotator else None
    identity = run_identity(settings, inputs.source.fingerprint, inputs.fingerprint, inputs.tokenizer, named)
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
    trains = inputs.strategy is not None or inputs.initialization is not None
    check_sizes(settings, store, splits, on, where["train"].workers, trains)

    start = run_stage(
        root,
        run / "iteration_0" / "encoder",
        "encoder",
        fingerprint("encoder", inputs.fingerprint),
        lambda stage: {"max_length": EncoderFolder.save(inputs.encoder, stage.folder / "model").max_length},
    )
    manifest.add("iteration_0/encoder", start)
    encoders = [EncoderFolder(start.folder / "model", inputs.fingerprint, settings.encoder.max_length)]
    annotator: FirstEncoder | None = None
    if inputs.annotator is not None:
        saved = save_first_encoder(root, run, inputs.annotator)
        manifest.add("first_encoder", saved)
        annotator = first_encoder(saved, inputs.annotator, root, settings, inputs.source, inputs.tokenizer)
    rounds = Rounds(root, run, settings, store, splits, on, where, annotator)
    iterations: list[dict[str, Any]] = [{"iteration": 0}]
    metric = settings.validate.metric
    loop, most, patience = settings.loop, settings.train, settings.validate.patience  # pyright: ignore
    if inputs.initialization is not None:
        say(f"iteration 0: {initialization_of(settings)}")
        budget = Budget(
            loop.initialization_steps or most.max_steps,
            loop.initialization_tokens or most.max_tokens,
            loop.initialization_patience or patience,
        )
        stages, encoders[0] = _round(rounds, manifest, inputs.initialization, encoders[0], budget, 0)
        iterations[0] = round_report(0, stages)
    best = 0
    for t in range(1, _rounds(settings, inputs.strategy) + 1):
        assert inputs.strategy is not None
        say(f"iteration {t}")
        budget = Budget(most.max_steps, most.max_tokens, patience)
        stages, encoder = _round(rounds, manifest, inputs.strategy, encoders[-1], budget, t)
        encoders.append(encoder)
        iterations.append(round_report(t, stages))
        iterations[0].setdefault("validation", iterations[t]["history"][0])
        before, now = iterations[best]["validation"][metric], iterations[t]["validation"][metric]
        say(f"  {metric}: {now:.4f}, {'better than' if now > before else 'no growth over'} {before:.4f}")
        if now > before:
            best = t
        elif loop.early_stop:
            break
    if "validation" not in iterations[0]:  # nothing was trained
        [validated] = evaluate(
            root, run / "valid", store, encoders, "valid", on, settings.encoder.precision, where["train"]
        )
        manifest.add("iteration_0/valid", validated)
        iterations[0]["validation"] = (validated.summary or {})["metrics"]
    _warn_if_worse(iterations, best, metric)
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


def _warn_if_worse(iterations: list[dict[str, Any]], best: int, metric: str) -> None:
    """Say so when an initialisation did harm that nothing after it made good."""
    start = iterations[0].get("history", [iterations[0]["validation"]])[0][metric]
    if (found := iterations[best]["validation"][metric]) < start:
        say(
            f"warning: the best encoder's {metric} on validation is {found:.4f}, that of the encoder as it came "
            f"{start:.4f}; set loop.initialization to none, or lower train.learning_rate"
        )


def _rounds(settings: Settings, strategy: Strategy | None) -> int:
    """How often to train: what annotates nothing has nothing to repeat."""
    if strategy is None:
        return 0
    return settings.loop.max_iterations if strategy.annotated else 1


def _round(
    rounds: Rounds, manifest: Manifest, strategy: Strategy, encoder: EncoderFolder, budget: Budget, t: int
) -> tuple[dict[str, Stage], EncoderFolder]:
    """One round's finished stages and the encoder that comes out of it."""
    stages: dict[str, Stage] = {}

    def done(name: str, stage: Stage) -> Stage:
        stages[name] = stage
        manifest.add(f"iteration_{t}/{name}", stage)
        return stage

    source = rounds.documents
    if strategy.annotated:
        annotated = done("annotations", rounds.annotate(encoder, t))
        source = rounds.shards(annotated.folder, annotated.fingerprint)
    counted, examples = rounds.count(source, strategy, t)
    done("examples", counted)
    trained = done("train", rounds.train(examples, strategy, encoder, budget, t))
    summary = trained.summary or {}
    say(
        f"  trained: {summary['steps']:,} steps, {summary['tokens']:,} tokens, best at step {summary['best_step']:,} "
        f"({trained.seconds:.0f} s)"
    )
    return stages, rounds.trained_encoder(trained)


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
