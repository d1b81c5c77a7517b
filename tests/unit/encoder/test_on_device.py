"""Batches made where the encoder is: those of `SentenceEncoder.pad`, and packed ones that give what padded ones do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.on_device import SentencesOnDevice
from infocse_ray.settings import Encoder


def sentences(dtype: type = np.uint16, most: int = 14, high: int = 60) -> Tokens:
    draw = np.random.default_rng(3)
    lengths = np.concatenate([[0, most, 1], draw.integers(0, most + 1, 40)])
    return Tokens(draw.integers(5, high, int(lengths.sum())).astype(dtype), offsets_of(lengths))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int64, np.uint64])
def test_batches_are_those_of_the_host(tiny_encoder, dtype):
    encoder = load_encoder(tiny_encoder, Encoder(model="m", max_length=16), cosine=True)
    high = min(np.iinfo(dtype).max, 2**32 - 1)  # ids whose first bit is set, too
    tokens = sentences(dtype, high=high)
    rows = np.random.default_rng(0).permutation(len(tokens))
    there = SentencesOnDevice(encoder, tokens, rows)
    assert there.lengths.tolist() == encoder.lengths(tokens)[rows].tolist()
    for begin, end in ((0, 7), (7, 30), (30, 43), (5, 6)):
        ids, mask = encoder.pad(tokens.take(rows[begin:end]))
        found = there.padded(begin, end)
        assert torch.equal(found.input_ids, ids)
        assert torch.equal(found.attention_mask, mask)
        packed = there.packed(begin, end)
        assert torch.equal(packed.input_ids[0], ids[mask.bool()])
        assert torch.equal(packed.attention_mask, mask)
        assert packed.bounds.tolist() == [0, *mask.sum(1).cumsum(0).tolist()]
        assert packed.position_ids[0].tolist() == [i for row in mask.tolist() for i in range(sum(row))]
        assert torch.equal(packed.input_ids[0][packed.back][mask.bool()], ids[mask.bool()])


@pytest.mark.parametrize("role", ["document", "query"])
def test_prompts_go_around_as_on_the_host(tiny_encoder, role):
    shape = Encoder(model="m", max_length=16, document_prompt="the old ", query_prompt="a ")
    encoder = load_encoder(tiny_encoder, shape, cosine=True)
    tokens = sentences().cut(encoder.room(role))
    there = SentencesOnDevice(encoder, tokens, np.arange(len(tokens)), role)
    ids, mask = encoder.pad(tokens, role=role)
    found = there.padded(0, len(tokens))
    assert torch.equal(found.input_ids, ids)
    assert torch.equal(found.attention_mask, mask)


def test_sentences_without_tokens(tiny_encoder):
    encoder = load_encoder(tiny_encoder, Encoder(model="m", max_length=16), cosine=True)
    empty = Tokens(np.empty(0, np.uint16), np.zeros(4, np.int64))
    ids, _ = encoder.pad(empty)
    assert torch.equal(SentencesOnDevice(encoder, empty, np.arange(3)).padded(0, 3).input_ids, ids)
