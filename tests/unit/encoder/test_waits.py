"""What the host asks of the device while it embeds: counted by torch's profiler, for a GPU would be waited for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from torch.profiler import ProfilerActivity, profile

from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder import kernels, on_device
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.packing import by_mask
from infocse_ray.settings import Encoder

WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::unique_dim", "aten::_unique2")
"""Operations whose result the host needs, or whose result's shape."""


def asked(encoder, sentences: Tokens, budget: int) -> Counter[str]:
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        embed(encoder, sentences, budget)
    return Counter(event.name for event in seen.events() or [])


@pytest.mark.parametrize("packed", [True, False])
def test_no_batch_waits_for_the_device_and_ids_go_up_once(tiny_encoder, monkeypatch, packed):
    monkeypatch.setattr(kernels, "_WAITED_FOR", ("cpu",))
    encoder = load_encoder(tiny_encoder, Encoder(model="m", max_length=16), cosine=True)
    encoder.kernel = by_mask if packed else None
    uploads = []
    send = on_device.sent_up
    monkeypatch.setattr(
        on_device, "sent_up", lambda values, device: uploads.append(values.nbytes) or send(values, device)
    )
    draw = np.random.default_rng(0)
    lengths = draw.integers(1, 14, 500)
    sentences = Tokens(draw.integers(5, 60, int(lengths.sum())).astype(np.uint16), offsets_of(lengths))
    few, many = (asked(encoder, sentences, budget) for budget in (4_000, 100))
    assert len(uploads) == 2 * 2
    assert uploads[1] == sentences.values.nbytes, "ids are sent as narrow as they are"
    layer = "aten::scaled_dot_product_attention"
    assert many[layer] > 5 * few[layer] > 0, "there are not more batches"
    for counts in (few, many):
        assert sum(counts[name] for name in WAITS) == 0
