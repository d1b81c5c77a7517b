"""Which validator tracks the truth: Spearman's rank correlation with test recall, over encoders and whitenings."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

from infocse_ray.benchmarks.labelled import Truth, WithoutLabels, load_at, prepare_labelled
from infocse_ray.benchmarks.measure import default_device, in_fresh_process
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokens import concatenate
from infocse_ray.encoder.embed import for_inference
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.whitening_fit import POWERS, fit_whitening
from infocse_ray.retrieval.refit import Sample, moments_of, sampled
from infocse_ray.runtime.progress import say
from infocse_ray.settings import fingerprint
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.folder import Storage

VALIDATORS = ("counterpart", "sentence", "halves", "readings")
METRICS = ("mrr", "recall@5")
_FORMAT = 1
"""Of the scores that are kept."""


def score_once(model: str, store: TokenStore, seed: int, kept: str) -> list[dict[str, Any]]:
    """The truth and every validator's scores of an encoder, as it is and with every power; read where they are kept.

    Args:
        model: folder of the encoder.
        store: with labels.
        seed: of the sentences held out.
        kept: the folder that keeps the scores of every encoder.
    """
    encoder, root = load_at(model), Storage.open(kept)
    identity = fingerprint("validators", _FORMAT, POWERS, store.fingerprint, encoder.fingerprint(), seed)

    def work(_: Stage) -> dict[str, Any]:
        return {"rows": _scores(for_inference(encoder, "auto", default_device()), store, seed)}

    summary = run_stage(root, root / "scores" / identity, "scores", identity, work).summary
    return [{"model": model} | row for row in (summary or {})["rows"]]


def _scores(encoder: SentenceEncoder, store: TokenStore, seed: int) -> list[dict[str, Any]]:
    sample = Sample.of(store, ["valid", "test"], encoder.dimension)
    shards = range(store.shards)
    moments = moments_of(encoder, concatenate([sampled(store, ["valid", "test"], sample, shard) for shard in shards]))
    truth, labelled = Truth.of(encoder, store), Truth.of(encoder, store, "valid")
    without = WithoutLabels.of(encoder, store, seed)
    rows = []
    for power in (None, *POWERS):
        whitening = None if power is None else fit_whitening(moments, power)
        scores = {name: getattr(without, name) for name in VALIDATORS[1:]} | {"counterpart": labelled.scores}
        row = {"power": power, "truth": truth.scores(whitening)}
        rows.append(row | {name: score(whitening) for name, score in scores.items()})
    return rows


def run(arguments: argparse.Namespace) -> None:
    """Score all, and print the correlations."""
    models = [arguments.model, *arguments.models]
    rows: list[dict[str, Any]] = []
    with contextlib.nullcontext(arguments.to) if arguments.to else tempfile.TemporaryDirectory() as folder:
        store = in_fresh_process(prepare_labelled, folder, arguments)
        for number, model in enumerate(models, 1):
            rows += (own := in_fresh_process(score_once, model, store, arguments.seed, folder))
            found = ", ".join(f"{name} {own[0][name]['mrr']:.4f}" for name in ("truth", *VALIDATORS))
            say(f"{number} of {len(models)} encoders, {_short(model)} as it is, MRR: {found}")
    plain = [row for row in rows if row["power"] is None]
    best = [max((r for r in rows if r["model"] == m), key=lambda r: r["sentence"]["mrr"]) for m in models]
    choices = [("all", rows), ("as they are", plain), ("each with the power chosen by `sentence`", best)]
    table(
        ("encoders", "", *(f"{v}, {m}" for v in VALIDATORS for m in METRICS)),
        [
            (name, str(len(chosen)), *(_correlation(chosen, v, m) for v in VALIDATORS for m in METRICS))
            for name, chosen in choices
            if len(chosen) > 2
        ],
    )
    if arguments.all:
        table(
            ("encoder", "power", "test R@5", "test MRR", *(f"{v}, MRR" for v in VALIDATORS)),
            [
                (
                    _short(row["model"]),
                    "as it is" if row["power"] is None else f"{row['power']:g}",
                    *(f"{row['truth'][m]:.4f}" for m in ("recall@5", "mrr")),
                    *(f"{row[v]['mrr']:.4f}" for v in VALIDATORS),
                )
                for row in rows
            ],
        )
    truth, labelled = rows[0]["truth"], rows[0]["counterpart"]
    notes(
        f"Spearman's rank correlation with R@5 of {truth['queries']:,} test questions; {len(models)} encoders, each as "
        f"it is and whitened with {len(POWERS)} powers. Validators ask {labelled['queries']:,} (counterpart, with the "
        f"labels of other documents), {rows[0]['sentence']['queries']:,} (sentence) and "
        f"{rows[0]['halves']['queries']:,} (halves, readings) questions of the same documents.",
    )


def _correlation(rows: list[dict], validator: str, metric: str) -> str:
    scores = [row[validator][metric] for row in rows]
    if len(set(scores)) == 1:
        return "all alike"
    correlation = spearmanr(scores, [row["truth"]["recall@5"] for row in rows])
    return f"{correlation.statistic:.3f}"  # pyright: ignore[reportAttributeAccessIssue]


def _short(model: str) -> str:
    parts = [part for part in Path(model).parts if part not in ("model", "models", "train")]
    return "/".join(parts[-3:])
