"""Intra-Document Clustering alone."""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

from benchmarks.report import notes, spread, table
from infocse_ray.annotate.idc import cluster
from infocse_ray.corpus.tokens import bounded_ranges, offsets_of
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
        rates = []
        for _ in range(arguments.repeats):
            begun = time.perf_counter()
            for first, last in bounded_ranges(offsets, SENTENCES_AT_ONCE):
                begin, end = offsets[first], offsets[last]
                cluster(vectors[begin:end], offsets[first : last + 1] - begin, arguments.k)
            rates.append(len(vectors) / (time.perf_counter() - begun))
        rows.append((f"{arguments.documents:,}", name, f"{statistics.median(rates):,.0f}", spread(rates)))
    table(("documents", "sentences a document", "sentences/s, median", "runs"), rows)
    notes(f"IDC alone: random unit vectors of {arguments.dimension} dimensions, K = {arguments.k}, one core.")
