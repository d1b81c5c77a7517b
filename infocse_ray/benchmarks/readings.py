"""The encoders of finished runs, with documents read by their sentences, whole, or both.

Each encoder is whitened anew, as by a run: with a map of sentences, and with one of sentences and whole texts. With
each, and as it is, it answers the test by each reading. So it shows what a reading gives, and a map made for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import torch

from infocse_ray.benchmarks.finished_runs import FinishedRuns
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import for_inference
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.loop.checks import training_splits, validation_of
from infocse_ray.loop.manifest import folder_in
from infocse_ray.retrieval.bootstrap import paired_bootstrap
from infocse_ray.retrieval.maps import Map
from infocse_ray.retrieval.refit import Refit, WhiteningPlan
from infocse_ray.retrieval.validation import questions_for, score_under
from infocse_ray.settings import Reading, Settings, fingerprint

READINGS: tuple[Reading, ...] = get_args(Reading)
FITTED = NONE, SENTENCES, WHOLE = "none", "sentences", "sentences, whole texts"
"""What maps are fitted on."""

_Way = tuple[str, str]
"""A map, and a reading."""
_Scores = dict[str, np.ndarray]
"""float64 [questions], by metric."""


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    runs = FinishedRuns.of(arguments.storage, arguments.runs)
    asked = {reading: questions_for(runs.store, "test", "counterpart", reading=reading) for reading in READINGS}
    test = asked["sentences"]
    documents = np.unique(test.doc_ids, return_inverse=True)[1]
    found: dict[str, dict[_Way, _Scores]] = {}
    for name, encoders in _encoders(runs):
        ranks: dict[_Way, list[np.ndarray]] = {(fitted, reading): [] for fitted in FITTED for reading in READINGS}
        for folder, manifest in encoders:
            plain = for_inference(folder.without_whitening().load(), "auto", torch.device("cpu"))
            maps = _maps(runs, plain, manifest)
            for reading, questions in asked.items():
                for fitted, scores in zip(maps, score_under(plain, list(maps.values()), questions), strict=True):
                    ranks[fitted, reading].append(scores.ranks)
        found[name] = {way: _scores(of) for way, of in ranks.items()}
    less = "less `sentences`"
    table(
        ("encoder", "whitening of", "reading", "test R@5", less, "test MRR", less),
        [
            (name, *way, *_cells(of, scores[way[0] if way[0] == NONE else SENTENCES, "sentences"], documents))
            for name, scores in found.items()
            for way, of in scores.items()
        ],
    )
    less = "less it as it came, whitened and read alike"
    print()
    table(
        ("result, whitening of", "reading", "test R@5", less, "test MRR", less),
        [(*way, *_cells(of, found["as it came"][way], documents)) for way, of in found["result"].items()],
    )
    notes(
        f"{len(test.doc_ids):,} questions of the test. Means over {runs}; differences of the first table are from the "
        "encoder with the map of sentences (or none), read by them, with 95 % intervals of a paired bootstrap."
    )


def _encoders(runs: FinishedRuns) -> Iterator[tuple[str, list[tuple[EncoderFolder, dict[str, Any]]]]]:
    """As it came, which each run's seed whitens, and what came of each run; each with its run's manifest."""
    yield "as it came", _saved(runs, "iteration_0/encoder")
    yield "result", _saved(runs, None)


def _saved(runs: FinishedRuns, stage: str | None) -> list[tuple[EncoderFolder, dict[str, Any]]]:
    """The encoder of each run that this stage left; None: the run's result."""
    saved = []
    for name, manifest in zip(runs.names, runs.manifests, strict=True):
        place = runs.root / name if stage is None else folder_in(runs.root, manifest["stages"][stage]["folder"])
        # The fingerprint names a copy that this machine may make, and nothing else.
        length = manifest["settings"]["encoder"]["max_length"]
        named = fingerprint("reading", str(place), manifest["finished"])
        saved.append((EncoderFolder(place / "model", named, length), manifest))
    return saved


def _maps(runs: FinishedRuns, plain: SentenceEncoder, manifest: dict[str, Any]) -> dict[str, Map]:
    """No map, and those that the encoder, without whitening, gets of the run's corpus."""
    settings = Settings.model_validate(manifest["settings"])
    splits = training_splits(settings, validation_of(settings, runs.store))
    plan = WhiteningPlan(None, settings.encoder.dimensions, splits, settings.seed)
    maps: dict[str, Map] = {NONE: None}
    for name, whole in ((SENTENCES, False), (WHOLE, True)):
        refit = Refit.of(plan._replace(whole=whole), runs.store, plain, torch.device("cpu"))
        maps[name] = refit(plain)
    return maps


def _cells(mine: _Scores, theirs: _Scores, documents: np.ndarray) -> list[str]:
    """Each score, and what it is more than theirs."""
    cells = []
    for metric, of in mine.items():
        lead = paired_bootstrap(of, theirs[metric], documents)
        apart = "" if mine is theirs else f"{lead.difference:+.4f} ({lead.low:+.4f} to {lead.high:+.4f})"
        cells += [f"{of.mean():.4f}", apart]
    return cells


def _scores(ranks: list[np.ndarray]) -> _Scores:
    """Means over encoders, of their ranks."""
    return {
        "recall@5": np.mean([each <= 5 for each in ranks], axis=0),
        "mrr": np.mean([1.0 / each for each in ranks], axis=0),
    }
