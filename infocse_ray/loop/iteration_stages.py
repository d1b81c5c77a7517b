"""The stages of one iteration: annotate, count the examples, train; each is done once and then reused."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.annotate.engine import TORCH, Engine, check_agreement, engine_of, graph_in, make_graph
from infocse_ray.annotate.enough import pairs_read, share_of_iteration
from infocse_ray.annotate.share import Share
from infocse_ray.annotate.stage import annotate
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder import openvino
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.errors import NoExamples
from infocse_ray.loop.evaluate import Asked, known_scores, scores_of
from infocse_ray.loop.first_encoder import FirstEncoder
from infocse_ray.loop.identity import annotate_identity, examples_identity, graph_identity, train_identity
from infocse_ray.loop.manifest import Manifest
from infocse_ray.methods.chance import mix
from infocse_ray.methods.method import Method
from infocse_ray.retrieval.refit import WhiteningPlan
from infocse_ray.retrieval.validation import On, candidate_bound
from infocse_ray.runtime.cluster import Placement
from infocse_ray.runtime.progress import say
from infocse_ray.runtime.tasks import in_one_task
from infocse_ray.sampling.examples import Examples, count_examples
from infocse_ray.sampling.shards import Shards
from infocse_ray.settings import EngineName, Settings, fingerprint
from infocse_ray.stages.stage import Stage, is_begun, run_stage
from infocse_ray.storage.checksums import read_checked
from infocse_ray.storage.folder import Storage
from infocse_ray.tracking.tracking import Tracking
from infocse_ray.train.loop import Training
from infocse_ray.train.models import INTERPOLATED, model_name
from infocse_ray.train.schedule import Budget
from infocse_ray.train.trainer import train

_MUCH = 0.25
"""Of all examples: more in one of many lanes, which get documents by hash, is one document's."""


class IterationStages(NamedTuple):
    """Settings and inputs that all iterations of a run share."""

    root: Storage
    """The storage that runs share."""
    run: Storage
    settings: Settings
    store: TokenStore
    splits: list[str]
    """Whose sentences are trained on."""
    on: On
    """What a validation document must find."""
    where: dict[str, Placement]
    """Of `annotate` and `train`."""
    annotator: FirstEncoder | None
    """The annotator of the first iteration, if not the encoder itself."""
    whitening: WhiteningPlan | None
    """How encoders are whitened; None: they aren't."""
    tracking: Tracking | None = None
    """What shows the run; None: nothing does."""
    manifest: Manifest | None = None
    """The run's; None: what is trained is no run's."""
    phase: str = "iteration"
    """iteration, fine_tuning, or pilot_ and the name of a recipe."""
    prompted: bool = False
    """Whether the encoder puts a prompt before a document's sentences."""

    def fine_tuning(self, settings: Settings) -> IterationStages:
        """Those of fine-tuning, which train on labels of the train split alone, and are validated on labels."""
        return self._replace(settings=settings, splits=["train"], on="counterpart", phase="fine_tuning")

    def from_anything(self) -> IterationStages:
        """Those whose training may give back what validates worse than its start."""
        train = self.settings.train.model_copy(update={"never_worse": False})
        return self._replace(settings=self.settings.model_copy(update={"train": train}))

    @property
    def documents(self) -> Shards:
        """The documents as they are, for methods that need no clusters."""
        store, labels = self.store, self.phase == "fine_tuning"
        folder = store.folder / "documents"
        return Shards(folder, store.fingerprint, store.shards, store.summary["lanes"], self.splits, labels)

    def labelled(self) -> Shards:
        """The documents as they are, with their labels."""
        return self.documents._replace(labels=True)

    def annotated(self, stage: Stage, t: int) -> Shards:
        """The documents with the clusters that the annotate stage of iteration t gave them."""
        share = Share.of_stage(stage.summary, self.settings.seed, t)
        drawn = None if share is None else share.shards(self.store)
        return self.documents._replace(fingerprint=stage.fingerprint, annotations=stage.folder, drawn=drawn)

    def name(self, t: int) -> str:
        """Iteration t, as its folder is called."""
        return f"{self.phase}_{t}"

    def title(self, t: int) -> str:
        """Iteration t, for people."""
        return f"{self.phase.replace('_', '-')} {t}"

    def folder(self, t: int) -> Storage:
        """Where round t puts its stages."""
        return self.run / self.name(t)

    def _annotates(self, encoder: EncoderFolder, t: int) -> FirstEncoder:
        return self.annotator if self.annotator is not None and t == 1 else FirstEncoder(encoder, None, self.prompted)

    def share(self, t: int) -> Share | None:
        """The draw of documents that iteration t annotates; None: all."""
        return share_of_iteration(self.settings, self.store, self.splits, t)

    def _annotate_identity(self, by: FirstEncoder, engine: EngineName, t: int) -> str:
        store, encoder = self.store.fingerprint, by.encoder.fingerprint
        return annotate_identity(self.settings, store, encoder, self.splits, engine, self.share(t), by.prompted)

    def graph(self, encoder: EncoderFolder, t: int) -> Stage | None:
        """The backbone converted for annotating; None: torch computes it.

        Raises:
            ValueError: the engine can't be had, or makes other edges.
        """
        settings, by = self.settings, self._annotates(encoder, t)
        share = self.share(t)
        sentences = round(self.store.summary["sentences"] * (1.0 if share is None else share.of_all(self.store)))
        chosen = engine_of(settings.annotate.engine, sentences, self.where["annotate"].use_gpu)
        say(f"  {chosen.line()}")
        if chosen.name == "torch":
            if is_begun(self.folder(t) / "annotations", self._annotate_identity(by, "openvino", t)):
                say(
                    "  warning: it was begun with openvino, and is begun anew; to go on as it was, run it on CPUs "
                    "where openvino is installed"
                )
            return None
        identity = graph_identity(
            settings, self.store.fingerprint, by.encoder.fingerprint, self.splits, chosen.name, openvino.version()
        )
        documents = TrainingDocuments(self.store, self.splits, by.store)

        def work(stage: Stage) -> dict[str, Any]:
            k, precision = settings.annotate.k, settings.encoder.precision
            in_one_task(make_graph, stage.folder, by.encoder, chosen.name, precision, documents, k)
            return {"engine": chosen.name, **read_checked(stage.folder / "graph.json")}

        stage = run_stage(self.root, self.folder(t) / "graph", "graph", identity, work)
        check_agreement((stage.summary or {}).get("agreement"))
        return stage

    def annotate(self, encoder: EncoderFolder, t: int, graph: Stage | None = None) -> Stage:
        """Cluster the sentences of every document with the encoder there is (Eq. 4), by its converted backbone."""
        settings, by = self.settings, self._annotates(encoder, t)
        engine = engine_in(graph)
        identity = self._annotate_identity(by, engine.name, t)
        if (share := self.share(t)) is not None:
            say(
                f"  annotating {share.of_all(self.store):.1%} of the corpus, drawn for this iteration: "
                f"annotate.share = {settings.annotate.share}, and training reads at most "
                f"{pairs_read(settings, self.store):,.0f} pairs; 1 annotates all"
            )
        work = functools.partial(
            annotate,
            store=self.store,
            splits=self.splits,
            encoder=by.encoder,
            settings=settings.annotate,
            seed=settings.seed,
            precision=settings.encoder.precision,
            placement=self.where["annotate"],
            title=f"{self.title(t)}: annotating",
            encoder_store=by.store,
            engine=engine,
            share=share,
        )
        stage = run_stage(self.root, self.folder(t) / "annotations", "annotate", identity, work, piecewise=True)
        counts = stage.summary or {}
        say(
            f"  annotated: {counts['documents']:,} documents, {counts['clusters']:,} clusters, "
            f"{counts['pairs']:,} pairs ({stage.seconds:.0f} s)"
        )
        return stage

    def count(self, source: Shards, method: Method, t: int) -> tuple[Stage, Examples]:
        """Count the examples that a method makes of documents.

        Raises:
            NoExamples: there are none.
        """
        identity = examples_identity(source.fingerprint, self.splits, method)
        stage = run_stage(
            self.root,
            self.folder(t) / "examples",
            "examples",
            identity,
            lambda _: count_examples(source, method, f"{self.title(t)}: counting"),
        )
        counts = stage.summary or {}
        if not counts["examples"]:
            raise NoExamples(
                f"corpus.source: none of the {counts['none']:,} training documents gives an example to train on: all "
                f"have {method.none}"
            )
        notes = [f"{counts['none']:,} more have {method.none}"] if counts["none"] else []
        notes += [f"{counts['short']:,} have {method.short}"] if counts["short"] else []
        say(
            f"  examples: {counts['examples']:,} of {counts['documents']:,} documents"
            + (f"; {'; '.join(notes)}" if notes else "")
        )
        found = Examples.of(stage, source)
        if counts["documents"] < (size := self.settings.train.batch_size):
            tuning = self.phase == "fine_tuning"
            say(
                f"  warning: {'finetune' if tuning else 'train'}.batch_size = {size} is more than the "
                f"{counts['documents']:,} documents that give examples: a batch has several of one document, which are "
                "no negatives of each other; lower it"
            )
        elif (share := found.of_largest_lane) > max(_MUCH, 4 / source.lanes):
            say(
                f"  warning: {share:.0%} of the examples are of one lane of {source.lanes}, most likely of one "
                "document: so much of a batch is of it, whose texts are no negatives of each other; cut it into "
                "several, or set it aside with a lower corpus.max_document_sentences"
            )
        return stage, found

    def train(
        self,
        examples: Examples,
        method: Method,
        encoder: EncoderFolder,
        budget: Budget,
        t: int,
        labels: Examples | None = None,
        scored: dict[str, Any] | None = None,
    ) -> Stage:
        """Train the encoder on the examples (Eq. 5, or the method's own loss), and on those of `labels` for `Mixed`.

        `scored` are the validation's metrics of the encoder; None: those of the run's evaluations, if they have it.
        """
        settings, on = self.settings, self.on
        bound = candidate_bound(self.store, on, settings.validate.max_candidates)
        identity = train_identity(
            settings, method, examples.fingerprint, encoder.fingerprint, on, t, budget, self.whitening, bound
        )

        def work(stage: Stage) -> dict[str, Any]:
            # The stage's own folder, which isn't the one asked for where another stage was finished there.
            seed = mix(settings.seed, t)
            training = Training(settings, self.store, examples, method, budget, encoder, seed, stage.folder, on)
            training = training._replace(
                whitening=self.whitening,
                max_candidates=bound,
                labels=labels,
                scored=scored or self._scored(encoder, bound),
            )
            if self.manifest is not None:
                self.manifest.begin_training(self.name(t), stage)
            points = None if self.tracking is None else self.tracking.training(self.name(t), stage)
            return train(training, self.where["train"], f"{self.title(t)}: training", points)

        return run_stage(self.root, self.folder(t) / "train", "train", identity, work)

    def _scored(self, encoder: EncoderFolder, bound: int | None) -> dict[str, Any] | None:
        validate, precision, seed = self.settings.validate, self.settings.encoder.precision, self.settings.seed
        asked = Asked(encoder, "valid", self.on, validate.max_documents, bound, validate.reading)
        return known_scores(self.root, scores_of(self.run), self.store, asked, precision, seed)

    def trained_encoder(self, trained: Stage, start: EncoderFolder) -> EncoderFolder:
        """The encoder that a train stage returns: the one it started from if none it made was better."""
        return made_by(trained, self.settings.encoder.max_length) or start


def engine_in(graph: Stage | None) -> Engine:
    """What computes the backbone that a stage converted; torch without one."""
    return TORCH if graph is None else Engine((graph.summary or {})["engine"], graph_in(graph.folder))


def made_by(trained: Stage, max_length: int) -> EncoderFolder | None:
    """The encoder that a train stage made; None if it returned its start.

    Args:
        trained: finished.
        max_length: tokens that sentences are cut to.
    """
    summary = trained.summary or {}
    kind = summary["chosen"]["kind"]
    if kind == "start":
        return None
    name = INTERPOLATED if kind == "interpolated" else model_name(summary["best_step"])
    return EncoderFolder(trained.folder / "models" / name, fingerprint("encoder", trained.fingerprint), max_length)


def iteration_report(t: int, stages: dict[str, Stage]) -> dict[str, Any]:
    """What `metrics.json` says of a round: its validation, counts and seconds."""
    summary = stages["train"].summary or {}
    chosen = summary["chosen"]
    return {
        "iteration": t,
        "validation": chosen,
        **({"whitening": chosen["whitening"]} if "whitening" in chosen else {}),
        "train": {k: v for k, v in summary.items() if k not in ("history", "chosen")},
        "history": summary["history"],
        "seconds": {name: stage.seconds for name, stage in stages.items()},
    } | {
        name: {k: v for k, v in (stage.summary or {}).items() if k != "examples_by_lane"}
        for name, stage in stages.items()
        if name != "train"
    }
