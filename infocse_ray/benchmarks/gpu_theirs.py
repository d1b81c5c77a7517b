"""What one GPU makes of the same work by sentence-transformers, in the settings that are fastest for it.

1. Short trials order the settings; there is so much time for them, and what memory has no room for is left out.
2. The fastest is measured as this library is: after as much that isn't counted, and as often.
3. Inputs are flattened, which spares padding, where flash-attention is installed. Else it is torch's attention, as it
   comes and with cuDNN's kernel taken out of its choice, for that one plans each shape anew.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from infocse_ray.benchmarks.gpu_clock import UNCOUNTED, Pace, forget, pace, seconds, tried
from infocse_ray.benchmarks.made_up import texts
from infocse_ray.corpus.tokens import Tokens
from infocse_ray.distributed.memory import is_out_of_memory
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import filled, length_buckets

Sides = list[tuple[Tokens, Tokens]]
"""Anchors and positives of batches."""


class Tried(NamedTuple):
    """What trials choose among; what is likely to be fastest comes first, as time may run out."""

    dtypes: tuple[torch.dtype, ...]
    batches: tuple[int, ...]
    """`batch_size` of `encode`."""
    tokens: tuple[int, ...]
    """Of a batch that is tokenised beforehand."""
    mini_batches: tuple[int, ...]
    """`mini_batch_size` of the loss, pairs."""
    mini_tokens: tuple[int, ...]
    """`mini_batch_num_tokens` of the loss."""
    limit: float
    """Seconds; of encoding, and of each size of training batches, no trial begins after so many."""
    least: float
    """Seconds that a trial counts at least."""


ON_GPU = Tried(
    dtypes=(torch.bfloat16, torch.float16),
    batches=(512, 2_048, 4_096, 128),
    tokens=(131_072, 32_768, 8_192),
    mini_batches=(2_048, 512, 128),
    mini_tokens=(65_536, 16_384),
    limit=12.0,
    least=0.5,
)
SMALL = Tried((torch.float32,), (32,), (2_048,), (12,), (200,), 60.0, 0.0)
_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


class Found(NamedTuple):
    """What was measured."""

    rate: float
    """Sentences, or pairs, a second."""
    memory: str
    setting: str
    """The one that was fastest."""


_PADDED = "sdpa"


class _Kernels(NamedTuple):
    """By which tokens attend."""

    attention: str
    """As transformers calls it."""
    cudnn: bool
    """Whether torch may choose cuDNN's."""

    def __str__(self) -> str:
        return ", flattened" if self.flattened else ", attention as torch has it" if self.cudnn else ""

    @property
    def flattened(self) -> bool:
        """Sentences lie one after the other."""
        return self.attention != _PADDED

    def choose(self) -> None:
        """For all that this process computes next."""
        torch.backends.cuda.enable_cudnn_sdp(self.cudnn)


class _Encoding(NamedTuple):
    """A way to encode."""

    kernels: _Kernels
    dtype: torch.dtype
    size: int
    unit: str

    def __str__(self) -> str:
        return f"{_NAMES[self.dtype]}, batches of {self.size:,} {self.unit}{self.kernels}"


class _Loss(NamedTuple):
    """A way to train."""

    kernels: _Kernels
    size: int | None
    unit: str

    def __str__(self) -> str:
        if self.size is None:
            return f"MultipleNegativesRankingLoss{self.kernels}"
        return f"CachedMultipleNegativesRankingLoss, mini-batches of {self.size:,} {self.unit}{self.kernels}"

    def of(self, model: Any, pairs: int) -> torch.nn.Module:
        """The loss of batches of so many pairs."""
        from sentence_transformers.sentence_transformer import losses

        if self.size is None:
            return losses.MultipleNegativesRankingLoss(model)
        if self.unit == "pairs":
            return losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=self.size)
        # Which then says only in how many rows at a time scores are computed.
        return losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=pairs, mini_batch_num_tokens=self.size)


Way = TypeVar("Way", _Encoding, _Loss)


def encode(folder: EncoderFolder, sentences: Tokens, device: torch.device, among: Tried) -> Found:
    """`SentenceTransformer.encode`, tokenising included."""
    whole = texts(sentences)
    part = whole[: max(1, len(whole) // 10)]
    model_of = functools.cache(functools.partial(_model, folder, device))

    def measure(way: _Encoding, trial: bool) -> Pace:
        model, lines = model_of(way.kernels.attention, way.dtype), part if trial else whole
        way.kernels.choose()

        def work() -> None:
            model.encode(lines, batch_size=way.size, convert_to_tensor=True)

        return Pace(len(lines) / (tried(work, among.least) if trial else seconds(work)), "-")

    ways = itertools.product(_kernels(folder, device), among.dtypes, among.batches, ["sentences"])
    return fastest(itertools.starmap(_Encoding, ways), measure, among.limit)


def forward(folder: EncoderFolder, sentences: Tokens, device: torch.device, among: Tried) -> Found:
    """The same model called on batches that were tokenised, sorted by length and cut by tokens beforehand."""
    from sentence_transformers.util import batch_to_device

    part = sentences.take(np.arange(max(1, len(sentences) // 5)))
    model_of = functools.cache(functools.partial(_model, folder, device))

    @functools.lru_cache(maxsize=1)
    def batches(attention: str, size: int, trial: bool) -> tuple[list[dict[str, Any]], torch.Tensor]:
        chosen = part if trial else sentences
        cut = length_buckets if attention == _PADDED else filled
        rows = list(cut(chosen.lengths + 2, size))  # [CLS] and [SEP]
        model = model_of(attention, among.dtypes[0])
        features = [_pinned(model.preprocess(texts(chosen.take(some))), device) for some in rows]
        return features, torch.from_numpy(np.argsort(np.concatenate(rows))).to(device)

    def measure(way: _Encoding, trial: bool) -> Pace:
        model = model_of(way.kernels.attention, way.dtype)
        features, place = batches(way.kernels.attention, way.size, trial)
        way.kernels.choose()

        def work() -> torch.Tensor:
            with torch.inference_mode():
                found = [model(batch_to_device(dict(one), device))["sentence_embedding"] for one in features]
                return torch.cat(found)[place]

        return Pace(len(place) / (tried(work, among.least) if trial else seconds(work)), "-")

    # Batches are tokenised once for all types of weights.
    ways = itertools.product(_kernels(folder, device), among.tokens, among.dtypes)
    return fastest((_Encoding(kernels, dtype, size, "tokens") for kernels, size, dtype in ways), measure, among.limit)


def train(folder: EncoderFolder, sides: Sides, device: torch.device, among: Tried) -> Found:
    """Steps of MultipleNegativesRankingLoss, gradient caching or not, in mini-batches of pairs or of tokens.

    Args:
        folder: of the encoder.
        sides: UNCOUNTED + COUNTED batches; they are tokenised beforehand.
        device: that trains, a GPU in bf16.
        among: settings.
    """
    pairs = len(sides[0][0])
    trainee_of = functools.lru_cache(maxsize=1)(functools.partial(_Trainee, folder, sides, device))

    def measure(way: _Loss, trial: bool) -> Pace:
        trainee = trainee_of(way.kernels.attention)
        way.kernels.choose()
        step = functools.partial(trainee.step, way.of(trainee.model, pairs))
        if trial:
            # What the whole counts is seen there for the first time.
            batches = itertools.cycle(trainee.batches[:UNCOUNTED])
            return Pace(pairs / tried(lambda: step(next(batches)), among.least), "-")
        return pace(step, trainee.batches, pairs, device)

    tokens = int(sides[0][0].lengths.sum()) + 2 * pairs
    sizes: list[tuple[int | None, str]] = [(None, "pairs")]
    sizes += [(size, "pairs") for size in dict.fromkeys(min(pairs, size) for size in among.mini_batches)]
    sizes[2:2] = [(size, "tokens") for size in among.mini_tokens if size < tokens]
    kernels = _kernels(folder, device)
    return fastest(
        (
            _Loss(one, *size)
            for flattened in (True, False)
            for size in sizes
            for one in kernels
            # Mini-batches of tokens are of ever new shapes.
            if one.flattened == flattened and (flattened or not (one.cudnn and size[1] == "tokens"))
        ),
        measure,
        among.limit,
    )


def fastest(ways: Iterable[Way], measure: Callable[[Way, bool], Pace], limit: float) -> Found:
    """Try ways for some seconds, one that works at least, and measure the one that was fastest.

    Args:
        ways: in the order in which they are tried.
        measure: one of them, on a part of the work where it is told that this is a trial.
        limit: seconds, after which no other is tried.

    Raises:
        RuntimeError: none works.
    """
    begun, paces = time.perf_counter(), dict[Way, Pace]()
    for way in ways:
        if (found := _attempt(measure, way, True)) is not None:
            paces[way] = found
            print(f"  {way}: {found.rate:,.0f}", file=sys.stderr, flush=True)
        if paces and time.perf_counter() - begun > limit:
            break
    # Where a part had room in memory the whole may have none.
    for way in sorted(paces, key=lambda way: -paces[way].rate):
        forget()
        if (found := _attempt(measure, way, False)) is not None:
            return Found(*found, str(way))
    raise RuntimeError("sentence-transformers does it in none of the settings that were tried")


def _attempt(measure: Callable[[Way, bool], Pace], way: Way, trial: bool) -> Pace | None:
    """None: memory ran out, or a library can't, which is told; the others shall be measured all the same."""
    try:
        return measure(way, trial)
    except Exception as error:
        said = "out of memory" if is_out_of_memory(error) else f"{type(error).__name__}: {error}"
    forget()  # only here nothing keeps what it had on the device
    print(f"  {way}: left out, {said.splitlines()[0]}", file=sys.stderr, flush=True)
    return None


class _Trainee:
    """A model in training, with its batches on the device."""

    def __init__(self, folder: EncoderFolder, sides: Sides, device: torch.device, attention: str) -> None:
        from sentence_transformers.util import batch_to_device

        self.device = device
        self.model = _model(folder, device, attention, torch.float32).train()
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5, weight_decay=0.0, fused=True)
        self.batches = [
            [batch_to_device(self.model.preprocess(texts(side)), device) for side in both] for both in sides
        ]

    def step(self, loss_of: torch.nn.Module, batch: list[dict[str, Any]]) -> None:
        """On a batch, whose dictionaries models put results into."""
        self._optimizer.zero_grad(set_to_none=True)
        # Around backward as well, which encodes again.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            loss_of([dict(side) for side in batch], torch.empty(0)).backward()
        self._optimizer.step()


def _model(folder: EncoderFolder, device: torch.device, attention: str, dtype: torch.dtype) -> Any:
    from sentence_transformers import SentenceTransformer

    how = {"dtype": dtype, "attn_implementation": attention}
    return SentenceTransformer(str(folder.local()), device=str(device), model_kwargs=how).eval()


def _kernels(folder: EncoderFolder, device: torch.device) -> list[_Kernels]:
    """What there is, on this machine and of this model."""
    if device.type != "cuda":
        return [_Kernels(_PADDED, False)]
    padded = [_Kernels(_PADDED, False), _Kernels(_PADDED, True)]
    try:
        flattens = _model(folder, device, "flash_attention_2", torch.bfloat16)[0].can_flatten_inputs
    except Exception:  # not installed, or whatever a library says to this model and device
        return padded
    return [_Kernels("flash_attention_2", True), *padded] if flattens else padded


def _pinned(features: dict[str, Any], device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return features
    return {name: one.pin_memory() if isinstance(one, torch.Tensor) else one for name, one in features.items()}
