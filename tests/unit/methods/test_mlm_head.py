"""The head that a masked-language model's checkpoint has: found whatever it is called, sent along, and named."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ElectraConfig,
    ElectraForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    MPNetConfig,
    MPNetForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.loop.inputs import check
from infocse_ray.methods.mlm_head import MaskedLanguageModel, trained_head
from infocse_ray.methods.registry import Use, method_of
from infocse_ray.settings import Settings
from infocse_ray.train.state import TrainState
from tests.conftest import make_documents, write_jsonl
from tests.unit.trainees import settings_for

TOKENS = 120
"""That can be guessed; the checkpoints have more embeddings, as many do."""

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
WIDER: dict[str, Any] = SIZES | {"vocab_size": 192}
DISTIL: dict[str, Any] = {"vocab_size": 128, "dim": 32, "n_layers": 1, "n_heads": 4, "hidden_dim": 64}
ENDS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
KINDS = [
    (BertForMaskedLM, BertConfig(**SIZES)),
    (RobertaForMaskedLM, RobertaConfig(**SIZES, pad_token_id=1)),
    (MPNetForMaskedLM, MPNetConfig(**SIZES)),
    (DistilBertForMaskedLM, DistilBertConfig(**DISTIL)),
    (ModernBertForMaskedLM, ModernBertConfig(**SIZES, **ENDS)),
    (ElectraForMaskedLM, ElectraConfig(**SIZES, embedding_size=16)),
]


def checkpoint(folder: Path, kind: Any, config: Any) -> Any:
    """A masked-language model of weights that no initialisation gives."""
    torch.manual_seed(0)
    model = kind(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize(("kind", "config"), KINDS, ids=lambda value: getattr(value, "__name__", ""))
def test_the_head_of_a_checkpoint_gives_its_own_logits(tmp_path, kind, config):
    model = checkpoint(tmp_path, kind, config)
    found = trained_head(tmp_path, TOKENS)
    assert found is not None
    words = AutoModel.from_pretrained(tmp_path).get_input_embeddings().weight
    head = MaskedLanguageModel(32, words.shape[1], TOKENS, found)
    ids = torch.arange(5, 25)[None]
    with torch.inference_mode():
        states = model.base_model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        right = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[..., :TOKENS]
        torch.testing.assert_close(head.scores(states, words), right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "config"), KINDS, ids=lambda value: getattr(value, "__name__", ""))
def test_an_encoder_alone_has_none(tmp_path, kind, config):
    checkpoint(tmp_path / "whole", kind, config)
    AutoModel.from_pretrained(tmp_path / "whole").save_pretrained(tmp_path / "alone")
    assert trained_head(tmp_path / "alone", TOKENS) is None


@pytest.mark.parametrize("other", [{"tie_word_embeddings": False}, {"hidden_act": "relu"}], ids=str)
def test_a_head_of_another_form_is_none(tmp_path, other: dict[str, Any]):
    checkpoint(tmp_path, BertForMaskedLM, BertConfig(**(SIZES | other)))
    assert trained_head(tmp_path, TOKENS) is None


@pytest.fixture(scope="module")
def masked(tiny_encoder, tmp_path_factory) -> Path:
    """A masked-language model with the tiny encoder's tokenizer."""
    folder = tmp_path_factory.mktemp("masked")
    checkpoint(folder, BertForMaskedLM, BertConfig(**WIDER))
    for file in tiny_encoder.glob("token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def declutr(folder: Path, mask: float = 0.3, **train: Any) -> tuple[Any, Settings, Any]:
    """The method as a run makes it, its settings and the encoder."""
    settings = settings_for("declutr", folder, **train)
    settings = settings.model_copy(update={"declutr": settings.declutr.model_copy(update={"mask": mask})})
    encoder = load_encoder(folder, settings.encoder, False)
    return method_of("declutr", settings, EncoderSpec.of(encoder), Use(folder=folder)), settings, encoder


def test_workers_get_the_head_with_the_strategy(masked, tiny_encoder):
    method, settings, encoder = declutr(masked, learning_rate=3e-5)
    found = trained_head(masked, len(encoder.tokenizer))
    assert found is not None
    state = TrainState(encoder, pickle.loads(pickle.dumps(method)), settings, 5)
    for name, tensor in state.head.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), found.weights[name])
    # What is trained already learns like the encoder; what isn't has a rate of its own.
    assert {group["full_lr"] for group in state.optimizer.param_groups} == {3e-5}
    new, settings, encoder = declutr(tiny_encoder, learning_rate=3e-5)
    assert {group["full_lr"] for group in TrainState(encoder, new, settings, 5).optimizer.param_groups} == {3e-5, 1e-3}
    assert new.identity() != method.identity()
    assert declutr(masked, mask=0.0)[0].identity() == declutr(tiny_encoder, mask=0.0)[0].identity()


def test_first_weights_name_what_starts_with_them(masked, tiny_encoder, monkeypatch):
    def names() -> list[Any]:
        heads = ((tiny_encoder, 0.3), (masked, 0.3), (tiny_encoder, 0.0))
        return [declutr(folder, mask)[0].identity() for folder, mask in heads]

    before = names()
    monkeypatch.setattr("infocse_ray.methods.declutr._FIRST_WEIGHTS", 0)
    assert [new != old for new, old in zip(names(), before, strict=True)] == [True, False, False]


def test_another_head_names_another_run(masked, tmp_path):
    """Of two checkpoints of one encoder, and of the encoder alone."""
    other = BertForMaskedLM.from_pretrained(masked)
    with torch.no_grad():
        other.cls.predictions.transform.dense.weight[0, 0] += 1.0
    other.save_pretrained(tmp_path / "other")
    AutoModel.from_pretrained(masked, add_pooling_layer=False).save_pretrained(tmp_path / "alone")
    source = write_jsonl(tmp_path / "docs.jsonl", make_documents(9))
    for name in ("other", "alone"):
        for file in masked.glob("token*"):
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    for method, runs in (("declutr", 3), ("simcse", 1)):
        found, encoders = set(), set()
        for folder in (masked, tmp_path / "other", tmp_path / "alone"):
            settings = settings_for("declutr", folder, method=method)
            corpus = settings.corpus.model_copy(update={"source": str(source)})
            settings = settings.model_copy(update={"corpus": corpus})
            inputs = check(settings)
            found.add(inputs.identity(settings))
            encoders.add(inputs.fingerprint)
        assert (len(found), len(encoders)) == (runs, 1), method
