"""Backbones that are, or were, language models: vectors as sentence-transformers has them, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import processors

from infocse_ray.encoder.layout import write_layout
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.positions import position_room
from infocse_ray.encoder.texts import TextEncoder
from infocse_ray.export import onnx_format
from infocse_ray.methods.mlm_head import trained_head
from infocse_ray.settings import Encoder
from tests.conftest import make_documents
from tests.unit.trainees import Run, annotated

TEXTS = [*(s for d in make_documents(8, seed=5) for s in d["sentences"]), "near", ""]
SHAPE: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 160}
DECODER: dict[str, Any] = SHAPE | {
    "intermediate_size": 64,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
T5: dict[str, Any] = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 160}
KINDS: dict[str, tuple[Any, str]] = {
    "qwen3": (lambda: transformers.Qwen3Model(transformers.Qwen3Config(**DECODER)), "lasttoken"),
    "mistral": (lambda: transformers.MistralModel(transformers.MistralConfig(**DECODER, sliding_window=8)), "mean"),
    "gemma3_text": (
        lambda: transformers.Gemma3TextModel(
            transformers.Gemma3TextConfig(**DECODER, use_bidirectional_attention=True, sliding_window=8)
        ),
        "mean",
    ),
    "gpt2": (
        lambda: transformers.GPT2Model(
            transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=160)
        ),
        "lasttoken",
    ),
    "t5": (lambda: transformers.T5EncoderModel(transformers.T5Config(**T5)), "mean"),
}
"""Each with the pooling of those that are published."""


def folder_of(kind: str, tiny_encoder: Path, folder: Path, pad: bool = True) -> Path:
    """A backbone of random weights in a plain folder; its texts end in a token, and are padded before they begin."""
    torch.manual_seed(0)
    KINDS[kind][0]().save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_encoder)
    ids = tokenizer.get_vocab()
    backend = tokenizer.backend_tokenizer
    backend.post_processor = processors.TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", ids["[SEP]"])])
    padded = {"pad_token": "[PAD]"} if pad else {}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="[SEP]", unk_token="[UNK]", padding_side="left", **padded
    ).save_pretrained(folder)
    return folder


def load(folder: Path, **more: Any) -> SentenceEncoder:
    settings = Encoder.model_validate({"model": str(folder), "max_length": 16} | more)
    return load_encoder(folder, settings, cosine=True)


def theirs(folder: Path, length: int) -> np.ndarray:
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = length
    return model.encode(TEXTS, show_progress_bar=False, batch_size=16)


@pytest.mark.parametrize("length", [6, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_sentence_transformers(tiny_encoder: Path, tmp_path: Path, kind: str, length: int):
    source = folder_of(kind, tiny_encoder, tmp_path / "source")
    write_layout(source, 32, KINDS[kind][1], True, None)  # pyright: ignore[reportArgumentType]
    encoder = load(source, max_length=length)
    assert encoder.pooling == KINDS[kind][1]
    ours = TextEncoder(encoder).vectors(TEXTS).numpy()
    assert "past_key_values" not in encoder.backbone(input_ids=torch.zeros(1, 3, dtype=torch.int64))
    if kind != "gpt2":  # which counts a text's positions from its padding, as theirs has it in front of it
        np.testing.assert_allclose(ours, theirs(source, length), rtol=0, atol=1e-5)
    encoder.save(tmp_path / "saved")
    np.testing.assert_allclose(ours, theirs(tmp_path / "saved", length), rtol=0, atol=1e-5)
    assert load(tmp_path / "saved", max_length=length).fingerprint() == encoder.fingerprint()


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_reads_both_ways_may_take_the_first_token(tiny_encoder: Path, tmp_path: Path, kind: str):
    folder = folder_of(kind, tiny_encoder, tmp_path)
    if kind in ("gemma3_text", "t5"):
        assert load(folder, pooling="cls").pooling == "cls"
    else:
        with pytest.raises(ValueError, match=rf"a {kind} model reads from left to right.* to lasttoken or mean$"):
            load(folder, pooling="cls")


@pytest.mark.parametrize("kind", KINDS)
def test_a_language_model_must_be_told_how_a_text_becomes_one_vector(tiny_encoder: Path, tmp_path: Path, kind: str):
    folder = folder_of(kind, tiny_encoder, tmp_path)
    if kind == "t5":  # the half that reads is nothing else than an encoder
        assert load(folder).pooling == "mean"
    else:
        with pytest.raises(ValueError, match=rf"a {kind} model is a language model .* encoder\.pooling to lasttoken"):
            load(folder)
    assert load(folder, pooling="lasttoken").pooling == "lasttoken"


def test_t5_is_loaded_without_the_half_that_writes(tiny_encoder: Path, tmp_path: Path):
    folder = folder_of("t5", tiny_encoder, tmp_path / "whole")
    torch.manual_seed(0)
    transformers.T5Model(transformers.T5Config(**T5, num_decoder_layers=1)).save_pretrained(folder)
    encoder = load(folder)
    encoder.save(tmp_path / "saved")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert saved
    assert not [name for name in saved if name.startswith("decoder.")]


def test_token_vectors_are_as_wide_as_the_configuration_says(tiny_encoder: Path, tmp_path: Path):
    folder = folder_of("qwen3", tiny_encoder, tmp_path)
    shape: dict[str, Any] = {"hidden_size": 32, "word_embed_proj_dim": 16, "ffn_dim": 64, "num_hidden_layers": 2}
    opt = transformers.OPTConfig(
        **shape, num_attention_heads=4, vocab_size=160, max_position_embeddings=64, do_layer_norm_before=False
    )
    transformers.OPTModel(opt).save_pretrained(folder)
    with pytest.raises(ValueError, match="opt model whose token vectors have 16 dimensions, not its hidden_size of 32"):
        load(folder, pooling="lasttoken")


def test_fewer_than_no_positions_are_no_limit():
    assert position_room(transformers.XLNetConfig()) is None
    assert position_room(transformers.BertConfig()) == 512


def test_what_predicts_the_next_token_has_no_head_for_masked_ones(tiny_encoder: Path, tmp_path: Path):
    assert trained_head(folder_of("qwen3", tiny_encoder, tmp_path), 100) is None


def test_what_torch_cannot_write_as_onnx_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object, **__: object) -> None:
        raise torch.onnx.errors.OnnxExporterError("no such operation\nat great length")

    monkeypatch.setattr(torch.onnx, "export", fails)
    nothing: Any = None
    with pytest.raises(ValueError, match=r"^format = onnx: .* this backbone: no such operation; use openvino$"):
        onnx_format.write(nothing, tmp_path, int8=False)


def test_texts_can_be_padded_by_whoever_reads_the_export(tiny_encoder: Path, tmp_path: Path):
    folder = folder_of("qwen3", tiny_encoder, tmp_path / "source", pad=False)
    encoder = load(folder, pooling="lasttoken")
    encoder.save(tmp_path / "saved")
    np.testing.assert_allclose(
        TextEncoder(encoder).vectors(TEXTS).numpy(), theirs(tmp_path / "saved", 16), rtol=0, atol=1e-5
    )


def test_a_text_of_which_nothing_is_pooled_has_the_vector_of_nothing(tiny_encoder: Path, tmp_path: Path):
    encoder = load(folder_of("qwen3", tiny_encoder, tmp_path), pooling="lasttoken")
    hidden = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(0))
    pooled = torch.tensor([[0, 0, 0], [1, 1, 0]])
    found = encoder.pool(hidden, pooled)
    assert not found[0].any()
    torch.testing.assert_close(found[1], torch.nn.functional.normalize(hidden[1, 1], dim=-1))


@pytest.mark.parametrize("case", ["idc", "simcse"])
@pytest.mark.parametrize("kind", ["qwen3", "gemma3_text", "t5"])
def test_they_are_trained_whatever_the_chunks(tiny_encoder: Path, tmp_path: Path, kind: str, case: str):
    folder = folder_of(kind, tiny_encoder, tmp_path / "model")
    write_layout(folder, 32, KINDS[kind][1], True, None)  # pyright: ignore[reportArgumentType]
    source = annotated(tmp_path / "source", folder)
    small, large = (Run(folder, source, dropout=False, case=case, chunk_tokens=tokens) for tokens in (64, 10_000))
    np.testing.assert_allclose(small.losses(3), large.losses(3), rtol=1e-4)
    for name, weight in small.weights().items():
        torch.testing.assert_close(weight, large.weights()[name], rtol=0, atol=2e-4)
