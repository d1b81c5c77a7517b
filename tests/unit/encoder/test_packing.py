"""Sentences without padding: vectors are those of padding, and whoever can't do it is told by a trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertModel,
    ElectraConfig,
    ElectraModel,
    Gemma3TextConfig,
    Gemma3TextModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    Qwen3Config,
    Qwen3Model,
    RobertaConfig,
    RobertaModel,
)

from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder import kernels, pack_trial, packing
from infocse_ray.encoder.embed import embed, for_inference
from infocse_ray.encoder.kernels import leave_out_cudnn_attention
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.pack_trial import device_kernel, model_packs
from infocse_ray.encoder.packing import SHORT, WIDE, Asked, by_block, by_mask
from infocse_ray.settings.section import Pooling

CPU = torch.device("cpu")
SHAPE: dict[str, Any] = {
    "vocab_size": 90,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.4,
}
MODERN: dict[str, Any] = {
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "cls_token_id": 2,
    "sep_token_id": 3,
}
GEMMA: dict[str, Any] = {
    "num_key_value_heads": 1,
    "head_dim": 8,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
MODELS: dict[str, Any] = {
    "bert": lambda: BertModel(BertConfig(**SHAPE)),
    "roberta": lambda: RobertaModel(RobertaConfig(**SHAPE, pad_token_id=1)),
    "electra": lambda: ElectraModel(ElectraConfig(**SHAPE, embedding_size=16)),
    "modernbert": lambda: ModernBertModel(ModernBertConfig(**SHAPE, **MODERN)),
    "qwen3": lambda: Qwen3Model(Qwen3Config(**SHAPE, num_key_value_heads=2, head_dim=8)),
    "gemma": lambda: Gemma3TextModel(Gemma3TextConfig(**SHAPE, **GEMMA, sliding_window=8)),
    "embedding_gemma": lambda: Gemma3TextModel(
        Gemma3TextConfig(**SHAPE, **GEMMA, sliding_window=14, use_bidirectional_attention=True)
    ),
}


def encoder_of(model: Any, folder: Path, pooling: Any = "mean", **more: Any) -> SentenceEncoder:
    torch.manual_seed(0)
    return SentenceEncoder(model(), AutoTokenizer.from_pretrained(folder), pooling, True, 30, **more).eval()


def sentences() -> Tokens:
    draw = np.random.default_rng(1)
    lengths = draw.integers(0, 40, 80)
    return Tokens(draw.integers(5, 90, int(lengths.sum())).astype(np.uint16), offsets_of(lengths))


@pytest.mark.parametrize("pooling", get_args(Pooling))
@pytest.mark.parametrize("name", MODELS)
def test_vectors_are_those_of_padding(tiny_encoder, name, pooling):
    encoder = encoder_of(MODELS[name], tiny_encoder, pooling)
    assert model_packs(encoder)
    assert encoder.kernel is None, "a trial leaves nothing behind"
    expected = embed(encoder, sentences(), 200)
    encoder.kernel = by_mask
    found = embed(encoder, sentences(), 200)
    torch.testing.assert_close(found.vectors, expected.vectors, rtol=0, atol=2e-6)
    assert (found.tokens, found.padded) == (expected.tokens, expected.tokens)
    encoder.kernel = None
    assert torch.equal(embed(encoder, sentences(), 200).vectors, expected.vectors), "padding isn't what it was"


def test_places_are_told_apart_in_bf16_as_in_fp32(tiny_encoder):
    encoder = encoder_of(MODELS["modernbert"], tiny_encoder)
    ready = for_inference(encoder, "bf16", CPU)
    assert {weight.dtype for weight in ready.backbone.parameters()} == {torch.bfloat16}
    frequencies = {name: of for name, of in encoder.backbone.named_buffers() if of.is_floating_point()}
    assert frequencies
    for name, of in ready.backbone.named_buffers():
        assert name not in frequencies or torch.equal(of, frequencies[name])
    near = torch.nn.functional.cosine_similarity(
        embed(ready, sentences()).vectors.float(), embed(encoder, sentences()).vectors
    )
    assert near.min() > 0.99


@pytest.mark.parametrize(("device", "left_out"), [(torch.device("cuda", 0), True), (CPU, False)])
def test_cudnns_attention_is_left_out_on_gpus(device, left_out):
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        leave_out_cudnn_attention(device)
        assert torch.backends.cuda.cudnn_sdp_enabled() is not left_out
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_a_mask_that_nobody_looked_at_changes_nothing(tiny_encoder, monkeypatch, name, padded):
    encoder = encoder_of(MODELS[name], tiny_encoder)
    draw = np.random.default_rng(2)
    lengths = draw.integers(1, 25, 40) if padded else np.full(40, 12)
    batch = Tokens(draw.integers(5, 90, int(lengths.sum())).astype(np.uint16), offsets_of(lengths))
    expected = embed(encoder, batch, 400).vectors
    seen = []
    whole = kernels.ALL_MASK_ATTENTION_FUNCTIONS[kernels._NAME]
    monkeypatch.setitem(
        kernels.ALL_MASK_ATTENTION_FUNCTIONS._global_mapping,
        kernels._NAME,
        lambda *arguments, **named: seen.append(whole(*arguments, **named)) or seen[-1],
    )
    monkeypatch.setattr(kernels, "_WAITED_FOR", ("cpu",))
    torch.testing.assert_close(embed(encoder, batch, 400).vectors, expected, rtol=0, atol=2e-6)
    assert seen
    assert all(mask is not None for mask in seen)
    assert encoder.backbone.config._attn_implementation == "sdpa"


def test_models_that_dont_pack_are_found_out(tiny_encoder, monkeypatch):
    assert not model_packs(encoder_of(lambda: MPNetModel(MPNetConfig(**SHAPE)), tiny_encoder))
    # Those that take the arguments and don't heed them.
    ignoring = encoder_of(MODELS["bert"], tiny_encoder)
    embeddings = ignoring.backbone.embeddings
    whole = embeddings.forward
    embeddings.forward = lambda position_ids=None, **rest: whole(**rest)
    assert not model_packs(ignoring)
    leaking = encoder_of(MODELS["modernbert"], tiny_encoder)
    monkeypatch.setattr(
        pack_trial, "by_mask", lambda asked: by_mask(asked._replace(bounds=torch.tensor([0, len(asked.query)])))
    )
    assert not model_packs(leaking)


def attended(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **more: Any) -> list[Asked]:
    """What a kernel is asked for, for tensors [1, heads, tokens, d]."""
    asked: list[Asked] = []

    def kernel(one: Asked) -> torch.Tensor:
        asked.append(one)
        return one.query

    bounds = torch.tensor([0, query.shape[2]], dtype=torch.int32)
    packed = (kernel, bounds, query.shape[2])
    packing._attend(torch.nn.Module(), query, key, value, None, dropout=0.25, packed=packed, **more)
    return asked


def test_under_autocast_a_kernel_is_given_one_type_and_dropout():
    """As torch's own attention is: what a rotary embedding made of a projection may be fp32."""
    query, key, value = torch.randn(3, 1, 4, 6, 8)
    with torch.autocast("cpu", torch.bfloat16):
        (asked,) = attended(query, key, value.bfloat16())
    assert {one.dtype for one in asked[:3]} == {torch.bfloat16}
    assert asked.dropout == 0.25
    (asked,) = attended(query, key, value)
    assert {one.dtype for one in asked[:3]} == {torch.float32}
    assert [tuple(one.shape) for one in asked[:3]] == [(6, 4, 8)] * 3


def test_a_head_of_keys_is_of_the_queries_that_follow_one_another():
    query, key = torch.randn(1, 4, 6, 8), torch.randn(1, 2, 6, 8)
    (asked,) = attended(query, key, -key)
    assert torch.equal(asked.key, key[0].transpose(0, 1)[:, [0, 0, 1, 1]])
    assert torch.equal(asked.value, -asked.key)


@pytest.mark.parametrize(
    "more", [{"softcap": 50.0}, {"s_aux": torch.zeros(4)}, {"position_bias": torch.zeros(1, 4, 6, 6)}]
)
def test_attention_of_another_kind_is_refused(more):
    query = torch.randn(1, 4, 6, 8)
    with pytest.raises(ValueError, match="can't attend to packed"):
        attended(query, query, query, **more)


@pytest.mark.parametrize(("longest", "size"), [(SHORT + 1, 32), (8, WIDE + 1)])
def test_a_block_is_of_short_sentences_and_narrow_heads(longest, size):
    given = torch.zeros(3, longest, 1, size)
    asked = Asked(*given, bounds=torch.tensor([0, longest]), longest=longest, scale=None, window=(-1, -1))
    with pytest.raises(ValueError, match=f"of {longest} tokens, heads of {size}"):
        by_block(asked)


@pytest.mark.parametrize("name", ["qwen3", "gemma", "embedding_gemma"])
def test_a_kernel_is_tried_with_what_the_model_sees(tiny_encoder, monkeypatch, name):
    encoder = encoder_of(MODELS[name], tiny_encoder)
    tried, used = set(), set()

    def trying(asked: Asked) -> torch.Tensor:
        tried.add(tuple(reach >= 0 for reach in asked.window))
        return by_mask(asked)

    def using(asked: Asked) -> torch.Tensor:
        used.add(tuple(reach >= 0 for reach in asked.window))
        return by_mask(asked)

    monkeypatch.setattr(pack_trial, "_KERNELS", (trying,))
    assert device_kernel(encoder, CPU, torch.float32) is trying
    encoder.kernel = using
    embed(encoder, sentences())
    assert tried == used


def test_a_training_kernel_must_have_the_masks_gradients_and_dropout(tiny_encoder, monkeypatch):
    encoder = encoder_of(MODELS["modernbert"], tiny_encoder)

    def trained_by(kernel):
        monkeypatch.setattr(pack_trial, "by_block", kernel)
        state, trained = torch.get_rng_state(), encoder.train().training
        found = pack_trial._Trial(encoder, CPU, torch.float32).passed(kernel, pack_trial._SHORT, gradients=True)
        assert torch.equal(torch.get_rng_state(), state)
        assert encoder.training is trained
        return found

    def without_gradient(asked: Asked) -> torch.Tensor:
        return by_mask(asked._replace(value=asked.value.detach())) + 0 * asked.value

    def without_dropout(asked: Asked) -> torch.Tensor:
        if asked.dropout:
            raise NotImplementedError
        return by_mask(asked)

    def infinite_dropout(asked: Asked) -> torch.Tensor:
        return by_mask(asked) / (0.0 if asked.dropout else 1.0)

    assert trained_by(by_mask)
    assert not any(map(trained_by, (without_gradient, without_dropout, infinite_dropout)))


def test_a_kernel_must_do_its_part_on_the_device(tiny_encoder, monkeypatch):
    encoder = encoder_of(MODELS["modernbert"], tiny_encoder)

    def without_windows(asked: Asked) -> torch.Tensor:
        return by_mask(asked._replace(window=(-1, -1)))

    def missing(*_: Any) -> torch.Tensor:
        raise ImportError

    monkeypatch.setattr(pack_trial, "_KERNELS", (missing, without_windows, by_mask))
    assert device_kernel(encoder, CPU, torch.float32) is by_mask
    assert device_kernel(encoder_of(MODELS["bert"], tiny_encoder), CPU, torch.float32) is without_windows
    monkeypatch.setattr(pack_trial, "_KERNELS", (missing,))
    assert device_kernel(encoder, CPU, torch.float32) is None


def test_on_cpus_sentences_are_padded(tiny_encoder):
    assert for_inference(encoder_of(MODELS["bert"], tiny_encoder), "bf16", CPU).kernel is None
