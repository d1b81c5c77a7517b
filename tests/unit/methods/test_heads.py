"""Heads start where they change nothing that means something already, and learn at the default rate."""

import math
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.contrast import Encoded
from infocse_ray.methods.registry import method_of
from infocse_ray.settings import Settings, Train
from infocse_ray.train.loss import contrastive_loss
from infocse_ray.train.state import TrainState
from tests.unit.stores import SPEC
from tests.unit.trainees import method_for

DIMENSION, EXAMPLES, STEPS = 128, 100, 51
WIDE = SPEC._replace(dimension=DIMENSION, hidden=DIMENSION, embedding=DIMENSION, word=DIMENSION)
VIEWS = {
    "cpc": [0, 0, 0, 1, 2, 3],
    "conpono": [0, 1, 3, 5, 7],
    "simcse": [0, 1],
    "ict": [0, 1],
}
"""Labels of an example's texts."""

TOKENS = ("declutr", "tsdae")
"""Methods whose head tells tokens."""


@pytest.fixture(scope="module")
def wide_encoder(tiny_encoder, tmp_path_factory):
    """A BERT of a layer of DIMENSION dimensions, whose copy TSDAE's decoder is."""
    folder = tmp_path_factory.mktemp("wide")
    for file in tiny_encoder.glob("token*"):
        shutil.copy(file, folder)
    torch.manual_seed(0)
    shape: Any = {"hidden_size": DIMENSION, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 256}
    BertModel(BertConfig(vocab_size=WIDE.vocabulary, max_position_embeddings=64, **shape)).save_pretrained(folder)
    return folder


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def unit(vectors):
    return torch.nn.functional.normalize(vectors, dim=-1)


def turned(vectors, seed):
    """The vectors, rotated: nothing of them is left that a head could have without learning."""
    return vectors @ torch.linalg.qr(drawn(seed, DIMENSION, DIMENSION))[0]


def views_of(case):
    """Vectors [examples, DIMENSION] of each view, as a frozen encoder might give them."""
    if case == "cpc":  # what follows depends on the order of the context, which its mean doesn't tell
        context = [unit(drawn(seed, EXAMPLES, DIMENSION)) for seed in (1, 2, 3)]
        return context + [unit(turned(context[1] - context[0], seed)) for seed in (4, 5, 6)]
    if case == "conpono":
        passage = unit(drawn(1, EXAMPLES, DIMENSION))
        return [passage, *(turned(passage, seed) for seed in (2, 3, 4, 5))]
    # Views agree in a quarter of the dimensions; the others are noise, and louder.
    same = drawn(1, EXAMPLES, DIMENSION // 4)
    return [unit(torch.cat([same, 2 * drawn(seed, EXAMPLES, 3 * DIMENSION // 4)], 1)) for seed in (2, 3)]


def encoded(case):
    labels, vectors = np.tile(VIEWS[case], EXAMPLES), torch.stack(views_of(case), 1).flatten(0, 1)
    owner = torch.arange(EXAMPLES).repeat_interleave(len(VIEWS[case]))
    return Encoded(vectors, owner, owner, torch.from_numpy(labels), torch.arange(len(labels)), labels)


def after_steps(folder, case, **train):
    """Loss after some steps of a head alone, as training's optimiser takes them; and what it is by chance."""
    settings = Settings.model_validate(
        {
            "name": "run",
            "corpus": {"source": "unused"},
            "encoder": {"model": str(folder), "max_length": 16},
            "train": {"method": case, "similarity": "cosine", "temperature": 0.05} | train,
        }
    )
    method = method_of(settings.train.method, settings, WIDE)
    assert method is not None
    state = TrainState(load_encoder(folder, settings.encoder, True), method, settings, 5)
    vocabulary, batch = WIDE.vocabulary, None if case in TOKENS else encoded(case)
    tokens = torch.arange(vocabulary)
    states, words = drawn(1, vocabulary, DIMENSION), 0.02 * drawn(2, vocabulary, DIMENSION)

    def loss():
        if case == "declutr":
            return state.head.mlm_loss(states, tokens, words) / vocabulary
        if case == "tsdae":  # texts of one token, which nothing but their vectors tells
            texts = torch.stack([torch.full_like(tokens, WIDE.special[2]), tokens], 1)
            return state.head.token_loss(unit(states), {"decoded": texts}, words) / vocabulary
        assert batch is not None
        contrast = method.contrast(batch, state.head)
        assert contrast is not None
        return contrastive_loss(contrast)

    for step in range(1, STEPS + 1):
        state.optimizer.zero_grad()
        loss().backward()
        state.update(step, state.gradient_norm())
    columns = vocabulary if batch is None else EXAMPLES * sum(label > 0 for label in VIEWS[case])
    return loss().item(), math.log(columns)


@pytest.mark.parametrize("case", [*VIEWS, *TOKENS])
def test_a_head_learns_at_the_defaults(wide_encoder, case):
    loss, chance = after_steps(wide_encoder, case)
    assert loss < 0.8 * chance
    # What the encoder's own rate leaves of it.
    slow, _ = after_steps(wide_encoder, case, head_learning_rate=Train().learning_rate)
    assert slow > 0.95 * chance


@pytest.mark.parametrize("sizes", [[3, 3], [1, 2]])
def test_cpc_begins_with_the_mean_of_the_context(sizes):
    torch.manual_seed(1)
    contexts = unit(drawn(1, 2, 3, SPEC.dimension))
    for row, size in enumerate(sizes):
        contexts[row, size:] = 0.0
    found = method_for("cpc").head()(contexts, torch.tensor(sizes))
    assert found.shape == (2, 3, SPEC.dimension)
    for row, size in enumerate(sizes):
        torch.testing.assert_close(found[row], contexts[row, :size].mean(0).expand(3, -1))


def test_cpc_comes_to_know_the_order_of_its_context():
    """The mean alone would say the same of a context and of its reverse."""
    torch.manual_seed(1)
    head = method_for("cpc").head()
    torch.nn.init.normal_(head.maps, std=0.2)
    contexts = unit(drawn(1, 2, 3, SPEC.dimension))
    forwards, backwards = (head(each, torch.tensor([3, 3])) for each in (contexts, contexts.flip(1)))
    assert (forwards - backwards).abs().max() > 1e-2


def test_conpono_begins_with_the_passage_at_every_distance():
    vectors = drawn(1, 5, SPEC.dimension)
    found = method_for("conpono").head()(vectors)
    assert torch.equal(found, vectors[:, None].expand(5, 8, -1))


def test_only_new_heads_have_a_rate_of_their_own(tiny_encoder):
    for name in ("simcse", "cpc", "conpono", "ict", "declutr"):
        assert rates(tiny_encoder, name, {}) == {"encoder": 3e-5, "head": 0.5}, name
    for name, section in {"idc": {}, "ict": {"projection": 0}, "declutr": {"mask": 0}, "consert": {}}.items():
        assert rates(tiny_encoder, name, section) == {"encoder": 3e-5}, name


def rates(folder, name, section):
    """Learning rates of the optimiser, by what they are of."""
    content = {
        "name": "run",
        "corpus": {"source": "unused"},
        "encoder": {"model": str(folder), "max_length": 16},
        "train": {"method": name, "learning_rate": 3e-5, "head_learning_rate": 0.5},
    }
    settings = Settings.model_validate(content | ({name: section} if name != "idc" else {}))
    encoder = load_encoder(folder, settings.encoder, False)
    method = method_of(settings.train.method, settings, EncoderSpec.of(encoder))
    assert method is not None
    state = TrainState(encoder, method, settings, 1)
    state.update(1, torch.tensor(1.0))
    own = {id(p) for p in state.head.parameters()}
    found = {}
    for group in state.optimizer.param_groups:
        for parameter in group["params"]:
            assert found.setdefault("head" if id(parameter) in own else "encoder", group["lr"]) == group["lr"]
    assert {id(p) for group in state.optimizer.param_groups for p in group["params"]} == {
        id(p) for p in state.parameters()
    }
    return found
