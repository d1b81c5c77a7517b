"""What a GPU computes against the CPU; skipped where there is none."""

from __future__ import annotations

import contextlib
import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from infocse_ray.annotate import annotator as annotator_module
from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.components import clusters_by_component
from infocse_ray.annotate.idc import cluster
from infocse_ray.benchmarks.made_up import backbone
from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import embed, for_inference
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.packing import Asked, ByLength, by_block, by_mask
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.registry import method_of
from infocse_ray.sampling.stream import Batch
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from infocse_ray.train import state as state_module
from infocse_ray.train.cached import backward
from infocse_ray.train.state import TrainState
from infocse_ray.train.step import StepReport, train_step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")


def sentences(count: int, seed: int) -> Tokens:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 20, count)
    return Tokens(draw.integers(7, 60, int(lengths.sum())).astype(np.uint16), offsets_of(lengths))


def settings_for(folder: Path, **train: Any) -> Settings:
    return Settings.model_validate(
        {
            "name": "run",
            "corpus": {"source": "unused"},
            "encoder": {"model": str(folder), "max_length": 16, "precision": "fp32"},
            "train": {"batch_size": 24, "learning_rate": 1e-3} | train,
        }
    )


def encoder_on(device: torch.device, folder: Path, dropout: bool) -> SentenceEncoder:
    encoder = load_encoder(folder, settings_for(folder).encoder, cosine=False).to(device)
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout) and not dropout:
            module.p = 0.0
    return encoder


def state_on(device: torch.device, folder: Path, dropout: bool, precision: str = "fp32") -> TrainState:
    encoder, settings = encoder_on(device, folder, dropout), settings_for(folder, chunk_tokens=64)
    settings = settings.model_copy(update={"encoder": settings.encoder.model_copy(update={"precision": precision})})
    method = method_of("idc", settings, EncoderSpec.of(encoder))
    assert method is not None
    return TrainState(encoder, method, settings, 0)


def pairs(count: int, seed: int) -> Batch:
    keys = np.arange(count) % 20
    return Batch.of_pairs([f"d{key}" for key in keys], keys, sentences(count, seed), sentences(count, 100 + seed))


def test_clusters_are_those_of_the_cpu() -> None:
    draw = np.random.default_rng(0)
    offsets = offsets_of(draw.integers(0, 40, 200))
    # Small whole numbers: every product is exact on every device, and many are equal.
    vectors = torch.from_numpy(draw.integers(-2, 3, (int(offsets[-1]), 16)).astype(np.float32))
    for k in (1, 3, 12):
        assert cluster(vectors.to(GPU), offsets, k).tolist() == cluster(vectors, offsets, k).tolist()


def test_clusters_beside_the_next_batch_are_those_of_the_cpu(
    tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(annotator_module, "SENTENCES_AT_ONCE", 100)
    keys = np.arange(150)
    offsets = offsets_of(np.random.default_rng(2).integers(1, 12, len(keys)))
    documents = Documents(pa.array(keys.astype(str)), keys, offsets, sentences(int(offsets[-1]), 5))
    folder = EncoderFolder(Storage.open(str(tiny_encoder)), "x", 16)
    on_gpu, on_cpu = (Annotator(folder, "fp32", device) for device in (GPU, CPU))
    vectors = [part.cpu() for _, _, part in on_gpu.vectors(documents)]
    torch.testing.assert_close(
        torch.cat(vectors), embed(on_cpu.encoder, documents.sentences).vectors, rtol=0, atol=1e-5
    )
    found, expected = (one.clusters(documents, functools.partial(cluster, k=2))[0] for one in (on_gpu, on_cpu))
    assert (found == expected).mean() > 0.99  # of two that are as near but for rounding it is either


def test_components_are_those_of_the_cpu() -> None:
    order = np.random.default_rng(0).permutation(5_000)
    source, target = (torch.from_numpy(end).to(GPU) for end in (order[:-1], order[1:]))
    assert not clusters_by_component(source, target, np.array([0, 5_000])).any()


@pytest.mark.parametrize("left_to_right", [False, True])
def test_sentences_without_padding_are_embedded_as_with_it(tiny_encoder: Path, left_to_right: bool) -> None:
    encoder = encoder_on(CPU, tiny_encoder, False)
    if left_to_right:
        encoder.backbone = backbone("Qwen3-0.6B", small=True)
    packed = for_inference(encoder, "bf16", GPU)
    assert isinstance(packed.kernel, ByLength), "no kernel for this GPU"
    batch = sentences(300, 1)
    found = embed(packed, batch)
    packed.kernel = None
    padded = embed(packed, batch)
    assert torch.nn.functional.cosine_similarity(found.vectors, padded.vectors).min() > 0.999
    assert found.padded == found.tokens < padded.padded


def attended(kernel: Any, given: list[torch.Tensor], bounds: torch.Tensor, longest: int, **more: Any) -> Any:
    """What a kernel makes of query, key and value, and with the fourth as its gradient the gradients of these."""
    inputs = [one.clone().requires_grad_() for one in given[:3]]
    out = kernel(Asked(*inputs, bounds=bounds, longest=longest, scale=None, **more))
    return [out.detach(), *torch.autograd.grad(out, inputs, given[3])]


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("window", [(-1, -1), (8, 8), (3, 11), (-1, 0), (8, 0)])
@pytest.mark.parametrize("longest", [16, 32, 64])
def test_attention_in_short_sentences_and_its_gradients_are_the_masks(size: int, window: Any, longest: int) -> None:
    lengths = np.random.default_rng(longest).integers(1, longest + 1, 200)
    lengths[7] = longest
    bounds = torch.from_numpy(offsets_of(lengths)).int().to(GPU)
    draw = torch.Generator().manual_seed(0)
    given = torch.randn(4, 4, int(lengths.sum()), size, generator=draw).to(GPU, torch.bfloat16).transpose(1, 2)
    found = attended(by_block, list(given), bounds, longest, window=window)
    expected = attended(by_mask, list(given.float()), bounds, longest, window=window)
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours.float() - theirs).norm() / theirs.norm()) < 1e-2


def test_dropout_in_short_sentences_is_of_its_rate_and_seed_and_the_same_in_the_gradient() -> None:
    lengths = np.array([32, 17, 1, 9] * 50)
    bounds = torch.from_numpy(offsets_of(lengths)).int().to(GPU)
    draw = torch.Generator().manual_seed(0)
    query, key, gradient = torch.randn(3, int(lengths.sum()), 4, 64, generator=draw).to(GPU, torch.bfloat16)
    # Every token's value is its place in its sentence, so that what comes out is the weights.
    place = torch.cat([torch.arange(length) for length in lengths])
    value = torch.nn.functional.one_hot(place, 64).to(GPU, torch.bfloat16)[:, None].expand(-1, 4, -1).contiguous()
    given = [query, key, value, gradient]

    def dropped(seed: int, rate: float) -> Any:
        torch.manual_seed(seed)
        return attended(by_block, given, bounds, 32, window=(-1, -1), dropout=rate)

    weights, found = dropped(1, 0.0)[0], dropped(1, 0.25)
    assert all(torch.equal(one, other) for one, other in zip(found, dropped(1, 0.25), strict=True))
    assert not torch.equal(found[0], dropped(2, 0.25)[0])
    kept = found[0] != 0
    assert abs(float(kept[weights > 1e-6].float().mean()) - 0.75) < 0.01
    torch.testing.assert_close(found[0], weights / 0.75 * kept, rtol=1e-2, atol=1e-4)
    inputs = [one.float().requires_grad_() for one in given[:3]]
    outs = []
    for begin, end in itertools.pairwise(bounds.tolist()):
        q, k, v = (one[begin:end].transpose(0, 1) for one in inputs)
        weight = torch.softmax(q @ k.mT / 8, -1) * kept[begin:end, :, : end - begin].transpose(0, 1) / 0.75
        outs.append((weight @ v).transpose(0, 1))
    expected = torch.autograd.grad(torch.cat(outs), inputs, gradient.float())
    for ours, theirs in zip(found[1:], expected, strict=True):
        assert float((ours.float() - theirs).norm() / theirs.norm()) < 1e-2


def test_training_is_without_padding_and_as_with_it(tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "ENOUGH_TO_PACK", 0)

    def curve() -> list[StepReport]:
        state = state_on(GPU, tiny_encoder, False, precision="bf16")
        return [train_step(state, pairs(24, step), 0, step) for step in range(1, 6)]

    packed = curve()
    monkeypatch.setattr(state_module, "training_kernel", lambda *_: None)
    for ours, theirs in zip(packed, curve(), strict=True):
        assert ours.padded == ours.tokens < theirs.padded
        assert ours.loss == pytest.approx(theirs.loss, rel=2e-2)
        assert ours.gradient_norm == pytest.approx(theirs.gradient_norm, rel=5e-2)


def test_batches_of_ever_new_shapes_plan_no_kernels_anew(tiny_encoder: Path) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    for_inference(encoder_on(CPU, tiny_encoder, False), "bf16", GPU)
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    state_on(GPU, tiny_encoder, False)
    assert not torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize("padded", [False, True])
def test_no_batch_waits_for_the_gpu(tiny_encoder: Path, padded: bool) -> None:
    encoder = for_inference(encoder_on(CPU, tiny_encoder, False), "bf16", GPU)
    if padded:
        encoder.kernel = None
    batch = sentences(3_000, 4)
    embed(encoder, batch)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        embed(encoder, batch, 2_000)
    names = [event.name for event in seen.events() or []]
    assert not [name for name in names if name in ("aten::_local_scalar_dense", "aten::nonzero")]
    assert sum("Memcpy HtoD" in name for name in names) == 2


@pytest.mark.parametrize(("precision", "least"), [("fp32", 0.99999), ("bf16", 0.999), ("auto", 0.999)])
def test_vectors_are_those_of_the_cpu(tiny_encoder: Path, precision: Any, least: float) -> None:
    batch = sentences(300, 1)
    expected = embed(encoder_on(CPU, tiny_encoder, False), batch).vectors
    found = embed(for_inference(encoder_on(GPU, tiny_encoder, False), precision, GPU), batch).vectors
    assert found.device.type == "cuda"
    assert torch.nn.functional.cosine_similarity(found.cpu().float(), expected).min() > least


def steps(device: torch.device, folder: Path) -> list[StepReport]:
    state = state_on(device, folder, False)
    return [train_step(state, pairs(24, step), 0, step) for step in range(1, 6)]


def test_steps_are_those_of_the_cpu(tiny_encoder: Path) -> None:
    for ours, theirs in zip(steps(GPU, tiny_encoder), steps(CPU, tiny_encoder), strict=True):
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-3)
        assert ours.gradient_norm == pytest.approx(theirs.gradient_norm, rel=1e-2)
        assert ours.tokens == theirs.tokens


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_cached_gradients_are_those_of_the_plain_batch_dropout_included(
    tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype | None
) -> None:
    monkeypatch.setattr(state_module, "ENOUGH_TO_PACK", 0)
    batch = pairs(20, 3)

    def gradients(kept_tokens: int) -> list[torch.Tensor]:
        state = state_on(GPU, tiny_encoder, True, precision="fp32" if dtype is None else "bf16")
        state.encoder.train()
        chunks = [chunk.to(GPU) for chunk in state.chunks(batch, state.memory.tokens)]
        assert len(chunks) > 3
        assert all(("bounds" in chunk.inputs) == (dtype is not None) for chunk in chunks)
        torch.manual_seed(7)
        backward(
            state.model,
            chunks,
            lambda vectors: (vectors @ vectors.mT).logsumexp(1).mean(),
            lambda: torch.autocast("cuda", dtype) if dtype else contextlib.nullcontext(),
            kept_tokens,
        )
        return [p.grad for p in state.parameters() if p.grad is not None]

    for cached, plain in zip(gradients(0), gradients(10**9), strict=True):
        # Other noise would change them by their size.
        rtol, atol = (1e-3, 1e-5) if dtype is None else (5e-2, 1e-2 * float(plain.abs().max()))
        torch.testing.assert_close(cached, plain, rtol=rtol, atol=atol)
