"""A step with gradient caching against CachedMultipleNegativesRankingLoss."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from infocse_ray.benchmarks.corpora import MAX_LENGTH, encoder_in, load_baseline, pairs_of, read_documents
from infocse_ray.benchmarks.measure import default_device, in_fresh_process, memory_mib, now
from infocse_ray.benchmarks.report import notes, spread, table
from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.registry import method_of
from infocse_ray.sampling.stream import Batch
from infocse_ray.settings import Corpus, Encoder, Settings, Train
from infocse_ray.train.state import TrainState
from infocse_ray.train.step import train_step

WARM_UP_PAIRS = 64


def ours_once(model: str, pairs: list[tuple[int, str, str]], chunk_tokens: int, precision: str) -> dict[str, float]:
    """One step of this library's training."""
    settings = Settings(
        name="benchmark",
        corpus=Corpus(source="unused"),
        encoder=Encoder.model_validate({"model": model, "max_length": MAX_LENGTH, "precision": precision}),
        train=Train(batch_size=len(pairs), chunk_tokens=chunk_tokens),
    )
    encoder = encoder_in(model).load().to(default_device())
    method = method_of("idc", settings, EncoderSpec.of(encoder))
    assert method is not None
    state = TrainState(encoder, method, settings, 0)

    def batch_of(part: list[tuple[int, str, str]]) -> Batch:
        documents, *sides = zip(*part, strict=True)
        ids = [encoder.tokenizer(list(side), add_special_tokens=False)["input_ids"] for side in sides]
        tokens = [Tokens(np.concatenate(i).astype(np.uint16), offsets_of(np.array([len(x) for x in i]))) for i in ids]
        tokens = [side.cut(method.longest) for side in tokens]
        return Batch.of_pairs([str(d) for d in documents], np.array(documents), tokens[0], tokens[1])

    def step(batch: Batch) -> float:
        return train_step(state, batch, 0, 1).loss

    return timed_step(step, batch_of(pairs[:WARM_UP_PAIRS]), batch_of(pairs))


def theirs_once(model: str, pairs: list[tuple[int, str, str]], chunk_tokens: int, precision: str) -> dict[str, float]:
    """The same step with sentence-transformers' loss."""
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
    from sentence_transformers.util import batch_to_device, dot_score

    baseline = load_baseline(model, "fp32").train()
    # The same columns as here: the positives and the other anchors, in one softmax at temperature 1.
    loss_of = CachedMultipleNegativesRankingLoss(
        baseline,
        scale=1.0,
        similarity_fct=dot_score,
        mini_batch_size=chunk_tokens // MAX_LENGTH,
        directions=("query_to_doc", "query_to_query"),
    )
    optimizer = torch.optim.Adam(baseline.parameters(), lr=2e-5)
    labels = torch.empty(0)

    def batch_of(part: list[tuple[int, str, str]]) -> list[dict[str, torch.Tensor]]:
        _, *sides = zip(*part, strict=True)
        return [batch_to_device(baseline.preprocess(list(side)), baseline.device) for side in sides]

    def step(batch: list[dict[str, torch.Tensor]]) -> float:
        optimizer.zero_grad(set_to_none=True)
        # Around backward as well, which encodes again.
        with torch.autocast(baseline.device.type, torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(batch, labels)
            loss.backward()
        optimizer.step()
        return loss.item()

    return timed_step(step, batch_of(pairs[:WARM_UP_PAIRS]), batch_of(pairs))


def timed_step(step: Callable[[Any], float], small: Any, batch: Any) -> dict[str, float]:
    """Take a small step, which also makes the optimiser's state, and then the one to measure."""
    step(small)
    before = memory_mib("VmRSS")
    begun = now()
    loss = step(batch)
    return {"seconds": now() - begun, "loss": loss, "before": before, "peak": memory_mib("VmHWM")}


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    pairs = pairs_of(read_documents(arguments), arguments.batch_size)
    runs: dict[str, list[dict[str, float]]] = {"infocse_ray": [], "sentence-transformers": []}
    for _ in range(arguments.steps):
        for name, work in zip(runs, (ours_once, theirs_once), strict=True):
            runs[name].append(
                in_fresh_process(work, arguments.model, pairs, arguments.chunk_tokens, arguments.precision)
            )
    rates = {name: [len(pairs) / run["seconds"] for run in repeats] for name, repeats in runs.items()}
    rows = []
    for name, repeats in runs.items():
        before, peak = (max(run[key] for run in repeats) for key in ("before", "peak"))
        pace = statistics.median(rates[name])
        ratio = pace / statistics.median(rates["sentence-transformers"])
        memory = f"{peak:,.0f} MiB", f"{peak - before:,.0f} MiB"
        rows.append(
            (name, f"{pace:,.1f}", spread(rates[name], 1), f"{ratio:.2f}", *memory, f"{repeats[-1]['loss']:.4f}")
        )
    head = ("", "pairs/s, median", "steps", "ratio", "peak memory", "above what was there before", "loss")
    table(head, rows)
    notes(
        f"A step: {len(pairs):,} pairs of neighbouring sentences of at most {MAX_LENGTH} tokens, gradient caching, "
        f"dropout on, {arguments.precision}, Adam included, tokenising and moving to the device left out. Every step "
        f"in a fresh process, in turns, after one of {WARM_UP_PAIRS} pairs.",
        f"Chunks: {arguments.chunk_tokens} tokens with padding here, mini_batch_size = {arguments.chunk_tokens} // "
        f"{MAX_LENGTH} = {arguments.chunk_tokens // MAX_LENGTH} sentences there, as large where sentences are longest. "
        "CachedMultipleNegativesRankingLoss has the directions query_to_doc and query_to_query, which is Eq. 1 without "
        "the masks; the losses differ by these and by dropout's noise.",
        "Memory is " + ("what tensors take of the GPU's." if torch.cuda.is_available() else "resident (VmHWM)."),
    )
