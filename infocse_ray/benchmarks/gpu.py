"""What one GPU makes of annotating and training, in one process without Ray; on a CPU, small, whether it runs."""

from __future__ import annotations

import argparse
import copy
import functools
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.idc import cluster
from infocse_ray.benchmarks import gpu_theirs
from infocse_ray.benchmarks.gpu_clock import COUNTED, UNCOUNTED, forget, now, pace, seconds, told
from infocse_ray.benchmarks.gpu_theirs import Sides, Tried
from infocse_ray.benchmarks.made_up import MAX_LENGTH, backbone, documents, save_encoder
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.corpus.store import Documents
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import GPU_TOKENS, SENTENCES_AT_ONCE, embed, inference_dtype
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.registry import method_of
from infocse_ray.sampling.stream import Batch
from infocse_ray.settings import Settings, Train
from infocse_ray.train.state import TrainState
from infocse_ray.train.step import train_step

MODELS = {
    "bert_base": "BERT-base",
    "minilm": "MiniLM-L6",
    "modernbert_base": "ModernBERT-base",
    "qwen3": "Qwen3-0.6B",
}
"""As `--models` has them, and as tables do."""
DISTILLATION = Train().distillation
"""That the default trains with."""
WHOLE = 540.0
"""Seconds that all may take with the tests, which have what is left of them: a GPU may be lent for ten minutes."""


class Sizes(NamedTuple):
    """How much is measured."""

    small: bool
    sentences: int
    batches: tuple[int, ...]
    """Pairs a step."""
    distilled: int
    """Which of them is trained with distillation, too."""
    product: int
    """Rows of the matrices whose product is the peak."""
    tests: float
    """Seconds that tests may take."""
    theirs: Tried
    """Settings of sentence-transformers."""


LARGE = Sizes(False, 50_000, (128, 1_024, 3_200), 1_024, 8_192, 180.0, gpu_theirs.ON_GPU)
SMALL = Sizes(True, 300, (8, 16), 16, 256, 180.0, gpu_theirs.SMALL)


class NoBackbone(torch.nn.Module):
    """Stands for a backbone that takes no time: token vectors of eight zeros."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        attention = config._attn_implementation  # by which the host's work depends on the device
        self.config = SimpleNamespace(hidden_size=8, model_type=config.model_type, _attn_implementation=attention)
        self.weight = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        """As of a transformers encoder, [b, length, 8]."""
        return SimpleNamespace(last_hidden_state=self.weight.new_zeros(1, 1, 1).expand(*input_ids.shape, 8))


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
    encoder.kernel, encoder.backbone = None, NoBackbone(encoder.backbone.config).to(annotator.encoder.device)
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


def sides_of(some: Documents, pairs: int) -> Sides:
    """Anchors and positives of a training's batches, each of other sentences."""
    rows = np.arange((UNCOUNTED + COUNTED) * 2 * pairs).reshape(-1, pairs, 2) % len(some.sentences)
    return [(some.sentences.take(of[:, 0]), some.sentences.take(of[:, 1])) for of in rows]


def training(
    folder: EncoderFolder, sides: Sides, distillation: float, device: torch.device, peak: float
) -> tuple[str, str, str]:
    """Pairs a second of training steps, of the peak what the arithmetic of their passes is; memory.

    These are one forward and two backward and, with distillation, one forward by the encoder as it was.
    """
    pairs = len(sides[0][0])
    precision = "bf16" if device.type == "cuda" else "fp32"
    settings = Settings.model_validate(
        {
            "name": "benchmark",
            "corpus": {"source": "unused"},
            "encoder": {"model": str(folder.folder), "max_length": MAX_LENGTH, "precision": precision},
            "train": {"batch_size": pairs, "distillation": distillation},
        }
    )
    encoder = folder.load().to(device)
    method = method_of("idc", settings, EncoderSpec.of(encoder))
    assert method is not None
    state = TrainState(encoder, method, settings, 0)
    keys = np.arange(pairs)
    batches = [Batch.of_pairs([str(key) for key in keys], keys, *both) for both in sides]
    tokens = int(sum(encoder.lengths(side).sum() for both in sides for side in both) / len(sides))
    found = pace(lambda batch: train_step(state, batch, 0, 1), batches, pairs, device)
    passes = 4 if distillation else 3
    share = passes * operations(encoder, tokens, 2 * pairs) * found.rate / pairs / peak
    return f"{found.rate:,.1f}", f"{100 * share:.1f} %", found.memory


def gpu_tests(limit: float) -> str:
    """The last line of what tests/gpu say, where they, a GPU and time are there."""
    there = Path("tests/gpu")
    if not (torch.cuda.is_available() and there.is_dir() and importlib.util.find_spec("pytest")):
        return "tests/gpu: not run, for there is no GPU, no folder tests/gpu here, or no pytest"
    if limit < 1:
        return "tests/gpu: not run, for there was no time left"
    try:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(there)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"tests/gpu: not done after {limit:.0f} s"
    if ran.returncode:
        print(ran.stdout[-4_000:], file=sys.stderr)
    return f"tests/gpu: {(ran.stdout.strip().splitlines() or ['nothing'])[-1]}"


def rows_of(
    name: str, sizes: Sizes, some: Documents, device: torch.device, peak: float
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """An encoder's row of annotating, and its rows of training, each told as soon as it is there."""
    theirs = importlib.util.find_spec("sentence_transformers") is not None
    with tempfile.TemporaryDirectory() as work:
        folder = save_encoder(backbone(name, sizes.small), Path(work) / "encoder")
        row = (name, *annotating(folder, some, device, peak))
        for other in (gpu_theirs.encode, gpu_theirs.forward):
            forget()
            found = other(folder, some.sentences, device, sizes.theirs) if theirs else None
            row += (f"{found.rate:,.0f}", found.setting) if found else ("-", "-")
        annotated, trained = told(row), []
        for pairs in sizes.batches:
            sides, named = sides_of(some, pairs), f"{name}, {pairs:,} pairs"
            forget()
            ours = training(folder, sides, 0.0, device, peak)  # as what it is compared with
            forget()
            found = gpu_theirs.train(folder, sides, device, sizes.theirs) if theirs else None
            other = (f"{found.rate:,.1f}", found.memory, found.setting) if found else ("-", "-", "-")
            trained.append(told((named, *ours, *other)))
            if pairs == sizes.distilled:
                forget()
                ours = training(folder, sides, DISTILLATION, device, peak)
                trained.append(told((f"{named}, distillation {DISTILLATION}", *ours, "-", "-", "-")))
    forget()
    return annotated, trained


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    begun, cuda = time.perf_counter(), torch.cuda.is_available()
    if not (cuda or arguments.small):
        raise ValueError("gpu: there is no GPU here; --small measures little encoders on the CPU, to see that it works")
    sizes = SMALL if arguments.small else LARGE
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    peak = peak_of(device, inference_dtype("auto", device), sizes.product)
    some = documents(sizes.sentences)
    annotated: list[tuple[str, ...]] = []
    trained: list[tuple[str, ...]] = []
    names, slowest = [MODELS[model] for model in dict.fromkeys(arguments.models)], 0.0
    for name in names:
        before = time.perf_counter()
        if cuda and before + slowest > begun + WHOLE:
            break
        print(f"{name} ...", file=sys.stderr, flush=True)
        row, rows = rows_of(name, sizes, some, device, peak)
        annotated.append(row)
        trained += rows
        slowest = max(slowest, time.perf_counter() - before)
    head = ("annotate", "sentences/s", "of the peak", "padding", "packed", "host, us a sentence", "host, share")
    theirs = ("SentenceTransformer.encode", "fastest with", "tokenised beforehand", "fastest with")
    table((*head, "IDC alone, sentences/s", *theirs), annotated)
    head = ("train", "pairs/s", "of the peak", "memory")
    table((*head, "sentence-transformers, pairs/s", "memory", "fastest with"), trained)
    notes(
        f"Random weights{', tiny' if sizes.small else ''}; {len(some.sentences):,} sentences of random words, 8 to "
        f"{MAX_LENGTH} tokens, {len(some.keys):,} documents. The peak, {peak / 1e12:,.2f} TFLOP/s, is that of a "
        f"product of two matrices of {sizes.product:,} rows; its share counts real tokens' arithmetic, in training "
        "that of a forward pass and twice as much backward, with distillation of another forward pass.",
        "Host: processor time of embedding with a backbone that does nothing; on a GPU it passes while the device "
        "works. Annotating clusters, too, and has its sentences tokenised; encode tokenises. Tokenised beforehand: the "
        "same model called on batches sorted by length, which are cut by tokens and sent up while it works. The better "
        "of two runs on each side, after one that isn't counted.",
        f"Steps: fused AdamW and dropout included, tokenising left out on both sides, padding and sending up on "
        f"theirs; {COUNTED} of them, after {UNCOUNTED} that aren't counted. sentence-transformers has its losses' "
        "default directions, half the columns of this library's.",
        "sentence-transformers is measured in the setting that was fastest in short trials, which standard error has, "
        f"for {sizes.theirs.limit:.0f} s of each kind; flattened inputs are among them where flash-attention is "
        "installed. Neither side is compiled.",
        *[f"{name} is left out: there was no time; --models names it alone." for name in names[len(annotated) :]],
        gpu_tests(min(sizes.tests, WHOLE - (time.perf_counter() - begun))),
    )
