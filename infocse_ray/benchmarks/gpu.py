"""What one GPU makes of annotating and training, in one process without Ray; on a CPU, small, whether it runs."""

from __future__ import annotations

import argparse
import copy
import functools
import gc
import importlib.util
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.idc import cluster
from infocse_ray.benchmarks.made_up import MAX_LENGTH, backbone, documents, save_encoder, texts
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import GPU_TOKENS, SENTENCES_AT_ONCE, embed, inference_dtype
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.registry import method_of
from infocse_ray.sampling.stream import Batch
from infocse_ray.settings import Settings
from infocse_ray.train.state import TrainState
from infocse_ray.train.step import train_step

MODELS = ("BERT-base", "MiniLM-L6", "ModernBERT-base")
BATCHES = (128, 1_024, 3_200)
_DIFFERENT = 4
"""Batches that a training goes through."""


class Sizes(NamedTuple):
    """How much is measured."""

    small: bool
    sentences: int
    batches: tuple[int, ...]
    product: int
    """Rows of the matrices whose product is the peak."""
    tests: float
    """Seconds that tests may take."""


class NoBackbone(torch.nn.Module):
    """Stands for a backbone that takes no time: token vectors of eight zeros."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=8, model_type=config.model_type)
        self.weight = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        """As of a transformers encoder, [b, length, 8]."""
        return SimpleNamespace(last_hidden_state=self.weight.new_zeros(1, 1, 1).expand(*input_ids.shape, 8))


def now() -> float:
    """Seconds, once the GPU has done what it was asked to."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds(work: Callable[[], object], repeats: int = 2) -> float:
    """Of the fastest run, after one that isn't counted."""
    work()
    taken = []
    for _ in range(repeats):
        begun = now()
        work()
        taken.append(now() - begun)
    return min(taken)


def peak_of(device: torch.device, dtype: torch.dtype, rows: int) -> float:
    """Operations a second of a product of two large square matrices."""
    left, right = (torch.randn(rows, rows, device=device, dtype=dtype) for _ in range(2))
    return 2 * rows**3 * 10 / seconds(lambda: [left @ right for _ in range(10)])


def operations(encoder: Any, tokens: int, sentences: int) -> float:
    """Of a forward pass over real tokens: two a weight of its matrices, and attention."""
    model = encoder.backbone
    embedding = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    matrices = sum(p.numel() for p in model.parameters() if p.ndim > 1 and id(p) not in embedding)
    matrices -= sum(p.numel() for n, p in model.named_parameters() if n.startswith("pooler.") and p.ndim > 1)
    attention = 4 * model.config.num_hidden_layers * model.config.hidden_size * tokens / max(1, sentences)
    return tokens * (2 * matrices + attention)


def annotating(folder: EncoderFolder, some: Documents, device: torch.device, peak: float) -> tuple[str, ...]:
    """Sentences a second of an actor's inner loop, and where the time goes."""
    annotator = Annotator(folder, "auto", device)
    clustering = functools.partial(cluster, k=1)
    n = len(some.sentences)
    whole = seconds(lambda: annotator.clusters(some, clustering))
    annotator.tokens = annotator.padded = 0
    annotator.clusters(some, clustering)
    share = operations(annotator.encoder, annotator.tokens, n) / whole / peak
    padding = 1 - annotator.tokens / annotator.padded
    packed = "no" if annotator.encoder.kernel is None else annotator.encoder.kernel.__name__
    draw = torch.nn.functional.normalize(torch.randn(n, annotator.encoder.dimension, device=device), dim=-1)
    idc = seconds(lambda: cluster(draw, some.offsets, 1))
    host = host_seconds(annotator, some)
    return (
        f"{n / whole:,.0f}",
        f"{100 * share:.1f} %",
        f"{100 * padding:.1f} %",
        packed,
        f"{1e6 * host / n:.2f}",
        f"{100 * host / whole:.0f} %",
        f"{n / idc:,.0f}",
    )


def host_seconds(annotator: Annotator, some: Documents) -> float:
    """Processor time of embedding with a backbone and pooling that do nothing; without a GPU on a device that is none.

    It is cutting, finding equal sentences, sorting, and asking for batches.
    """
    encoder = copy.deepcopy(annotator.encoder)
    encoder.kernel, encoder.backbone = None, NoBackbone(encoder.backbone.config)
    encoder.pool = lambda hidden, *_: hidden[:, 0].expand(-1, encoder.dimension)  # pyright: ignore
    if encoder.device.type == "cpu":
        encoder.to("meta")  # whose own work, in Python, counts here
    rows = np.arange(len(some.sentences))
    chunks = [rows[begin : begin + SENTENCES_AT_ONCE] for begin in range(0, len(rows), SENTENCES_AT_ONCE)]
    taken = []
    for _ in range(3):
        begun = time.process_time()
        for chunk in chunks:
            embed(encoder, some.sentences.take(chunk), GPU_TOKENS)
        taken.append(time.process_time() - begun)
        now()  # apart from what was asked before
    return min(taken)


def encoding(folder: EncoderFolder, some: Documents, device: torch.device) -> str:
    """Sentences a second of SentenceTransformer.encode, in the best of a few settings."""
    from sentence_transformers import SentenceTransformer

    torch.backends.cuda.enable_cudnn_sdp(True)  # as torch has it, for them
    lines, best = texts(some.sentences), 0.0
    dtype = inference_dtype("auto", device)
    for batch in (128, 512, 2_048) if device.type == "cuda" else (32,):
        theirs = SentenceTransformer(str(folder.local()), device=str(device), model_kwargs={"dtype": dtype})
        theirs.encode(lines[: len(lines) // 10], batch_size=batch)  # isn't counted
        begun = now()
        theirs.encode(lines, batch_size=batch, convert_to_tensor=True)
        best = max(best, len(lines) / (now() - begun))
    return f"{best:,.0f}"


def _sides(some: Documents, pairs: int) -> list[tuple[Tokens, Tokens]]:
    """Anchors and positives of a few batches, each of other sentences: a training's batches are of ever new shapes."""
    rows = np.arange(_DIFFERENT * 2 * pairs).reshape(_DIFFERENT, pairs, 2) % len(some.sentences)
    return [(some.sentences.take(of[:, 0]), some.sentences.take(of[:, 1])) for of in rows]


def _measured(step: Callable[[], object], pairs: int, device: torch.device) -> tuple[float, str]:
    """Pairs a second of steps on batches that weren't seen, after one that isn't counted, and memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    step()
    begun = now()
    for _ in range(_DIFFERENT - 1):
        step()
    taken = (now() - begun) / (_DIFFERENT - 1)
    memory = f"{torch.cuda.max_memory_allocated(device) / 2**20:,.0f} MiB" if device.type == "cuda" else "-"
    return pairs / taken, memory


def training(
    folder: EncoderFolder, some: Documents, pairs: int, device: torch.device, peak: float
) -> tuple[str, str, str]:
    """Pairs a second of training steps, of the peak what the arithmetic of one forward and two backward is; memory."""
    precision = "bf16" if device.type == "cuda" else "fp32"
    settings = Settings.model_validate(
        {
            "name": "benchmark",
            "corpus": {"source": "unused"},
            "encoder": {"model": str(folder.folder), "max_length": MAX_LENGTH, "precision": precision},
            "train": {"batch_size": pairs, "distillation": 0.0},  # as what it is compared with
        }
    )
    encoder = folder.load().to(device)
    method = method_of("idc", settings, EncoderSpec.of(encoder))
    assert method is not None
    state = TrainState(encoder, method, settings, 0)
    keys, sides = np.arange(pairs), _sides(some, pairs)
    batches = itertools.cycle([Batch.of_pairs([str(key) for key in keys], keys, *both) for both in sides])
    tokens = int(sum(encoder.lengths(side).sum() for both in sides for side in both) / len(sides))
    pace, memory = _measured(lambda: train_step(state, next(batches), 0, 1), pairs, device)
    share = 3 * operations(encoder, tokens, 2 * pairs) * pace / pairs / peak
    return f"{pace:,.1f}", f"{100 * share:.1f} %", memory


def their_training(folder: EncoderFolder, some: Documents, pairs: int, device: torch.device) -> tuple[str, str]:
    """Pairs a second of CachedMultipleNegativesRankingLoss, and memory."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
    from sentence_transformers.util import batch_to_device

    torch.backends.cuda.enable_cudnn_sdp(True)  # as torch has it, for them
    theirs = SentenceTransformer(str(folder.local()), device=str(device)).train()
    loss_of = CachedMultipleNegativesRankingLoss(theirs, mini_batch_size=min(pairs, 512))
    optimizer = torch.optim.Adam(theirs.parameters(), lr=2e-5)
    batches = itertools.cycle(
        [batch_to_device(theirs.preprocess(texts(side)), theirs.device) for side in both]
        for both in _sides(some, pairs)
    )

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss_of(next(batches), torch.empty(0)).backward()
        optimizer.step()

    pace, memory = _measured(step, pairs, device)
    return f"{pace:,.1f}", memory


def gpu_tests(limit: float) -> str:
    """The last line of what tests/gpu say, where they and a GPU are there."""
    there = Path("tests/gpu")
    if not (torch.cuda.is_available() and there.is_dir() and importlib.util.find_spec("pytest")):
        return "tests/gpu: not run, for there is no GPU, no folder tests/gpu here, or no pytest"
    try:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(there)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"tests/gpu: not done after {limit:.0f} s"
    if ran.returncode:
        print(ran.stdout[-4_000:], file=sys.stderr)
    return f"tests/gpu: {(ran.stdout.strip().splitlines() or ['nothing'])[-1]}"


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    cuda = torch.cuda.is_available()
    if not (cuda or arguments.small):
        raise ValueError("gpu: there is no GPU here; --small measures little encoders on the CPU, to see that it works")
    sizes = Sizes(False, 50_000, BATCHES, 8_192, 180) if not arguments.small else Sizes(True, 300, (8, 16), 256, 180)
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    tested = gpu_tests(sizes.tests)
    peak = peak_of(device, inference_dtype("auto", device), sizes.product)
    some = documents(sizes.sentences)
    theirs = importlib.util.find_spec("sentence_transformers") is not None
    annotated: list[tuple[str, ...]] = []
    trained: list[tuple[str, ...]] = []
    for name in MODELS:
        with tempfile.TemporaryDirectory() as work:
            print(f"{name} ...", file=sys.stderr, flush=True)
            folder = save_encoder(backbone(name, sizes.small), Path(work) / "encoder")
            other = encoding(folder, some, device) if theirs else "-"
            annotated.append(_told((name, *annotating(folder, some, device, peak), other)))
            for pairs in sizes.batches:
                _forget()
                ours = training(folder, some, pairs, device, peak)
                _forget()
                others = their_training(folder, some, pairs, device) if theirs else ("-", "-")
                trained.append(_told((f"{name}, {pairs:,} pairs", *ours, *others)))
    head = ("annotate", "sentences/s", "of the peak", "padding", "packed", "host, us a sentence", "host, share")
    table((*head, "IDC alone, sentences/s", "SentenceTransformer.encode"), annotated)
    head = ("train", "pairs/s", "of the peak", "memory", "CachedMultipleNegativesRankingLoss, pairs/s", "memory")
    table(head, trained)
    notes(
        f"Random weights{', tiny' if sizes.small else ''}; {len(some.sentences):,} sentences of random words, 8 to "
        f"{MAX_LENGTH} tokens, {len(some.keys):,} documents. The peak, {peak / 1e12:,.2f} TFLOP/s, is that of a "
        f"product of two matrices of {sizes.product:,} rows; its share counts real tokens' arithmetic, in training "
        "that of a forward pass and twice as much backward.",
        "Host: processor time of embedding with a backbone that does nothing; on a GPU it passes while the device "
        "works. encode tokenises too, and has the best of three batch sizes. Steps: Adam and dropout included.",
        tested,
    )


def _told(row: tuple[str, ...]) -> tuple[str, ...]:
    """A row, told as soon as it is there: whoever has a GPU for minutes may be cut off before the tables are."""
    print(" | ".join(row), file=sys.stderr, flush=True)
    return row


def _forget() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
