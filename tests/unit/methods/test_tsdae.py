"""TSDAE: which tokens are deleted, and the loss of writing the sentence anew."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    MegatronBertConfig,
    Qwen2Config,
    RemBertConfig,
    RobertaConfig,
    XLMRobertaConfig,
)

from infocse_ray.encoder.decoder import can_decode
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods import denoising_decoder
from infocse_ray.methods.denoising_decoder import DenoisingDecoder
from infocse_ray.methods.tsdae import TSDAE
from infocse_ray.settings import TSDAESettings
from infocse_ray.train.state import TrainState
from tests.unit.export.test_export import prompts_not_pooled
from tests.unit.stores import SPEC
from tests.unit.trainees import Run, annotated, listen


@pytest.fixture(scope="module")
def source(tiny_encoder, tmp_path_factory):
    return annotated(tmp_path_factory.mktemp("source"), tiny_encoder)


def padded(bodies, around=(1, 1), width=0):
    """Rows with special tokens around: 2 before (and tokens of a prompt from 90), 3 after."""
    rows = [[2, *range(90, 89 + around[0]), *body, *[3] * around[1]] for body in bodies]
    width = max(width, *map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return ids, torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])


def left_of(bodies, around=(1, 1), width=0, first=0, **section):
    """What is encoded of each, without padding, and all inputs."""
    method = TSDAE(TSDAESettings(**section), SPEC._replace(around=around))
    seeds = np.arange(first, first + len(bodies)).astype(np.uint64)
    inputs = method.inputs(*padded(bodies, around, width), np.zeros(len(bodies), np.int64), seeds)
    kept = [row[mask > 0].tolist() for row, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)]
    return kept, inputs


def test_so_many_tokens_are_deleted_and_the_others_keep_their_order():
    bodies = [list(range(10, 60))] * 400
    kept, inputs = left_of(bodies)
    assert all(row[0] == 2 and row[-1] == 3 and row == [*sorted(row[:-1]), 3] for row in kept)
    assert np.mean([len(row) - 2 for row in kept]) == pytest.approx(0.4 * 50, rel=0.03)
    # Each token as likely, whatever its place.
    times = np.bincount(np.concatenate([row[1:-1] for row in kept]), minlength=60)[10:]
    assert times.min() > 100
    assert times.max() < 220
    assert inputs["input_ids"].shape[1] == max(map(len, kept)), "no more columns than the longest row that is left"
    assert all(row.tolist() == [2, *bodies[0], 3] for row in inputs["decoded"])
    assert left_of(bodies, deleted=0.0)[0] == [[2, *bodies[0], 3]] * 400


def test_one_token_stays_and_so_do_special_tokens_and_the_prompt():
    kept, inputs = left_of([[7, 8], [9]] * 50, around=(4, 2), deleted=0.999)
    assert all(row[:4] == [2, 90, 91, 92] and row[-2:] == [3, 3] for row in kept)
    assert all(len(row) == 7 for row in kept)
    assert {row[4] for row in kept} == {7, 8, 9}
    assert inputs["decoded"][1].tolist() == [2, 90, 91, 92, 9, 3, 3, -100]


def test_what_is_deleted_does_not_depend_on_the_rows_beside():
    bodies = [[*range(10, 30)], [*range(30, 35)], [40]]
    together = left_of(bodies, width=40)[0]
    assert together == [left_of([body], first=row)[0][0] for row, body in enumerate(bodies)]


def test_the_loss_is_that_of_every_token_by_vector_and_those_before(tiny_encoder, source):
    run = Run(tiny_encoder, source, dropout=False, case="tsdae", similarity="cosine")
    batch = run.stream.next_batch()
    state, encoder = run.state, run.encoder.eval()
    listen(state.head)
    losses = []
    for chunk in state.prepare(batch).chunks:
        ids, mask, texts = (chunk.inputs[name] for name in ("input_ids", "attention_mask", "decoded"))
        for row, text in zip(range(len(ids)), texts, strict=True):
            here, tokens = mask[row] > 0, text[text >= 0]
            with torch.inference_mode():
                vector = encoder(ids[row, here][None], mask[row, here][None])
                for place in range(1, len(tokens)):
                    logits = state.head.decoder(
                        input_ids=tokens[None, :place],
                        encoder_hidden_states=vector[:, None] * 32**0.5,
                    ).logits
                    losses.append(-float(logits[0, -1].log_softmax(-1)[tokens[place]]))
    assert run.take(batch, 1).loss == pytest.approx(np.mean(losses), rel=1e-4)


def test_a_prompt_stays_and_is_not_pooled(tiny_encoder, source, tmp_path):
    encoder = prompts_not_pooled(tiny_encoder, tmp_path)
    run = Run(tiny_encoder, source, case="tsdae")
    batch, method = run.stream.next_batch(), TSDAE(TSDAESettings(), EncoderSpec.of(encoder))
    before, after = (len(tokens) for tokens in encoder.around())
    assert before > 1
    for chunk in TrainState(encoder, method, run.settings, 0).prepare(batch).chunks:
        left = chunk.inputs["attention_mask"].sum(1)
        assert (left > before + after - 1).all()
        assert (chunk.inputs["input_ids"][:, :before] == torch.tensor(encoder.around()[0])).all()
        assert torch.equal(chunk.inputs["pooled"].sum(1), left - before), "the prompt and what stands before it"


@pytest.mark.parametrize("kind", [BertConfig, RobertaConfig, XLMRobertaConfig, ElectraConfig, RemBertConfig])
def test_a_large_vocabularys_scores_are_held_in_parts(kind, monkeypatch):
    shape: Any = {"num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 50}
    torch.manual_seed(0)
    backbone = AutoModel.from_config(kind(hidden_size=8, **shape))
    decoder = DenoisingDecoder(SimpleNamespace(backbone=backbone, base_dimension=8, base_normalize=True))  # pyright: ignore
    listen(decoder)
    texts = torch.randint(5, 50, (3, 12))
    texts[0, 4:] = -100
    vectors = torch.randn(3, 8, requires_grad=True)
    held = []
    plain = torch.nn.functional.cross_entropy

    def watched(logits: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        held.append(logits.numel())
        return plain(logits, *given, **named)

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", watched)
    found = []
    for most in (2**28, 400):
        monkeypatch.setattr(denoising_decoder, "_LOGITS", most)
        decoder.zero_grad()
        loss = decoder.token_loss(vectors, {"decoded": texts}, torch.zeros(0))
        (gradient,) = torch.autograd.grad(loss, vectors, retain_graph=True)
        loss.backward()
        own = [p.grad.clone() for p in decoder.parameters() if p.grad is not None]
        found.append([loss.detach(), gradient, *own])
    assert held[0] == 33 * 50
    assert len(held) > 5
    assert max(held[1:]) <= 400
    assert len(found[0]) == len(found[1])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("kind", [BertConfig, RobertaConfig, XLMRobertaConfig, ElectraConfig])
@pytest.mark.parametrize("normalized", [True, False])
def test_padding_and_the_rows_beside_change_no_loss(kind, normalized):
    shape: Any = {"num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 50}
    config = kind(hidden_size=8, **shape)
    torch.manual_seed(0)
    # A Dense module has made vectors shorter than the backbone's.
    encoder: Any = SimpleNamespace(backbone=AutoModel.from_config(config), base_dimension=5, base_normalize=normalized)
    decoder = DenoisingDecoder(encoder)
    listen(decoder)
    texts = torch.randint(5, 50, (3, 12))
    texts[0, 4:], texts[1, 9:] = -100, -100
    vectors, words = torch.randn(3, 5), torch.zeros(0)
    together = decoder.token_loss(vectors, {"decoded": texts}, words)
    alone = [
        decoder.token_loss(vectors[row, None], {"decoded": text[text >= 0][None]}, words)
        for row, text in enumerate(texts)
    ]
    assert together.item() == pytest.approx(sum(loss.item() for loss in alone), rel=1e-5)


@pytest.mark.parametrize("kind", [BertConfig, GPT2Config, ElectraConfig])
def test_the_decoder_has_no_dropout_whatever_its_kind_calls_the_rates(kind):
    """Chunks would change the loss."""
    names = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 50}
    backbone = AutoModel.from_config(kind(**names))
    assert 0.1 in {module.p for module in backbone.modules() if isinstance(module, torch.nn.Dropout)}
    decoder = DenoisingDecoder(SimpleNamespace(backbone=backbone, base_dimension=8, base_normalize=True))  # pyright: ignore
    assert {module.p for module in decoder.modules() if isinstance(module, torch.nn.Dropout)} == {0.0}


def test_the_decoder_begins_as_the_encoder_and_its_layers_learn_at_its_rate(tiny_encoder, source):
    run = Run(tiny_encoder, source, case="tsdae", learning_rate=1e-4, head_learning_rate=1e-2)
    begun = {name: tensor.clone() for name, tensor in run.encoder.backbone.state_dict().items()}
    decoder = run.state.head.decoder
    shared = {name for name in decoder.bert.state_dict() if "crossattention" not in name}
    assert shared <= set(begun)
    assert all(torch.equal(decoder.bert.state_dict()[name], begun[name]) for name in shared)
    run.next()
    for name, parameter in decoder.named_parameters():
        group = next(g for g in run.state.optimizer.param_groups if any(p is parameter for p in g["params"]))
        new = "crossattention" in name or name.startswith("cls.")
        assert group["lr"] == (1e-2 if new else 1e-4), name


def test_an_encoder_without_a_decoder_of_its_kind_is_refused():
    small: Any = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 9}
    assert can_decode(BertConfig(**small))
    assert can_decode(RobertaConfig(**small))
    assert not can_decode(DistilBertConfig())
    assert not can_decode(MegatronBertConfig(**small)), "its cross-attention reads as many vectors as there are tokens"
    assert not can_decode(Qwen2Config(**small, intermediate_size=8, num_key_value_heads=1)), "no cross-attention"
    with pytest.raises(ValueError, match=r"tsdae: .* for a distilbert encoder .*; use another method"):
        TSDAE(TSDAESettings(), SPEC._replace(can_decode=False, kind="distilbert"))
