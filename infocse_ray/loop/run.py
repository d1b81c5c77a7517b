"""A run under way: its corpus prepared, its sizes checked, the encoder it starts from saved."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from infocse_ray import __version__
from infocse_ray.annotate.engine import check_engine
from infocse_ray.corpus.prepare import prepare, show_rejected
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.unknown import warn_of_unknown
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.prompts import ROLES
from infocse_ray.loop.checks import check_sizes, training_splits, validation_of, warn_of_no_counterparts
from infocse_ray.loop.evaluate import Asked, evaluate, scores_of
from infocse_ray.loop.exported import export
from infocse_ray.loop.first_encoder import FirstEncoder, first_encoder, save_first_encoder
from infocse_ray.loop.inputs import Inputs
from infocse_ray.loop.iteration_stages import IterationStages
from infocse_ray.loop.its_run import as_read_by
from infocse_ray.loop.manifest import Manifest
from infocse_ray.loop.own_folder import check_own_folder
from infocse_ray.loop.shown_late import show_late
from infocse_ray.loop.speed import Speed
from infocse_ray.loop.stale import may_draw, stale
from infocse_ray.loop.whitening import whiten_start, whitening_plan
from infocse_ray.retrieval.validation import On, candidate_bound
from infocse_ray.runtime.cluster import connect, placement
from infocse_ray.runtime.placement import Placement
from infocse_ray.runtime.progress import say, warnings_kept
from infocse_ray.settings import Settings, fingerprint
from infocse_ray.stages.lease import Lease
from infocse_ray.stages.stage import Stage, read_stage, run_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted
from infocse_ray.tracking.tracking import Tracking, check_sinks

_PACKAGES = ("ray", "torch", "transformers", "tokenizers", "numpy", "scipy", "pyarrow")


class Look(NamedTuple):
    """An encoder to score on a split."""

    encoder: EncoderFolder
    split: str


class Run(NamedTuple):
    """What every phase of a run needs."""

    settings: Settings
    inputs: Inputs
    manifest: Manifest
    iteration_stages: IterationStages
    came: EncoderFolder
    """The encoder as it came."""
    start: EncoderFolder
    """What training starts from: the encoder as it came, whitened where there is whitening."""
    whitening: dict[str, Any] | None
    """The start's: `power`, `dimension`, the `sentences` it was fitted on, and the `scores` of powers; None: none."""
    fine_tunes: bool
    """Whether it trains on labels."""
    identity: str
    speed: Speed | None = None
    """Of embedding, as whitening found it; None: it isn't known."""
    warnings: Sequence[str] = ()
    """What was warned of so far."""
    piloted: bool = False
    """Whether short trainings chose how it is trained, or that it isn't."""
    began: dict[str, Any] | None = None
    """Validation scores of the start, once they were looked at."""
    left_out: EncoderFolder | None = None
    """The start whitened, where validation found that worse than the encoder as it came: the run is as with
    `encoder.whiten: off` then."""

    @property
    def trains(self) -> bool:
        """Whether anything is trained, or was to be: then its result is held against its whitened start."""
        return (
            self.fine_tunes or self.piloted or self.inputs.method is not None or self.inputs.initialization is not None
        )

    @property
    def judged_on(self) -> On:
        """What validation documents must find where encoders are held against each other."""
        return "counterpart" if self.fine_tunes else self.iteration_stages.on

    def without_whitening(self) -> Run:
        """The same run as with `encoder.whiten: off`, from the encoder as it came."""
        encoder = self.settings.encoder.model_copy(update={"whiten": "off"})
        settings = self.settings.model_copy(update={"encoder": encoder})
        stages = self.iteration_stages._replace(settings=settings, whitening=None)
        return self._replace(
            settings=settings, iteration_stages=stages, start=self.came, whitening=None, left_out=self.start
        )

    @property
    def folder(self) -> Storage:
        """`<storage>/<name>`."""
        return self.iteration_stages.run

    @property
    def store(self) -> TokenStore:
        """The corpus."""
        return self.iteration_stages.store

    def evaluate(self, looks: dict[str, Look]) -> dict[str, Stage]:
        """Score encoders, all by one group of workers, and commit what was found under the looks' names.

        The test is of counterparts always.
        """
        iteration_stages, settings = self.iteration_stages, self.settings
        bound = candidate_bound(self.store, self.judged_on, settings.validate.max_candidates)
        asked = [
            Asked(encoder, split, self.judged_on, settings.validate.max_documents, bound, settings.validate.reading)
            if split == "valid"
            else Asked(encoder, split, "counterpart", reading=settings.validate.reading)
            for encoder, split in looks.values()
        ]
        precision, where, folder = settings.encoder.precision, iteration_stages.where["train"], scores_of(self.folder)
        done = evaluate(iteration_stages.root, folder, self.store, asked, precision, where, settings.seed)
        stages = dict(zip(looks, done, strict=True))
        for name, stage in stages.items():
            self.manifest.add(name, stage)
        return stages

    def tests(self, name: str, encoder: EncoderFolder, also_plain: bool) -> dict[str, Look]:
        """Looks at the test of an encoder and, if wanted and it is whitened, of what it is without."""
        looks = {f"{name}/test": Look(encoder, "test")}
        if also_plain and self.iteration_stages.whitening is not None:
            looks[f"{name}/test_plain"] = Look(encoder.without_whitening(), "test")
        return looks

    def finish(self, encoder: EncoderFolder, card: Callable[[dict[str, Any]], str], results: dict[str, Any]) -> dict:
        """Export an encoder with its card, write `metrics.json`, and commit the run.

        Args:
            encoder: the run's result.
            card: makes it of the content of `metrics.json`.
            results: what the run came to; the name, corpus, warnings, settings and versions are added.

        Returns:
            The content of `metrics.json`.
        """
        summary = self.store.summary
        metrics = {
            "name": self.settings.name,
            "validate_on": self.judged_on,
            "corpus": {
                "documents": sum(summary["documents"].values()),
                **{key: summary[key] for key in ("sentences", "tokens", "rejected", "seconds")},
            },
            **results,
            "warnings": list(self.warnings),
            "origin": self.inputs.origin._asdict(),
            "prompts": {role: self.inputs.encoder.prompts.of(role) for role in ROLES},
            "settings": self.settings.model_dump(mode="json"),
            "versions": versions(),
        }
        self.manifest.check()
        read = as_read_by(self.settings)
        names = export(encoder, self.folder, card(metrics), read, self.manifest.exported)
        (self.folder / "metrics.json").write_json(metrics)
        self.manifest.finish(self.identity, names)
        if (tracking := self.iteration_stages.tracking) is not None:
            tracking.summary(metrics, self.identity)
        return metrics


def finished(job: str, settings: Settings, identity: str) -> dict[str, Any] | None:
    """The content of `metrics.json` of a run that is finished with these inputs and settings; None otherwise.

    Raises:
        ValueError: the run of that name is another job's.
    """
    folder = Storage.of_runs(settings.storage) / settings.name
    manifest = Manifest(folder)
    if manifest.finished(identity):
        say(f"{folder} is finished with these settings; nothing to do. Its encoder is in {folder / 'model'}")
        metrics = (folder / "metrics.json").read_json()
        show_late(settings, job, folder, manifest, metrics, identity)
        return metrics
    if manifest.job not in (None, job):
        raise ValueError(
            f"name = {settings.name!r}: {folder} is a run of `infocse {manifest.job}`, whose model this one would "
            "replace; give this one another name, it finds the stages of that one all the same"
        )
    return None


@contextlib.contextmanager
def open_run(
    job: str,
    settings: Settings,
    inputs: Inputs,
    identity: str,
    check: Callable[[TokenStore], None] | None = None,
    at_once: int = 1,
    fine_tunes: bool = False,
) -> Iterator[Run]:
    """Take the run's lease till the end; connect to Ray, prepare the corpus, check what can be checked.

    Args:
        job: what runs, such as `pretrain`.
        settings: of the run.
        inputs: what `check` found.
        identity: of the run.
        check: more to refuse about the prepared corpus, before anything is trained.
        at_once: how many such runs share the cluster.
        fine_tunes: whether it trains on labels.

    Raises:
        ValueError: a setting doesn't fit the corpus or the cluster, or the run's folder has a user's files; what was
            there under this name is as it was.
        RunInUse: another driver is at work on the run.
        LeaseLost: another driver took it over.
    """
    check_sinks(settings)
    root = Storage.for_runs(settings.storage)
    folder = root / settings.name
    check_own_folder(folder, settings.name)
    with Lease(folder / "driver.lease", f"name = {settings.name!r}") as lease, warnings_kept() as warnings:
        lease.take()
        with Tracking(settings, job, folder) as tracking:
            manifest = Manifest(folder, lease, tracking)
            try:
                run = _opened(job, settings, inputs, identity, check, at_once, root, manifest, tracking, fine_tunes)
            except ValueError:
                manifest.take_back()
                raise
            yield run._replace(warnings=warnings)


def _opened(
    job: str,
    settings: Settings,
    inputs: Inputs,
    identity: str,
    check: Callable[[TokenStore], None] | None,
    at_once: int,
    root: Storage,
    manifest: Manifest,
    tracking: Tracking,
    fine_tunes: bool,
) -> Run:
    folder = root / settings.name
    connect()
    where = {"annotate": placement(settings.annotate, at_once), "train": placement(settings.train, at_once)}
    check_engine(settings.annotate.engine, where["annotate"].use_gpu)
    named = inputs.named()
    for line in stale(manifest.before, settings, named, may_draw(manifest.before, root)):
        say(line)
    manifest.begin(job, settings.model_dump(mode="json"), named)

    store = prepare(root, settings.corpus, inputs.source, inputs.tokenizer)
    manifest.add("corpus", read_stage(store.folder))
    say(
        f"corpus: {sum(store.summary['documents'].values()):,} documents, {store.summary['sentences']:,} sentences, "
        f"{store.summary['tokens']:,} tokens; {show_rejected(store)}"
    )
    warn_of_unknown(store, redacted(settings.encoder.model))
    if settings.validate.on in ("auto", "counterpart"):
        warn_of_no_counterparts(settings.corpus, store)
    if check is not None:
        check(store)
    where["train"] = _within_lanes(where["train"], settings, store)
    on = validation_of(settings, store)
    splits = training_splits(settings, on)
    trains = inputs.method is not None or inputs.initialization is not None
    check_sizes(settings, store, splits, on, where["train"].workers, trains)

    saved = run_stage(
        root,
        folder / "iteration_0" / "encoder",
        "encoder",
        fingerprint("encoder", inputs.fingerprint),
        lambda stage: {"max_length": EncoderFolder.save(inputs.encoder, stage.folder / "model").max_length},
    )
    manifest.add("iteration_0/encoder", saved)
    came = EncoderFolder(saved.folder / "model", inputs.fingerprint, settings.encoder.max_length)
    plan, start, whitening = whitening_plan(settings, inputs.encoder, splits), came, None
    speed: Speed | None = None
    if plan is not None:
        whitened, start = whiten_start(
            root,
            folder / "iteration_0" / "whitening",
            store,
            inputs.encoder,
            came,
            plan,
            settings.encoder.precision,
            where["annotate"],
        )
        manifest.add("iteration_0/whitening", whitened)
        whitening = {k: v for k, v in (whitened.summary or {}).items() if k not in ("seconds", "speed")}
        if (seen := (whitened.summary or {}).get("speed")) is not None:
            speed = Speed(*seen)
    annotator: FirstEncoder | None = None
    if inputs.annotator is not None:
        other = save_first_encoder(root, folder, inputs.annotator)
        manifest.add("first_encoder", other)
        annotator = first_encoder(other, inputs.annotator, root, settings, inputs.source, inputs.tokenizer)
        if (own := annotator.store) is not None:
            manifest.add("first_encoder/corpus", read_stage(own.folder))
    iteration_stages = IterationStages(
        root,
        folder,
        settings,
        store,
        splits,
        on,
        where,
        annotator,
        plan,
        tracking,
        manifest,
        prompted=inputs.encoder.prompt_length() > 0,
    )
    return Run(settings, inputs, manifest, iteration_stages, came, start, whitening, fine_tunes, identity, speed)


def _within_lanes(where: Placement, settings: Settings, store: TokenStore) -> Placement:
    """Where training is placed: on no more workers than there are lanes, where nobody asked for so many."""
    lanes, asked = store.summary["lanes"], settings.train.num_workers
    if isinstance(asked, int) or where.workers <= lanes or (where.fewest or 1) > lanes:
        return where
    say(f"training on at most {lanes} of {where.workers} workers: the corpus has as many lanes (corpus.lanes)")
    return where._replace(workers=lanes)


def versions() -> dict[str, str]:
    """Versions of what computed a result."""
    packages = {package: importlib.metadata.version(package) for package in _PACKAGES}
    return {"infocse_ray": __version__, "python": platform.python_version(), **packages}
