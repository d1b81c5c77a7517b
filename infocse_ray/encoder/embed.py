"""Embed many sentences fast: identical ones once, sorted by length, in batches of a token budget."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch

from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.distributed.memory import MORE, is_out_of_memory
from infocse_ray.encoder.kernels import leave_out_cudnn_attention
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.on_device import SentencesOnDevice
from infocse_ray.encoder.pack_trial import device_kernel, model_packs
from infocse_ray.encoder.prompts import Role
from infocse_ray.errors import OutOfMemory

SENTENCES_AT_ONCE = 16_384
"""Sentences a caller embeds at a time: enough for buckets of one length, few enough to bound memory."""

GPU_TOKENS = 131_072
"""In a batch of inference on a GPU."""

Precision = Literal["auto", "fp32", "bf16"]


class Embedded(NamedTuple):
    """Sentence vectors and what they cost."""

    vectors: torch.Tensor
    """float32 [n, d], on the encoder's device."""
    tokens: int
    """Real tokens encoded."""
    padded: int
    """Tokens encoded, padding included."""


_budgets: dict[torch.device, int] = {}
"""Where memory ran out in this process: what a batch may have from then on."""


def token_budget(device: torch.device) -> int:
    """Tokens in an inference batch: a GPU wants many; a CPU does best when activations stay in its cache."""
    return _budgets.get(device, GPU_TOKENS if device.type == "cuda" else 4_096)


def length_buckets(lengths: np.ndarray, budget: int, enough: int | None = None) -> Iterator[np.ndarray]:
    """Cut rows, sorted by length, into batches that take at most `budget` tokens once padded.

    A batch ends before the budget is used up where its rows get a tenth shorter than its first, if it has
    `enough` tokens by then: padding stays a few per cent, and batches large enough to be efficient.

    Args:
        lengths: int [n]; 0 where neither a text nor the tokenizer gives a token.
        budget: tokens, padding included; a row longer than that makes a batch of its own.
        enough: tokens, padding included. Default: an eighth of the budget.

    Yields:
        int64 row numbers. Every row is in one batch. Long rows come first, so that what doesn't fit in memory
        shows at once.
    """
    enough = budget // 8 if enough is None else enough
    order = np.argsort(-lengths, kind="stable")
    descending = -lengths[order]
    start = 0
    while start < len(order):
        longest = max(1, -int(descending[start]))
        similar = int(np.searchsorted(descending, -(0.9 * longest), side="right"))
        stop = min(len(order), start + max(1, budget // longest), max(similar, start + max(1, enough // longest)))
        yield order[start:stop]
        start = stop


def filled(lengths: np.ndarray, budget: int) -> Iterator[np.ndarray]:
    """Cut rows, sorted by length, into batches of at most `budget` tokens that aren't padded before they are pooled.

    Args:
        lengths: int [n], as `length_buckets` has them.
        budget: tokens; twice as many once they are padded, to be pooled. A longer row makes a batch of its own.

    Yields:
        int64 row numbers. Every row is in one batch; long rows come first.
    """
    order = np.argsort(-lengths, kind="stable")
    until = offsets_of(lengths[order])
    start = 0
    while start < len(order):
        fit = int(np.searchsorted(until, until[start] + budget, side="right")) - 1
        stop = max(start + 1, min(fit, start + 2 * budget // max(1, int(lengths[order[start]]))))
        yield order[start:stop]
        start = stop


def embed(encoder: SentenceEncoder, tokens: Tokens, budget: int | None = None, role: Role = "document") -> Embedded:
    """Vectors of sentences, in their order.

    Args:
        encoder: in evaluation mode, in the precision to use (see `for_inference`).
        tokens: n sentences.
        budget: tokens in a batch, padding included; by default what suits the device. A batch that doesn't fit into
            its memory is halved, and so are those after it.
        role: of the sentences, which says what prompt they get.

    Raises:
        OutOfMemory: a single sentence doesn't fit.
    """
    cut = tokens.cut(encoder.room(role))
    first, inverse = _distinct(cut)
    cutting = length_buckets if encoder.kernel is None else filled
    buckets = list(cutting(encoder.lengths(cut, role=role)[first], budget or token_budget(encoder.device)))
    order = np.concatenate([np.empty(0, np.int64), *buckets])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    sentences = SentencesOnDevice(encoder, cut, first[order], role, rank[inverse])
    vectors = torch.empty(len(order), encoder.dimension, device=encoder.device)
    begin = padded = 0
    with torch.inference_mode():
        for rows in buckets:
            padded += _encode_into(vectors, encoder, sentences, begin, begin + len(rows), role)
            begin += len(rows)
        vectors = vectors[sentences.place]
    return Embedded(vectors, int(sentences.lengths.sum()), padded)


def _encode_into(
    vectors: torch.Tensor, encoder: SentenceEncoder, sentences: SentencesOnDevice, begin: int, end: int, role: Role
) -> int:
    """Encode some rows, in halves if they don't fit into memory; returns their tokens, padding included."""
    device, lengths = encoder.device, sentences.lengths[begin:end]
    tokens = int(lengths.sum() if encoder.kernel else lengths.max() * len(lengths))
    try:
        vectors[begin:end] = _encoded(encoder, sentences, begin, end, role)
        return tokens
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        if len(lengths) == 1:
            raise OutOfMemory(
                f"out of GPU memory: one text of {tokens} tokens; lower encoder.max_length (of documents that are read "
                f"whole the max_seq_length in the encoder's folder), or {MORE}"
            ) from error
    # Only here nothing keeps what that batch had on the device.
    if device.type == "cuda":
        torch.cuda.empty_cache()
    _budgets[device] = min(token_budget(device), max(1, tokens // 2))
    middle = begin + len(lengths) // 2
    halves = (begin, middle), (middle, end)
    return sum(_encode_into(vectors, encoder, sentences, *half, role) for half in halves)


def _encoded(encoder: SentenceEncoder, sentences: SentencesOnDevice, begin: int, end: int, role: Role) -> torch.Tensor:
    if encoder.kernel is None or not sentences.lengths[begin:end].any():  # a sequence has a token at least
        ids, mask = sentences.padded(begin, end)
        return encoder(ids, mask, encoder.pooled(mask, role))
    packed = sentences.packed(begin, end)
    pooled = encoder.pooled(packed.attention_mask, role)
    return encoder.pool(encoder.hidden_packed(packed), packed.attention_mask if pooled is None else pooled)


def _distinct(tokens: Tokens) -> tuple[np.ndarray, np.ndarray]:
    """Rows that come first of their kind, and for every row which of those it equals."""
    _, first, inverse = np.unique(tokens.hashes(), return_index=True, return_inverse=True)
    return first, inverse


def native_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bf16 matrices in hardware."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return device.type == "cpu" and any(getattr(torch.cpu, check, lambda: False)() for check in checks)


def inference_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The type weights are cast to for embedding: bf16 where asked for or native, else fp32."""
    if precision == "auto":
        precision = "bf16" if native_bf16(device) else "fp32"
    return torch.bfloat16 if precision == "bf16" else torch.float32


def for_inference(encoder: SentenceEncoder, precision: Precision, device: torch.device) -> SentenceEncoder:
    """A copy of the encoder for embedding: evaluation mode, no gradients, cast weights, no padding where it can.

    The tokenizer is the encoder's own.
    """
    leave_out_cudnn_attention(device)
    # The tokenizer, which nobody changes, isn't copied: a vocabulary takes as long as the weights of a small encoder.
    ready = copy.deepcopy(encoder, {id(encoder.tokenizer): encoder.tokenizer}).requires_grad_(False).eval()
    dtype = inference_dtype(precision, device)
    # Kernels are for GPUs, and for these precisions.
    if device.type == "cuda" and dtype != torch.float32 and model_packs(ready):
        ready.kernel = device_kernel(ready, device, dtype)
    ready.to(device)
    # Not its buffers: with 8 bits of a rotary embedding's frequencies, places far apart would be told wrongly.
    for weight in ready.backbone.parameters():
        weight.data = weight.data.to(dtype)
    return ready
