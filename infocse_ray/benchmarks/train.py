"""A training step against CachedMultipleNegativesRankingLoss in the mini-batches that are fastest for it.

1. The other side tries its settings on a part of the batch: mini-batches of so many sentences, or of so many tokens,
   flattened where it can (flash-attention). Within a batch it offers no sorting by length.
2. Both sides take steps on the same batch in one process, in turns.
3. Memory is that of a step in a fresh process.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

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

SMALL = 64
"""Pairs of a step that makes the optimiser's state."""
TRIED = 256
"""Pairs that mini-batches are tried on."""
MINI_BATCHES = (("mini_batch_size", (32, 128, 512)), ("mini_batch_num_tokens", (512, 2_048, 8_192)))
"""What is tried on CPUs; ten times as much on GPUs."""

Pairs = list[tuple[int, str, str]]


class Case(NamedTuple):
    """What both sides train on."""

    model: str
    pairs: Pairs
    chunk_tokens: int | Literal["auto"]
    precision: Literal["fp32", "bf16"]


class Side(NamedTuple):
    """One of the two."""

    prepare: Callable[[Pairs], Any]
    """Tokenised pairs, where they are computed on."""
    step: Callable[[Any], float]
    """A step on what `prepare` gave; its loss."""


def ours(case: Case) -> Side:
    """This library's training."""
    settings = Settings(
        name="benchmark",
        corpus=Corpus(source="unused"),
        encoder=Encoder(model=case.model, max_length=MAX_LENGTH, precision=case.precision),
        # Eq. 1 alone, which is what it is compared with.
        train=Train(batch_size=len(case.pairs), chunk_tokens=case.chunk_tokens, distillation=0.0),
    )
    encoder = encoder_in(case.model).load().to(default_device())
    method = method_of("idc", settings, EncoderSpec.of(encoder))
    assert method is not None
    state = TrainState(encoder, method, settings, 0)

    def prepare(pairs: Pairs) -> Batch:
        documents, *sides = zip(*pairs, strict=True)
        ids = [encoder.tokenizer(list(side), add_special_tokens=False)["input_ids"] for side in sides]
        tokens = [Tokens(np.concatenate(i).astype(np.uint16), offsets_of(np.array([len(x) for x in i]))) for i in ids]
        tokens = [side.cut(method.longest) for side in tokens]
        return Batch.of_pairs([str(d) for d in documents], np.array(documents), tokens[0], tokens[1])

    return Side(prepare, lambda batch: train_step(state, batch, 0, 1).loss)


def theirs(case: Case, mini_batches: dict[str, int]) -> Side:
    """The same with sentence-transformers' loss."""
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
    from sentence_transformers.util import batch_to_device, dot_score

    baseline = load_baseline(case.model, "fp32").train()
    # The same columns as here: the positives and the other anchors, in one softmax at the same temperature.
    loss_of = CachedMultipleNegativesRankingLoss(
        baseline,
        scale=1.0 / Train().temperature,
        similarity_fct=dot_score,
        mini_batch_size=mini_batches.get("mini_batch_size", 32),
        mini_batch_num_tokens=mini_batches.get("mini_batch_num_tokens"),
        directions=("query_to_doc", "query_to_query"),
    )
    optimizer = torch.optim.AdamW(baseline.parameters(), lr=2e-5, weight_decay=0.0, fused=True)
    labels = torch.empty(0)

    def prepare(pairs: Pairs) -> list[dict[str, torch.Tensor]]:
        _, *sides = zip(*pairs, strict=True)
        return [batch_to_device(baseline.preprocess(list(side)), baseline.device) for side in sides]

    def step(batch: list[dict[str, torch.Tensor]]) -> float:
        optimizer.zero_grad(set_to_none=True)
        # Around backward as well, which encodes again.
        with torch.autocast(baseline.device.type, torch.bfloat16, enabled=case.precision == "bf16"):
            loss = loss_of([dict(side) for side in batch], labels)
            loss.backward()
        optimizer.step()
        return loss.item()

    return Side(prepare, step)


def seconds_of(side: Side, batch: Any) -> tuple[float, float]:
    """Seconds of a step, and its loss."""
    begun = now()
    loss = side.step(batch)
    return now() - begun, loss


def fastest(case: Case) -> tuple[dict[str, int], list[tuple[str, float]]]:
    """The mini-batches that are fastest for the other side, and pairs a second with each that was tried."""
    part = case.pairs[:TRIED]
    scale = 10 if torch.cuda.is_available() else 1
    rates: list[tuple[float, dict[str, int]]] = []
    for name, values in MINI_BATCHES:
        for value in values:
            side = theirs(case, {name: scale * value})
            side.step(side.prepare(part[:SMALL]))
            batch = side.prepare(part)
            rates.append((len(part) / min(seconds_of(side, batch)[0] for _ in range(2)), {name: scale * value}))
    tried = [(f"{name} {value:,}", rate) for rate, kind in rates for name, value in kind.items()]
    return max(rates, key=lambda rate: rate[0])[1], tried


def in_turns(case: Case, mini_batches: dict[str, int], steps: int) -> list[list[tuple[float, float]]]:
    """Seconds and losses of so many steps of each side, one after the other."""
    sides = [ours(case), theirs(case, mini_batches)]
    batches = [side.prepare(case.pairs) for side in sides]
    for side, batch in zip(sides, batches, strict=True):
        side.step(batch)  # makes the optimiser's state, and finds how much fits
    found: list[list[tuple[float, float]]] = [[], []]
    for _ in range(steps):
        for side, batch, measured in zip(sides, batches, found, strict=True):
            measured.append(seconds_of(side, batch))
    return found


def memory_of_ours(case: Case) -> tuple[float, float]:
    """MiB before a step, and at most in it."""
    return _memory(ours(case), case)


def memory_of_theirs(case: Case, mini_batches: dict[str, int]) -> tuple[float, float]:
    """MiB before a step, and at most in it."""
    return _memory(theirs(case, mini_batches), case)


def _memory(side: Side, case: Case) -> tuple[float, float]:
    side.step(side.prepare(case.pairs[:SMALL]))
    before, batch = memory_mib("VmRSS"), side.prepare(case.pairs)
    side.step(batch)
    return before, memory_mib("VmHWM")


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    pairs = pairs_of(read_documents(arguments), arguments.batch_size)
    case = Case(arguments.model, pairs, arguments.chunk_tokens, arguments.precision)
    best, tried = in_fresh_process(fastest, case)
    measured = in_fresh_process(in_turns, case, best, arguments.steps)
    memory = in_fresh_process(memory_of_ours, case), in_fresh_process(memory_of_theirs, case, best)
    rates = [[len(pairs) / seconds for seconds, _ in steps] for steps in measured]
    # Of neighbours in time, for the machine may do other work beside.
    ratio = statistics.median(mine / other for mine, other in zip(*rates, strict=True))
    rows = [
        (
            name,
            f"{statistics.median(rate):,.1f}",
            spread(rate, 1),
            shown,
            f"{peak:,.0f} MiB",
            f"{peak - before:,.0f} MiB",
            f"{steps[0][1]:.4f}",
        )
        for name, rate, shown, (before, peak), steps in zip(
            ("infocse_ray", "sentence-transformers"), rates, (f"{ratio:.2f}", "1.00"), memory, measured, strict=True
        )
    ]
    head = ("", "pairs/s, median", "steps, in turns", "ratio", "peak memory", "above what was there before", "loss")
    table(head, rows)
    setting = ", ".join(f"{name} {value:,}" for name, value in best.items())
    notes(
        f"A step: {len(pairs):,} pairs of neighbouring sentences of at most {MAX_LENGTH} tokens, dropout on, "
        f"{arguments.precision}, AdamW (fused on both sides) included, tokenising and moving to the device left out. "
        "Both sides step in turns in one process, after a step that isn't counted; the ratio is the median of those "
        "of neighbouring steps.",
        f"train.chunk_tokens = {arguments.chunk_tokens} here. CachedMultipleNegativesRankingLoss with {setting}, the "
        f"fastest of these, in pairs/s on {min(TRIED, len(pairs)):,} pairs: "
        + "; ".join(f"{name}: {rate:,.1f}" for name, rate in tried)
        + ". Its directions are query_to_doc and query_to_query, which is Eq. 1 without the masks; the losses differ "
        "by these and by dropout's noise.",
        "Memory is that of a second step in a fresh process, "
        + ("what tensors take of the GPU's." if torch.cuda.is_available() else "resident (VmHWM)."),
    )
