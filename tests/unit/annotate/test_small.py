"""What is less work than starting actors."""

import math

import pytest

from infocse_ray.annotate import actor
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.size import operations_a_token
from infocse_ray.runtime.placement import Placement
from infocse_ray.settings import Annotate
from infocse_ray.storage.folder import Storage
from tests.unit.passes import SPLITS, Passes, small_store


def test_it_is_by_tokens_the_encoders_size_and_the_device(tiny_encoder, monkeypatch):
    encoder = EncoderFolder(Storage.open(str(tiny_encoder)), "x", 16)
    config = (encoder.folder / "config.json").read_json()
    hidden, between = config["hidden_size"], config["intermediate_size"]
    each = 2 * config["num_hidden_layers"] * (4 * hidden * hidden + 2 * hidden * between)
    assert operations_a_token(encoder) == each
    monkeypatch.setattr(actor, "_SMALL_ON_CPU", 1_000 * each)
    monkeypatch.setattr(actor, "_SMALL_ON_GPU", 5_000 * each)
    for use_gpu, most in ((False, 1_000), (True, 5_000)):
        where = Placement(3, use_gpu, 2)
        assert actor.is_small(most, encoder, where)
        assert not actor.is_small(most + 1, encoder, where)


def test_who_asks_for_a_number_of_actors_gets_them(passes: Passes, tmp_path):
    store = small_store(tmp_path / "store")
    for number in ("auto", 1, 2):
        passes.annotate(store, tmp_path / str(number), Annotate(num_workers=number))
    summary = store.summary
    part = sum(summary["documents"][split] for split in SPLITS) / sum(summary["documents"].values())
    assert 0 < part < 1
    assert passes.tokens == [pytest.approx(part * summary["tokens"]), None, None]


@pytest.mark.parametrize(
    "content",
    [None, {"hidden_size": 8}, {"hidden_size": 8, "num_hidden_layers": 2, "intermediate_size": [16, 32]}],
)
def test_of_an_encoder_whose_size_nobody_knows_nothing_is_small(tmp_path, content):
    folder = Storage.open(str(tmp_path))
    if content is not None:
        (folder / "config.json").write_json(content)
    encoder = EncoderFolder(folder, "x", 16)
    assert operations_a_token(encoder) == math.inf
    assert not actor.is_small(1, encoder, Placement(1, False, 1))
