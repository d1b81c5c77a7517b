"""Explicit positions from 0 are the default ones, also where an encoder counts from another number."""

import json

import pytest
import torch
from transformers import MPNetConfig, MPNetModel, RobertaConfig, RobertaModel, RobertaPreLayerNormConfig
from transformers import RobertaPreLayerNormModel as PreLayerNormModel

from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.positions import position_room
from infocse_ray.settings import Encoder
from tests.unit.trainees import ragged

ROWS = [[10, 11, 12, 13, 14, 15], [30, 31], []]
KINDS = [
    (RobertaConfig, RobertaModel),
    (MPNetConfig, MPNetModel),
    (RobertaPreLayerNormConfig, PreLayerNormModel),
]


@pytest.fixture(params=[None, *KINDS], ids=lambda kind: kind[1].__name__ if kind else "BertModel")
def encoder(request, tiny_encoder, tmp_path) -> SentenceEncoder:
    folder = tiny_encoder
    if request.param:
        folder = tmp_path
        for file in tiny_encoder.glob("token*"):
            (folder / file.name).write_bytes(file.read_bytes())
        torch.manual_seed(0)
        config, model = request.param
        vocabulary = json.loads((tiny_encoder / "config.json").read_text())["vocab_size"]
        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
        model(config(vocab_size=vocabulary, max_position_embeddings=24, pad_token_id=1, **sizes)).save_pretrained(
            folder
        )
    return load_encoder(folder, Encoder(model=str(folder), max_length=22), False)


def test_positions_from_zero(encoder):
    ids, mask = encoder.pad(ragged(ROWS))
    ids[mask == 0] = encoder.backbone.config.pad_token_id
    places = torch.arange(ids.shape[1]).expand_as(ids)
    with torch.inference_mode():
        default = encoder.hidden(ids, mask)
        explicit = encoder.hidden(ids, mask, places)
        other = encoder.hidden(ids, mask, places.flip(1))
    torch.testing.assert_close(explicit[mask == 1], default[mask == 1], rtol=0, atol=1e-6)
    assert (other[0] - default[0]).abs().max() > 1e-3


def test_the_last_position_is_there(encoder):
    room = 64 if encoder.backbone.config.model_type == "bert" else 22
    assert position_room(encoder.backbone.config) == room
    ids = torch.full((1, room), 10)
    with torch.inference_mode():
        encoder.hidden(ids, torch.ones_like(ids), torch.arange(room)[None])
        with pytest.raises((IndexError, RuntimeError)):
            encoder.hidden(ids, torch.ones_like(ids), torch.arange(room)[None] + 1)
