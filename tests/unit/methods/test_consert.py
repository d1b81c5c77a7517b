"""ConSERT: what its augmentations change inside the encoder, and what they leave alone."""

import gc
import weakref

import numpy as np
import pytest
import torch
from transformers import ModernBertConfig, ModernBertModel

from infocse_ray.encoder.embed import for_inference
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.consert import ConSERT
from infocse_ray.settings import ConSERTSettings
from infocse_ray.train.state import TrainState
from tests.unit.stores import SPEC
from tests.unit.trainees import ragged, settings_for

ROWS = [[10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20], [30, 31, 32], [40], [50, 51, 52, 53, 54, 55, 56]]
LENGTHS = [13, 5, 3, 9]


class Observed:
    """An encoder in training by ConSERT, and what its first layer got in the last forward."""

    def __init__(self, folder, **section):
        settings = settings_for("consert", folder)
        self.encoder = load_encoder(folder, settings.encoder, False)
        self.method = ConSERT(ConSERTSettings(**section), EncoderSpec.of(self.encoder))
        self.state = TrainState(self.encoder, self.method, settings, 0)
        self.encoder.train()
        self.embedded = torch.empty(0)
        backbone = self.encoder.backbone
        layers = backbone.encoder.layer if hasattr(backbone, "encoder") else backbone.layers
        layers[0].register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, _, positional, named):
        self.embedded = (positional[0] if positional else named["hidden_states"]).detach()

    def inputs(self, rows, label, first_seed=0):
        ids, mask = self.encoder.pad(ragged(rows), 64)
        seeds = np.arange(len(rows), dtype=np.uint64) + np.uint64(first_seed)
        given = {"input_ids": ids, "attention_mask": mask}
        return given | self.method.inputs(ids, mask, np.full(len(rows), label), seeds)

    def vectors(self, rows, label, first_seed=0):
        """Of views with a label, each text's augmentation drawn from its place."""
        return self.state.model(**self.inputs(rows, label, first_seed))[0]

    def plain(self, rows):
        return self.encoder(*self.encoder.pad(ragged(rows), 64))


@pytest.fixture(scope="module")
def modernbert(tiny_encoder, tmp_path_factory):
    """Positions by rotation, dropout of attention that is no layer, more embeddings than tokens."""
    folder = tmp_path_factory.mktemp("modernbert")
    for file in tiny_encoder.glob("token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=192,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=0,
        cls_token_id=2,
        bos_token_id=2,
        sep_token_id=3,
        eos_token_id=3,
        attention_dropout=0.3,
        embedding_dropout=0.2,
        mlp_dropout=0.2,
        tie_word_embeddings=False,
    )
    model = ModernBertModel(config)
    for name, weight in model.named_parameters():
        if "Wqkv" in name:
            weight.data.mul_(20)  # so that it matters where tokens are
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_feature_cutoff(tiny_encoder, rate):
    found = Observed(tiny_encoder, first="feature_cutoff", second="none", cutoff=rate)
    found.vectors(ROWS, 1)
    before = found.embedded
    found.vectors(ROWS, 0)
    cut = found.embedded == 0
    assert torch.equal(found.embedded[~cut], before[~cut])  # no rescaling
    for row in cut:
        assert (row == row[0]).all()  # the same features of all tokens
        assert row[0].sum() == int(rate * 32)
    assert not torch.equal(cut[0, 0], cut[1, 0])


@pytest.mark.parametrize("rate", [0.2, 0.5])
def test_token_cutoff(tiny_encoder, rate):
    found = Observed(tiny_encoder, first="token_cutoff", second="none", cutoff=rate)
    found.vectors(ROWS, 1)
    before = found.embedded
    found.vectors(ROWS, 0)
    cut = found.embedded == 0
    assert torch.equal(found.embedded[~cut], before[~cut])
    for row, length in zip(cut, LENGTHS, strict=True):
        tokens = row.all(1)
        assert tokens.sum() == int(rate * length)
        assert not row[~tokens].any()
        assert not tokens[length:].any()


def test_dropout_of_elements(tiny_encoder):
    found = Observed(tiny_encoder, first="dropout", second="none", cutoff=0.4)
    found.vectors(ROWS, 1)
    before = found.embedded
    found.vectors(ROWS, 0)
    cut = found.embedded == 0
    assert torch.equal(found.embedded[~cut], before[~cut])
    real = torch.cat([row[:length].flatten() for row, length in zip(cut, LENGTHS, strict=True)])
    assert 0.33 < real.float().mean() < 0.47
    assert not any(row[length:].any() for row, length in zip(cut, LENGTHS, strict=True))


def test_shuffle_permutes_the_positions_of_real_tokens():
    method = ConSERT(ConSERTSettings(first="none", second="shuffle"), SPEC)
    mask = (torch.arange(13) < torch.tensor(LENGTHS)[:, None]).long()
    drawn = set()
    for seed in range(50):
        seeds = np.arange(4, dtype=np.uint64) + np.uint64(100 * seed)
        found = method.inputs(torch.zeros(4, 13, dtype=torch.int64), mask, np.ones(4, int), seeds)
        assert found.keys() == {"position_ids"}
        for row, length in zip(found["position_ids"].tolist(), LENGTHS, strict=True):
            assert sorted(row[:length]) == list(range(length))
            assert row[length:] == list(range(length, 13))
        drawn.add(tuple(found["position_ids"][2, :3].tolist()))
    assert len(drawn) == 6
    assert method.inputs(torch.zeros(4, 13, dtype=torch.int64), mask, np.zeros(4, int), seeds) == {}


def test_shuffled_positions_are_the_embeddings(tiny_encoder):
    found = Observed(tiny_encoder, first="shuffle", second="none")
    found.vectors(ROWS[:1], 0)
    embeddings, inputs = found.encoder.backbone.embeddings, found.inputs(ROWS[:1], 0)
    summed = embeddings.word_embeddings(inputs["input_ids"]) + embeddings.token_type_embeddings.weight[0]
    summed = summed + embeddings.position_embeddings.weight[inputs["position_ids"]]
    torch.testing.assert_close(found.embedded, embeddings.LayerNorm(summed), rtol=0, atol=1e-5)


AUGMENTATIONS = ["feature_cutoff", "token_cutoff", "shuffle", "dropout"]


@pytest.mark.parametrize("model", ["tiny_encoder", "modernbert"])
@pytest.mark.parametrize("change", AUGMENTATIONS)
def test_vectors(model, change, request):
    """Padding changes no augmented vector; augmenting changes each; without any, training's dropout is off."""
    found = Observed(request.getfixturevalue(model), first=change, second="none")
    with torch.no_grad():
        together = found.vectors(ROWS, 0)
        alone = torch.cat([found.vectors([row], 0, first_seed=n) for n, row in enumerate(ROWS)])
        torch.testing.assert_close(together, alone, rtol=0, atol=2e-5)
        twice = [found.vectors([*ROWS, *ROWS], 1) for _ in range(2)]
        torch.testing.assert_close(twice[0][:4], twice[0][4:], rtol=0, atol=1e-6)
        assert torch.equal(twice[0], twice[1])
        torch.testing.assert_close(found.plain(ROWS), twice[0][:4], rtol=0, atol=1e-6)
        differs = (together - found.plain(ROWS)).abs().amax(1) > 1e-4
        assert differs[[0, 3]].all()
        # Outside of a training step nothing is augmented, in whatever mode.
        ready = for_inference(found.encoder, "fp32", torch.device("cpu"))
        expected = load_encoder(request.getfixturevalue(model), settings_for("consert").encoder, False)
        ids, mask = found.encoder.pad(ragged(ROWS), 64)
        for encoder in (ready, found.encoder.eval()):
            assert torch.equal(encoder(ids, mask), expected(ids, mask))


def test_an_encoder_without_an_embedding_layer_is_refused():
    spec = SPEC._replace(can_cut=False)
    with pytest.raises(ValueError, match=r"consert\.first = feature_cutoff.*set them to shuffle and none") as error:
        ConSERT(ConSERTSettings(), spec)
    assert "\n" not in str(error.value)
    ConSERT(ConSERTSettings(first="shuffle", second="none"), spec)
    with pytest.raises(ValueError, match=r"consert\.second = shuffle: this bert encoder takes no positions"):
        ConSERT(ConSERTSettings(), SPEC._replace(can_shuffle=False))
    ConSERT(ConSERTSettings(second="token_cutoff"), SPEC._replace(can_shuffle=False))


def test_two_equal_views_are_refused():
    with pytest.raises(ValueError, match=r"consert\.first = none, consert\.second = none: both views are the sentence"):
        ConSERT(ConSERTSettings(first="none", second="none"), SPEC)


@pytest.mark.parametrize(
    ("first", "second", "cutoff"),
    [
        ("dropout", "none", 0.0),
        ("feature_cutoff", "feature_cutoff", 0.0),
        ("token_cutoff", "dropout", 0.0),
        ("feature_cutoff", "none", 0.03),  # of 32 dimensions
    ],
)
def test_views_off_which_nothing_is_cut_are_refused(first, second, cutoff):
    with pytest.raises(ValueError, match=rf"^consert\.cutoff = {cutoff}: with .* unchanged; raise it$"):
        ConSERT(ConSERTSettings(first=first, second=second, cutoff=cutoff), SPEC)


@pytest.mark.parametrize(
    ("first", "second", "cutoff"),
    [("shuffle", "feature_cutoff", 0.0), ("dropout", "feature_cutoff", 0.03), ("none", "feature_cutoff", 0.04)],
)
def test_one_view_that_is_changed_is_enough(first, second, cutoff):
    ConSERT(ConSERTSettings(first=first, second=second, cutoff=cutoff), SPEC)


def test_encoders_that_ignore_positions_are_known(tiny_encoder):
    encoder = load_encoder(tiny_encoder, settings_for("consert").encoder, False)
    assert EncoderSpec.of(encoder).can_shuffle
    with torch.no_grad():
        encoder.backbone.embeddings.position_embeddings.weight.zero_()
    assert not EncoderSpec.of(encoder).can_shuffle


def test_a_copy_for_validation_is_freed_at_once(tiny_encoder):
    settings = settings_for("consert", tiny_encoder)
    encoder = load_encoder(tiny_encoder, settings.encoder, False)
    TrainState(encoder, ConSERT(ConSERTSettings(), EncoderSpec.of(encoder)), settings, 0)
    gc.disable()
    try:
        copy = weakref.ref(for_inference(encoder, "fp32", torch.device("cpu")))
        assert copy() is None
    finally:
        gc.enable()
