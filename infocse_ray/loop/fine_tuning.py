"""Fine-tuning on labelled examples (section 3.3): draw them, count them, train on them; each a stage."""

from __future__ import annotations

import math
from typing import Any

from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.source import Source
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.loop.identity import labels_identity
from infocse_ray.loop.iterate import train_iteration
from infocse_ray.loop.iteration_stages import iteration_report
from infocse_ray.loop.run import Run
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.methods.labelled import Labelled
from infocse_ray.retrieval.ranks import shown
from infocse_ray.runtime.progress import say
from infocse_ray.sampling.draw_labels import draw
from infocse_ray.sampling.shards import Shards
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.train.schedule import Budget


def train_size(settings: Settings, store: TokenStore) -> int:
    """How many labelled examples are trained on."""
    there = store.summary["labelled"]["train"]
    return there if settings.labels.train_size == "all" else settings.labels.train_size


def check_labelled(source: Source) -> None:
    """Refuse, before Ray starts, a corpus without labels.

    Raises:
        ValueError: one line that names the setting and the fix.
    """
    if not source.has("counterpart"):
        raise ValueError(
            "corpus.counterpart: fine-tuning needs labels, and there is no such column; name the documents' column "
            "of counterparts (headline, query, ...), or name files of labels with corpus.labels"
        )


def check_labels(settings: Settings, store: TokenStore) -> None:
    """Refuse, before anything is trained, what there are too few labels for.

    Raises:
        ValueError: fewer training labels than asked for or than a batch has, or all of one document, or none to
            validate on.
    """
    labelled = store.summary["labelled"]
    there = ", ".join(f"{labelled[split]:,} {split}" for split in SPLITS)
    if labelled["valid"] < 2:
        raise ValueError(
            f"corpus.counterpart: fine-tuning needs labels to validate on; the labelled examples are {there}; raise "
            "corpus.valid_fraction or mark some as valid in the split column"
        )
    if (documents := store.summary.get("documents_labelled", labelled)["train"]) < 2:  # earlier versions didn't count
        raise ValueError(
            f"corpus.counterpart: the labels to train on are of {documents} documents, and the negatives of an example "
            "are other documents'; label some more"
        )
    asked = settings.labels.train_size
    if asked != "all" and asked > labelled["train"]:
        raise ValueError(
            f"labels.train_size = {asked}: the labelled examples are {there}; set it to {labelled['train']} or less "
            "or to all, or lower corpus.valid_fraction and corpus.test_fraction"
        )
    size, batch = train_size(settings, store), settings.finetune.batch_size
    if size < batch:
        raise ValueError(
            f"finetune.batch_size = {batch}: there are {size} labelled examples to train on ({there}"
            + (f", labels.train_size = {asked}" if asked != "all" else "")
            + f"); set it to {size} or less"
        )


def draw_labels(run: Run) -> Stage:
    """The labelled examples that are trained on; leaks are reported."""
    settings, iteration_stages = run.settings, run.iteration_stages
    asked = settings.labels.train_size
    source = iteration_stages.labelled()
    stage = run_stage(
        iteration_stages.root,
        run.folder / "labels",
        "labels",
        labels_identity(settings, source.fingerprint),
        lambda _: draw(
            source, None if asked == "all" else asked, settings.seed, "drawing labels", run.inputs.tokenizer
        ),
    )
    run.manifest.add("labels", stage)
    counts = stage.summary or {}
    labelled, leaks = counts["labelled"], counts["leaks"]
    say(
        f"labels: {train_size(settings, run.store):,} of the {labelled['train']:,} labelled examples to train on; "
        f"{labelled['valid']:,} to validate, {labelled['test']:,} to test on"
    )
    if any(leaks.values()):
        many = ", ".join(f"{leaks[split]:,} of {labelled[split]:,} {split}" for split in SPLITS if leaks[split])
        say(
            f"  warning: leakage: the counterpart is a sentence of its own document in {many} examples, found by "
            "equality alone; take it out of the documents"
        )
    return stage


def drawn(settings: Settings, labels: Stage) -> LabelSample:
    """What `draw_labels` drew."""
    return LabelSample(settings.seed, (labels.summary or {})["last"])


def fine_tune(
    run: Run, sample: LabelSample, source: Shards | None, encoder: EncoderFolder, number: int
) -> tuple[dict[str, Any], EncoderFolder]:
    """Train an encoder on the drawn examples, no more of them in all than `finetune.epochs` passes have.

    Every batch is full, also across the end of a pass: of 65 examples 20 passes are 20 batches of 64.

    Args:
        run: under way.
        sample: which labels were drawn.
        source: has the documents that they are of; None: the corpus.
        encoder: to start from.
        number: of the round, from 1.

    Returns:
        What `metrics.json` says of it, and the encoder with the best validation score.
    """
    settings, section = run.settings, run.settings.finetune
    size = train_size(settings, run.store)
    # Rounded up, so that an epoch is a pass at least, and patience, which ends with an epoch, as many as are asked for.
    epoch = math.ceil(size / section.batch_size)
    patience = epoch * math.ceil(section.patience * size / (epoch * section.batch_size))
    # No warm-up: one that suits training without labels may be longer than all of fine-tuning.
    update = {"batch_size": section.batch_size, "learning_rate": section.learning_rate, "warmup_steps": 0}
    once_an_epoch = {"every": epoch, "every_tokens": None}
    own = settings.model_copy(
        update={
            "train": settings.train.model_copy(update=update),
            "validate": settings.validate.model_copy(update=once_an_epoch),  # pyright: ignore
        }
    )
    method = Labelled(
        sample,
        section.temperature or settings.train.temperature,
        settings.train.similarity == "cosine",
        EncoderSpec.of(run.inputs.encoder),
    )
    budget = Budget(section.epochs * size // section.batch_size, None, patience)
    say(
        f"round {number}: fine-tuning on {size:,} labelled examples, {budget.steps:,} steps at most, {epoch:,} an epoch"
    )
    iteration_stages = run.iteration_stages.fine_tuning(own)
    stages, tuned = train_iteration(run, iteration_stages, method, encoder, budget, number, source=source)
    report = iteration_report(number, stages)
    del report["iteration"]
    metric = settings.validate.metric
    before, after = report["history"][0], report["validation"]
    say(f"  fine-tuned {metric}: {shown(after, metric)}, before {shown(before, metric)}")
    if report["validation"]["kind"] == "start":
        say(
            f"  warning: round {number}: fine-tuning never made it better; lower finetune.learning_rate or give it "
            "more labels"
        )
    return report, tuned
