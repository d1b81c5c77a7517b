"""Attention in short sentences without a GPU: its kernels by Triton's interpreter, where Triton is installed."""

import numpy as np
import pytest
import torch

from infocse_ray.benchmarks.measure import in_fresh_process
from infocse_ray.corpus.tokens import offsets_of
from infocse_ray.encoder.packing import Asked, by_block, by_mask


def differences(lengths: list[int], size: int, window: tuple[int, int]) -> list[float]:
    """The largest of what comes out and of the gradients."""
    bounds = torch.from_numpy(offsets_of(np.array(lengths))).int()
    given = torch.randn(4, sum(lengths), 3, size, generator=torch.Generator().manual_seed(0))
    results = []
    for kernel in (by_block, by_mask):
        inputs = [one.clone().requires_grad_() for one in given[:3]]
        out = kernel(Asked(*inputs, bounds=bounds, longest=max(lengths), scale=None, window=window))
        results.append([out.detach(), *torch.autograd.grad(out, inputs, given[3])])
    return [float((ours - theirs).abs().max()) for ours, theirs in zip(*results, strict=True)]


@pytest.mark.parametrize(
    ("lengths", "size", "window"),
    [
        ([5, 1, 16], 32, (-1, -1)),
        ([30, 17, 1, 9], 24, (3, 5)),
        ([60, 1, 39], 64, (8, 8)),
        ([30, 17, 1, 9], 128, (-1, 0)),
        ([60, 1, 39], 64, (8, 0)),
    ],
)
def test_it_is_the_masks_and_so_are_its_gradients(monkeypatch, lengths, size, window):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert max(in_fresh_process(differences, lengths, size, window)) < 1e-4
