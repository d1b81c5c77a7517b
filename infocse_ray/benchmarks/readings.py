"""The encoders of finished runs, with documents read by their sentences, whole, or both.

Each encoder answers the test, and what validation asks without labels, by each reading. So it shows what a reading
gives, to which encoder, and whether a user without labels would see it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import get_args

import numpy as np
import torch

from infocse_ray.benchmarks.finished_runs import FinishedRuns
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import for_inference
from infocse_ray.loop.manifest import folder_in
from infocse_ray.retrieval.bootstrap import paired_bootstrap
from infocse_ray.retrieval.held_out import HeldOut
from infocse_ray.retrieval.validation import Questions, questions_for, score
from infocse_ray.settings import Reading, fingerprint

READINGS: tuple[Reading, ...] = get_args(Reading)


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    runs = FinishedRuns.of(arguments.storage, arguments.runs)
    asked: dict[Reading, tuple[Questions, Questions | HeldOut]] = {
        reading: (
            questions_for(runs.store, "test", "counterpart", reading=reading),
            questions_for(runs.store, "valid", "sentence", arguments.documents, reading=reading),
        )
        for reading in READINGS
    }
    test, valid = asked["sentences"]
    documents = {"test": _numbers(test.doc_ids), "valid": _numbers(valid.doc_ids)}
    found: dict[str, dict[Reading, _Scores]] = {}
    for name, encoders in _encoders(runs):
        ranks: dict[Reading, dict[str, list[np.ndarray]]] = {one: {"test": [], "valid": []} for one in READINGS}
        for folder in encoders:
            encoder = for_inference(folder.load(), "auto", torch.device("cpu"))
            for reading, questions in asked.items():
                for split, one in zip(("test", "valid"), questions, strict=True):
                    ranks[reading][split].append(score(encoder, one).ranks)
        found[name] = {reading: _scores(by_split) for reading, by_split in ranks.items()}
    less = "less `sentences`"
    header = ("encoder", "reading", "test R@5", less, "test MRR", less, "validation MRR, `sentence`", less)
    table(
        header,
        [
            (name, reading, *_cells(of, scores["sentences"], documents))
            for name, scores in found.items()
            for reading, of in scores.items()
        ],
    )
    if "whitened" in found:
        print()
        table(
            ("result, read", *("less whitened, read alike" if name == less else name for name in header[2:])),
            [(reading, *_cells(of, found["whitened"][reading], documents)) for reading, of in found["result"].items()],
        )
    notes(
        f"{len(test.doc_ids):,} questions of the test, {len(valid.doc_ids):,} of validation without labels. Means over "
        f"{runs}; differences with 95 % intervals of a paired bootstrap over documents."
    )


def _encoders(runs: FinishedRuns) -> Iterator[tuple[str, list[EncoderFolder]]]:
    """As it came, which is one for all runs; whitened, and what came of each run, by its seed."""
    yield "as it came", _saved(runs, "iteration_0/encoder")[:1]
    if all("iteration_0/whitening" in manifest["stages"] for manifest in runs.manifests):
        yield "whitened", _saved(runs, "iteration_0/whitening")
    yield "result", _saved(runs, None)


def _saved(runs: FinishedRuns, stage: str | None) -> list[EncoderFolder]:
    """The encoder of each run that this stage left; None: the run's result."""
    saved = []
    for name, manifest in zip(runs.names, runs.manifests, strict=True):
        place = runs.root / name if stage is None else folder_in(runs.root, manifest["stages"][stage]["folder"])
        # The fingerprint names a copy that this machine may make, and nothing else.
        length = manifest["settings"]["encoder"]["max_length"]
        saved.append(EncoderFolder(place / "model", fingerprint("reading", str(place), manifest["finished"]), length))
    return saved


_Scores = dict[tuple[str, str], np.ndarray]
"""float64 [questions], by split and metric."""


def _cells(mine: _Scores, theirs: _Scores, documents: dict[str, np.ndarray]) -> list[str]:
    """Each score, and what it is more than theirs."""
    cells = []
    for (split, metric), of in mine.items():
        lead = paired_bootstrap(of, theirs[split, metric], documents[split])
        apart = "" if mine is theirs else f"{lead.difference:+.4f} ({lead.low:+.4f} to {lead.high:+.4f})"
        cells += [f"{of.mean():.4f}", apart]
    return cells


def _numbers(doc_ids: list[str]) -> np.ndarray:
    """int64 [questions], the same number for the same document."""
    return np.unique(doc_ids, return_inverse=True)[1]


def _scores(ranks: dict[str, list[np.ndarray]]) -> _Scores:
    """Means over encoders, of their ranks by split."""
    return {
        ("test", "recall@5"): np.mean([each <= 5 for each in ranks["test"]], axis=0),
        ("test", "mrr"): np.mean([1.0 / each for each in ranks["test"]], axis=0),
        ("valid", "mrr"): np.mean([1.0 / each for each in ranks["valid"]], axis=0),
    }
