"""What whitening gives and costs: recall over powers, dimensions and numbers of sentences; seconds."""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import NamedTuple

import numpy as np
import torch

from infocse_ray.benchmarks.corpora import encoder_in
from infocse_ray.benchmarks.labelled import Truth, prepare_labelled
from infocse_ray.benchmarks.measure import default_device, in_fresh_process, now
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokens import Tokens, concatenate
from infocse_ray.encoder.embed import embed, for_inference
from infocse_ray.encoder.moments import Moments
from infocse_ray.encoder.whitening_fit import POWERS, SENTENCES_A_DIMENSION, WHOLE_A_DIMENSION, fit_whitening
from infocse_ray.retrieval.held_out import held_out_for
from infocse_ray.retrieval.refit import (
    CHOOSING_DOCUMENTS,
    Sample,
    WhiteningPlan,
    best_whitening,
    moments_of_whole,
    sampled,
    whole_sample,
)

SPLITS = ["train", "valid"]
"""What maps are fitted on; the test's documents are other ones."""
SIZES = (100, 500, 1_000, 2_000, 4_000, 8_000, 16_000)
CUTS = (256, 128, 64, 32)


class Measured(NamedTuple):
    """Rows of the tables, and what the notes say."""

    compared: list[float]
    """Powers, the chosen one among them."""
    powers: list[tuple]
    dimensions: list[tuple]
    sizes: list[tuple]
    seconds: list[tuple]
    start: dict[str, float]
    """Scores of the encoder as it is."""


def measure_once(model: str, store: TokenStore, seed: int) -> Measured:
    """Embed the corpus, and everything else."""
    encoder = for_inference(encoder_in(model).load(), "auto", default_device())
    encoder.whitening = None

    def vectors(tokens: Tokens) -> torch.Tensor:
        return embed(encoder, tokens).vectors

    truth = Truth.of(encoder, store)
    fitted = concatenate([sampled(store, SPLITS, Sample(2**63, 1.0), shard) for shard in range(store.shards)])
    begun = now()
    sample = vectors(fitted)
    embedding = now() - begun
    drawn = whole_sample(store, SPLITS, encoder.dimension)
    texts = concatenate([sampled(store, SPLITS, drawn, shard, encoder) for shard in range(store.shards)])
    begun = now()
    whole = moments_of_whole(encoder, texts)
    reading = (now() - begun) / whole.count
    begun = now()
    moments = Moments.of(sample)
    summing = now() - begun
    sample = sample.cpu()
    begun = time.perf_counter()
    fit_whitening(moments, 0.5)
    fitting = time.perf_counter() - begun
    plan = WhiteningPlan(None, None, SPLITS, seed)
    asking = held_out_for(store, "valid", seed, CHOOSING_DOCUMENTS)
    asked = asking.embed(encoder).cpu()
    begun = time.perf_counter()
    chosen, scores = best_whitening(moments, plan, asked, asking)
    choosing = time.perf_counter() - begun

    compared = sorted({0.5, chosen.power, 1.0})

    def row(name: str, moments: Moments, cut: int | None = None) -> tuple:
        results = [truth.scores(fit_whitening(moments, power, cut)) for power in compared]
        return (name, *(f"{one['recall@5']:.4f} / {one['mrr']:.4f}" for one in results))

    start = truth.scores(None)
    powers = [("as it is", f"{start['recall@5']:.4f}", f"{start['mrr']:.4f}", "")]
    for power in POWERS:
        truth_scores = truth.scores(fit_whitening(moments, power))
        mark = " (chosen)" if power == chosen.power else ""
        powers.append(
            (
                f"{power:g}{mark}",
                f"{truth_scores['recall@5']:.4f}",
                f"{truth_scores['mrr']:.4f}",
                f"{scores[f'{power:g}']:.4f}",
            )
        )
    order = torch.randperm(len(sample), generator=torch.Generator().manual_seed(seed))
    sizes = [size for size in SIZES if size < len(sample)]
    _, first = np.unique(fitted.hashes(), return_index=True)
    counts = [row(f"{size:,}", Moments.of(sample[order[:size]])) for size in sizes]
    counts += [row(f"all {len(sample):,}", moments), row(f"{len(first):,}, each text once", Moments.of(sample[first]))]
    d = sample.shape[1]
    all_of_it = SENTENCES_A_DIMENSION * d * (embedding + summing) / len(sample) + fitting + choosing
    also_whole = WHOLE_A_DIMENSION * d * reading
    seconds = [
        ("embedding, a sentence", f"{1e6 * embedding / len(sample):,.1f} us", "100 %"),
        ("moments, a sentence", f"{1e6 * summing / len(sample):,.1f} us", f"{100 * summing / embedding:.2f} %"),
        ("a map, of the moments", f"{1e3 * fitting:,.0f} ms", "once"),
        (f"choosing among {len(POWERS)} powers by {len(asking.doc_ids):,} questions", f"{choosing:.2f} s", "once"),
        (
            f"all of it, on {SENTENCES_A_DIMENSION * d:,} sentences ({SENTENCES_A_DIMENSION} a dimension)",
            f"{all_of_it:.1f} s",
            _share(all_of_it, embedding / len(sample)),
        ),
        ("embedding a whole text, and its moments", f"{1e3 * reading:,.1f} ms", ""),
        (
            f"all of it, and {WHOLE_A_DIMENSION * d:,} whole texts ({WHOLE_A_DIMENSION} a dimension)",
            f"{all_of_it + also_whole:.1f} s",
            _share(all_of_it + also_whole, embedding / len(sample)),
        ),
    ]
    cuts = [row(f"{d}", moments)] + [row(f"{cut}", moments, cut) for cut in CUTS if cut < d]
    return Measured(compared, powers, cuts, counts, seconds, start)


def _share(seconds: float, a_sentence: float) -> str:
    """What it is 3 % of; both in seconds."""
    return f"3 % of annotating {seconds / 0.03 / a_sentence:,.0f} sentences"


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as work:
        store = in_fresh_process(prepare_labelled, work, arguments)
        measured = in_fresh_process(measure_once, arguments.model, store, arguments.seed)
    columns = [f"power {power:g}, R@5 / MRR" for power in measured.compared]
    table(("power", "R@5", "MRR", "without labels: MRR of held-out sentences"), measured.powers)
    table(("dimensions", *columns), measured.dimensions)
    table(("fitted on sentences", *columns), measured.sizes)
    table(("part", "time", "of annotating"), measured.seconds)
    start, documents = measured.start, store.summary["documents"]
    notes(
        f"{start['queries']:,} test documents must find their counterpart among {start['candidates']:,}; maps are "
        f"fitted on {documents['train'] + documents['valid']:,} other documents, the power is chosen by "
        f"{documents['valid']:,} of these, without labels.",
    )
