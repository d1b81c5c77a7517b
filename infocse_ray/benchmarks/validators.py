"""Which validator tracks the truth: Spearman's rank correlation with test recall, over encoders and whitenings."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from scipy.stats import spearmanr

from infocse_ray.benchmarks.labelled import Truth, WithoutLabels, load_at, prepare_labelled
from infocse_ray.benchmarks.measure import default_device, in_fresh_process
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokens import concatenate
from infocse_ray.encoder.embed import for_inference
from infocse_ray.encoder.whitening_fit import POWERS, fit_whitening
from infocse_ray.retrieval.refit import Sample, moments_of, sampled

VALIDATORS = ("counterpart", "sentence", "halves", "readings")
METRICS = ("mrr", "recall@5")


def score_once(model: str, store: TokenStore, seed: int) -> list[dict]:
    """The truth and every validator's scores of an encoder, as it is and with every power."""
    encoder = for_inference(load_at(model), "auto", default_device())
    sample = Sample.of(store, ["valid", "test"], encoder.dimension)
    shards = range(store.shards)
    moments = moments_of(encoder, concatenate([sampled(store, ["valid", "test"], sample, shard) for shard in shards]))
    truth, labelled = Truth.of(encoder, store), Truth.of(encoder, store, "valid")
    without = WithoutLabels.of(encoder, store, seed)
    rows = []
    for power in (None, *POWERS):
        whitening = None if power is None else fit_whitening(moments, power)
        scores = {name: getattr(without, name) for name in VALIDATORS[1:]} | {"counterpart": labelled.scores}
        row = {"model": model, "power": power, "truth": truth.scores(whitening)}
        rows.append(row | {name: score(whitening) for name, score in scores.items()})
    return rows


def run(arguments: argparse.Namespace) -> None:
    """Score all, and print the correlations."""
    models = [arguments.model, *arguments.models]
    with tempfile.TemporaryDirectory() as work:
        store = in_fresh_process(prepare_labelled, work, arguments)
        rows = [row for model in models for row in in_fresh_process(score_once, model, store, arguments.seed)]
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
    correlation = spearmanr([row[validator][metric] for row in rows], [row["truth"]["recall@5"] for row in rows])
    return f"{correlation.statistic:.3f}"  # pyright: ignore[reportAttributeAccessIssue]


def _short(model: str) -> str:
    parts = [part for part in Path(model).parts if part not in ("model", "models", "train")]
    return "/".join(parts[-3:])
