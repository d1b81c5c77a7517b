"""Exported encoders against SentenceTransformer.encode on the CPU: size, recall lost, sentences per second."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from infocse_ray.benchmarks.corpora import MAX_LENGTH, load_baseline
from infocse_ray.benchmarks.labelled import prepare_labelled
from infocse_ray.benchmarks.measure import in_fresh_process
from infocse_ray.benchmarks.report import notes, spread, table
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.graph import traced
from infocse_ray.encoder.layout import read_layout
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.export.check import Check, Vectors, answers, apart, check, texts_of
from infocse_ray.export.formats import FORMATS, GraphEncoder, check_packages
from infocse_ray.export.questions import Asked
from infocse_ray.export.run import size_of
from infocse_ray.retrieval.validation import questions_for
from infocse_ray.retrieval.verdict import difference
from infocse_ray.settings import Encoder

BASELINE = "torch, SentenceTransformer.encode"
METRIC = "recall@5"


class Form(NamedTuple):
    """What one form came to."""

    size: int
    found: Check | None
    """None of the original itself."""
    vectors: Vectors | None
    speeds: list[float]
    """Sentences a second, in the order of the measurements."""


def measure_once(model: str, store: TokenStore, arguments: argparse.Namespace) -> dict[str, Form]:
    """Export every form, ask it, and time them in turns; in a process of its own."""
    torch.set_num_threads(arguments.threads)
    folder = resolve_encoder(model, "--model")
    cosine = read_layout(folder).normalize
    encoder = load_encoder(folder, Encoder(model=model, max_length=MAX_LENGTH), cosine=cosine)
    asked = Asked(questions_for(store, "valid", "counterpart", arguments.documents), "counterpart")
    original, tokens = answers(encoder, asked), texts_of(asked, encoder)
    tokenizer = encoder.corpus_tokenizer().ready().tokenizer
    texts = [tokenizer.decode(row.tolist()) for row in np.split(tokens.values, tokens.offsets[1:-1])]
    texts = (texts * -(-arguments.texts // len(texts)))[: arguments.texts]
    baseline = load_baseline(str(folder), "fp32")
    sizes = {BASELINE: size_of(folder / "model.safetensors")}
    found: dict[str, tuple[Check, Vectors]] = {}
    encode: dict[str, Callable[[], Any]] = {
        BASELINE: lambda: baseline.encode(texts, batch_size=arguments.batch_size, show_progress_bar=False)
    }
    with tempfile.TemporaryDirectory() as work:
        program = traced(encoder)
        for format_name, form in FORMATS.items():
            for int8 in (False, True):
                name = f"{format_name} {'int8' if int8 else 'fp32'}"
                form.write(program, Path(work), int8)
                file = Path(work) / form.file_name(int8)
                graph = GraphEncoder(encoder, form.Session(file, arguments.threads))
                sizes[name] = size_of(file)
                found[name] = check(original, answers(graph, asked), asked, METRIC), apart(encoder, graph, tokens)
                encode[name] = Encode(encoder, graph, texts, arguments.batch_size)
        speeds: dict[str, list[float]] = {name: [] for name in encode}
        for turn in range(arguments.repeats + 1):
            for name, one in encode.items():
                begun = time.perf_counter()
                one()
                if turn:  # the first warms up
                    speeds[name].append(len(texts) / (time.perf_counter() - begun))
    return {name: Form(sizes[name], *found.get(name, (None, None)), speeds[name]) for name in encode}


class Encode:
    """From texts to vectors as `SentenceTransformer.encode` does it: by length, in batches, tokenised in these."""

    def __init__(self, encoder: SentenceEncoder, graph: GraphEncoder, texts: list[str], batch_size: int) -> None:
        self._encoder, self._graph, self._batch_size = encoder, graph, batch_size
        self._texts = sorted(texts, key=len, reverse=True)

    def __call__(self) -> np.ndarray:
        """float32 [texts, d], the longest text's first."""
        parts = []
        for begin in range(0, len(self._texts), self._batch_size):
            some = self._texts[begin : begin + self._batch_size]
            inputs = self._encoder.tokenizer(
                some, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt"
            )
            parts.append(self._graph(inputs["input_ids"], inputs["attention_mask"]).numpy())
        return np.concatenate(parts)


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    for name in FORMATS:
        check_packages(name, "backend")
    with tempfile.TemporaryDirectory() as work:
        store = in_fresh_process(prepare_labelled, work, arguments)
        forms = in_fresh_process(measure_once, arguments.model, store, arguments)
    base = forms[BASELINE]
    rows = []
    for name, one in forms.items():
        lost, apart_by = "", ""
        if one.found is not None and one.vectors is not None:
            lost = difference(one.found.lead)
            apart_by = f"{one.vectors.difference:.1g} / {one.vectors.cosine:.4f}"
        ratios = [speed / other for speed, other in zip(one.speeds, base.speeds, strict=True)]
        faster = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append((name, f"{one.size / 1e6:.1f} MB", lost, apart_by, f"{statistics.median(one.speeds):,.0f}", faster))
    head = ("form", "size", f"{METRIC}, difference", "largest difference / smallest cosine", "sentences/s", "times")
    table(head, rows)
    found = next(one.found for one in forms.values() if one.found is not None)
    notes(
        f"{found.lead.questions:,} documents must find their counterpart among {found.before['candidates']:,}: "
        f"{METRIC} {found.before[METRIC]:.4f} of the original. Times: of {BASELINE} in the same turn, the median of "
        f"{arguments.repeats} turns and their range; {arguments.texts} sentences cut to {MAX_LENGTH} tokens, batches "
        f"of {arguments.batch_size}, {arguments.threads} thread(s).",
        f"Sentences a second of {BASELINE}, in turn: {spread(base.speeds)}.",
    )
