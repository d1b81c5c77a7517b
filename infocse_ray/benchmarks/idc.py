"""Intra-Document Clustering alone, and finding the copies that it is spared."""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

from infocse_ray.annotate.idc import cluster
from infocse_ray.benchmarks.report import notes, spread, table
from infocse_ray.corpus.copies import distinct
from infocse_ray.corpus.tokens import Tokens, bounded_ranges, offsets_of
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    rows = []
    for name, sizes in (
        ("20 each", np.full(arguments.documents, 20)),
        ("2 to 60", draw.integers(2, 61, arguments.documents)),
    ):
        offsets = offsets_of(sizes)
        vectors = torch.randn(int(offsets[-1]), arguments.dimension, generator=generator)
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
        texts = Tokens(draw.integers(0, 30_000, 20 * len(vectors)).astype(np.uint16), 20 * np.arange(len(vectors) + 1))
        rates, comparing = [], []
        for _ in range(arguments.repeats):
            begun = time.perf_counter()
            for first, last in bounded_ranges(offsets, SENTENCES_AT_ONCE):
                begin, end = offsets[first], offsets[last]
                cluster(vectors[begin:end], offsets[first : last + 1] - begin, arguments.k)
            clustered = time.perf_counter()
            distinct(texts, offsets, 30)
            comparing.append(len(vectors) / (time.perf_counter() - clustered))
            rates.append(len(vectors) / (clustered - begun))
        finding = f"{statistics.median(comparing):,.0f}"
        rows.append((f"{arguments.documents:,}", name, f"{statistics.median(rates):,.0f}", spread(rates), finding))
    table(("documents", "sentences a document", "sentences/s, median", "runs", "finding copies, sentences/s"), rows)
    notes(
        f"IDC alone: random unit vectors of {arguments.dimension} dimensions, K = {arguments.k}, one core; copies are "
        "looked for in texts of 20 random tokens."
    )
