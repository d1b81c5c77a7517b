"""Encoders scored on a corpus, one alone or two side by side: the work of `infocse evaluate`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from infocse_ray.corpus.prepare import prepare, show_rejected
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.source import Source, find_source
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.corpus.unknown import warn_of_unknown
from infocse_ray.encoder.embed import for_inference
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.loop.checks import warn_of_no_counterparts
from infocse_ray.loop.evaluate import Asked, evaluate
from infocse_ray.loop.its_run import judging_metric, run_of, say_unlike_its_run, say_what_it_saw
from infocse_ray.loop.named_encoders import load_named, save_shared
from infocse_ray.retrieval.correlation import Estimate, spearman_difference, spearman_estimate
from infocse_ray.retrieval.doubts import Advice, doubts
from infocse_ray.retrieval.examples import Texts, examples
from infocse_ray.retrieval.questions import compare_scores
from infocse_ray.retrieval.ranks import shown
from infocse_ray.retrieval.sts import StsPairs, read_sts, sts_cosines
from infocse_ray.retrieval.validation import On
from infocse_ray.retrieval.verdict import told, verdict, versus
from infocse_ray.runtime.cluster import Placement, connect, placement
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Corpus, Train, fingerprint
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.settings.section import DEFAULT_READING
from infocse_ray.stages.at_work import at_work
from infocse_ray.stages.repair import repairing
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted, redacted_json


class Scored(NamedTuple):
    """An encoder and what it scored."""

    name: str
    stage: Stage
    store: TokenStore
    tokenizer: CorpusTokenizer
    cosines: np.ndarray | None
    """float64 [pairs], of the sentence pairs, if they were asked."""
    spearman: Estimate | None
    """Their correlation with the pairs' scores."""

    @property
    def metrics(self) -> dict[str, float]:
        """Of all questions, with what sentence pairs say, if they were asked."""
        metrics: dict[str, float] = (self.stage.summary or {})["metrics"]
        if self.spearman is None:
            return metrics
        value, low, high = self.spearman
        return metrics | {"sts_spearman": value, "sts_spearman_low": low, "sts_spearman_high": high}


class Evaluated(NamedTuple):
    """What was scored."""

    encoders: list[Scored]
    """`model` and, where there is one, `compare`."""
    comparison: dict[str, Any] | None
    """The content of `comparison.json`; None of one encoder alone."""


@repairing
def evaluate_encoders(settings: Evaluate) -> Evaluated:
    """Score, compare and report."""
    corpus = settings.corpus
    if settings.split == "all":
        corpus = corpus.model_copy(update={"split": None, "valid_fraction": 0.0, "test_fraction": 0.0})
    source = find_source(corpus)
    if settings.split == "all":
        source.columns.pop("split", None)
    pairs = None if settings.sts is None else read_sts(settings.sts, "sts")
    encoders = load_named(settings)
    root = Storage.for_runs(settings.storage)
    with at_work(root, "evaluate"):
        return _scored_and_shown(settings, root, corpus, source, encoders, pairs)


def _scored_and_shown(
    settings: Evaluate,
    root: Storage,
    corpus: Corpus,
    source: Source,
    encoders: dict[str, SentenceEncoder],
    pairs: StsPairs | None,
) -> Evaluated:
    connect()
    where = placement(Train(num_workers=settings.num_workers, use_gpu=settings.use_gpu))
    stores: dict[CorpusTokenizer, TokenStore] = {}
    for name, encoder in encoders.items():
        if (tokenizer := encoder.corpus_tokenizer()) not in stores:
            stores[tokenizer] = prepare(root, corpus, source, tokenizer)
            warn_of_unknown(stores[tokenizer], redacted(getattr(settings, name)))
    store = next(iter(stores.values()))
    on = _asked(settings, store)
    say(f"{sum(store.summary['documents'][s] for s in SPLITS):,} documents; {show_rejected(store)}")
    say_unlike_its_run(settings, reading=on == "counterpart")
    if on != "counterpart":
        say_what_it_saw(settings, source.fingerprint, list(stores.values()))
    scored = _score(settings, root, encoders, stores, on, where, pairs)
    _show_scores(settings, scored, on)
    comparison = None if settings.compare is None else _compare(settings, root, scored, on, pairs)
    places = {one.stage.fingerprint: one.stage.folder for one in scored}
    for place in places.values():
        say(f"figures: {place / 'metrics.json'}; every question's rank: {place / 'ranks'}")
    if len(places) < len(scored):
        say("note: both are the same encoder")
    return Evaluated(scored, comparison)


def _asked(settings: Evaluate, store: TokenStore) -> On:
    """What documents must find.

    Raises:
        ValueError: there is nothing to ask.
    """
    labelled, there = (store.summary[name][settings.place] for name in ("labelled", "documents"))
    if settings.on == "counterpart" and not labelled:
        raise ValueError(
            f"on = counterpart: no document of split {settings.split} has a counterpart; name the column with "
            "corpus.counterpart"
        )
    if there < 2:
        raise ValueError(f"split = {settings.split}: it has {there} documents; name another")
    if settings.on == "auto":
        warn_of_no_counterparts(settings.corpus, store)
    on = settings.on if settings.on != "auto" else "counterpart" if labelled else "sentence"
    if on != "counterpart" and settings.reading not in ("sentences", DEFAULT_READING):
        raise ValueError(
            f"reading = {settings.reading}: without labels (on = {on}) what is asked says how documents are read; "
            "leave it out, or name counterparts with corpus.counterpart"
        )
    return on


def _score(
    settings: Evaluate,
    root: Storage,
    encoders: dict[str, SentenceEncoder],
    stores: dict[CorpusTokenizer, TokenStore],
    on: On,
    where: Placement,
    pairs: StsPairs | None,
) -> list[Scored]:
    """Ask every encoder, those of one tokenizer together."""
    whose = "all documents" if settings.split == "all" else settings.split
    scored: dict[str, Scored] = {}
    for tokenizer, store in stores.items():
        of_it = {name: e for name, e in encoders.items() if e.corpus_tokenizer() == tokenizer}
        asked = [
            Asked(save_shared(root, encoder), settings.place, on, reading=settings.reading)
            for encoder in of_it.values()
        ]
        stages = evaluate(root, root / "evaluations", store, asked, settings.precision, where, settings.seed, whose)
        for (name, encoder), stage in zip(of_it.items(), stages, strict=True):
            cosines = None if pairs is None else _cosines(settings, encoder, pairs)
            spearman = None if pairs is None or cosines is None else spearman_estimate(cosines, pairs.scores)
            scored[name] = Scored(redacted(getattr(settings, name)), stage, store, tokenizer, cosines, spearman)
    return [scored[name] for name in encoders]


def _cosines(settings: Evaluate, encoder: SentenceEncoder, pairs: StsPairs) -> np.ndarray:
    device = torch.device("cuda" if torch.cuda.is_available() and settings.use_gpu is not False else "cpu")
    return sts_cosines(for_inference(encoder, settings.precision, device), pairs)


_READ = {"sentences": "by their sentences", "whole": "whole", "both": "both whole and by their sentences"}
"""How documents are read, for people."""


def _show_scores(settings: Evaluate, scored: list[Scored], on: On) -> None:
    """A table with a row for each encoder."""
    ours = scored[0]
    columns = {"recall@5": "R@5", "recall@10": "R@10", "recall@20": "R@20", "mrr": "MRR"}
    spearman = ours.spearman is not None
    questions, candidates = (int(ours.metrics[name]) for name in ("queries", "candidates"))
    whose = "all documents" if settings.split == "all" else f"split {settings.split}"
    read = f", documents read {_READ[settings.reading]}" if on == "counterpart" else ""
    say(f"\n{questions:,} questions of {whose} ({on}) among {candidates:,} candidates{read}, with 95 % intervals:\n")
    head = ["encoder", *columns.values(), *(["Spearman"] if spearman else [])]
    say(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for one in scored:
        cells = [one.name, *(shown(one.metrics, name) for name in columns)]
        say(f"| {' | '.join(cells + ([shown(one.metrics, 'sts_spearman')] if spearman else []))} |")
    say("")


def _compare(settings: Evaluate, root: Storage, scored: list[Scored], on: On, pairs: StsPairs | None) -> dict[str, Any]:
    """A line that says which of two encoders is better, and examples; what programs are told."""
    ours, theirs = scored
    shared = ours.store.fingerprint == theirs.store.fingerprint
    models = [model for model in (settings.model, settings.compare) if model is not None]
    metric = judging_metric(settings.metric, *map(run_of, models))
    doubtful = doubts((theirs.stage.summary or {})["metrics"], metric, on, _advice(settings))
    for line in doubtful:
        say(f"warning: {line}")
    found = compare_scores(ours.stage.folder, theirs.stage.folder, metric, common=not shared)
    line = versus(found.lead, metric, ours.name, theirs.name)
    say(f"verdict: {line}")
    if pairs is not None and ours.cosines is not None and theirs.cosines is not None:
        value, low, high = spearman_difference(ours.cosines, theirs.cosines, pairs.scores)
        say(
            f"Spearman: {ours.name} less {theirs.name} is {value:+.4f} (95 % interval {low:+.4f} to {high:+.4f}), "
            f"{len(pairs.scores):,} pairs"
        )
    texts, other = (Texts(one.store, one.tokenizer, settings.place, on) for one in (theirs, ours))
    differing = examples(theirs.stage.folder, ours.stage.folder, texts, None if shared else other)
    if differing:
        say("\nWhere they differ most, for example:")
    for example in differing:
        say("\n" + "\n".join(f"  {line}" for line in example.lines((theirs.name, ours.name))))
    say("")
    one = verdict(found.lead, False, metric, found.theirs, found.ours)
    asked = _AS_RUNS_SAY.get(settings.split, settings.split)
    judged = told(line, "compare", asked, {asked: one})
    return _kept(settings, root, scored, on, asked, {"verdict": judged, "warnings": doubtful})


def _advice(settings: Evaluate) -> Advice:
    """What a doubtful comparison can be asked with, for people."""
    more = "give more documents" + ("" if settings.split == "all" else ", or ask those of all splits (--split all)")
    return Advice(more, "a larger corpus", "--metric", "--on")


_AS_RUNS_SAY = {"valid": "validation"}
"""What `metrics.json` of a run calls a split."""


def _kept(
    settings: Evaluate, root: Storage, scored: list[Scored], on: On, asked: str, said: dict[str, Any]
) -> dict[str, Any]:
    """Write what came of a comparison, for programs: scores and what was said, as `metrics.json` of a run has them."""
    encoders = dict(zip(("model", "compare"), scored, strict=True))
    content: dict[str, Any] = {
        "model": settings.model,
        "compare": settings.compare,
        "on": on,
        "scores": {name: {asked: (one.stage.summary or {})["metrics"]} for name, one in encoders.items()},
        **said,
        "ranks": {name: str(one.stage.folder / "ranks") for name, one in encoders.items()},
        "settings": settings.model_dump(mode="json"),
    }
    if settings.sts is not None:
        content["sts"] = {name: one.spearman.value for name, one in encoders.items() if one.spearman is not None}
    # The folder's name, which is made of this, isn't to depend on a credential.
    content = redacted_json(content)
    identity = fingerprint("comparison", content)

    def work(stage: Stage) -> dict[str, Any]:
        (stage.folder / "comparison.json").write_json(content)
        return {}

    folder = run_stage(root, root / "evaluations" / identity, "comparison", identity, work).folder
    say(f"scores of both and the verdict: {folder / 'comparison.json'}")
    return content
