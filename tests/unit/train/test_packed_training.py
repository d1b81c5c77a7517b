"""Training without padding, as on GPUs, by the kernel that says what the others compute."""

import numpy as np
import pytest
import torch

from infocse_ray.encoder.packing import by_mask
from infocse_ray.train import state
from tests.unit.group import on_workers
from tests.unit.trainees import TRAINED, Run

SHORT = 10


def run_of(folder, annotations, packs, short=64, **more):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "training_kernel", lambda *_: by_mask if packs else None)
        run = Run(folder, annotations, **more)
    chunks = run.state.chunks

    def cut(batch, tokens):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(state, "SHORT", short)
            patch.setattr(state, "ENOUGH_TO_PACK", 0)
            return chunks(batch, tokens)

    run.state.chunks = cut
    return run


def curve(folder, annotations, *how, **more):
    run = run_of(folder, annotations, *how, **more)
    reports = [run.next() for _ in range(6)]
    return reports, {name: tensor.numpy() for name, tensor in run.weights().items()}


def assert_same(found, expected):
    for ours, theirs in zip(found[0], expected[0], strict=True):
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)
        assert ours.gradient_norm == pytest.approx(theirs.gradient_norm, rel=1e-4)
        assert ours.tokens == theirs.tokens
    for name, tensor in found[1].items():
        np.testing.assert_allclose(tensor, expected[1][name], atol=2e-4, err_msg=name)


@pytest.mark.parametrize("chunk_tokens", [64, 8192])
@pytest.mark.parametrize("case", ["idc", "simcse", "conpono"])
def test_steps_are_those_of_padding(tiny_encoder, annotations, case, chunk_tokens):
    how = {"dropout": False, "case": case, "chunk_tokens": chunk_tokens}
    packed, padded = (curve(tiny_encoder, annotations, packs, **how) for packs in (True, False))
    assert all(report.padded == report.tokens for report in packed[0])
    assert any(report.padded > report.tokens for report in padded[0])
    assert_same(packed, padded)


def test_longer_texts_are_padded_beside_them(tiny_encoder, annotations):
    run = run_of(tiny_encoder, annotations, True, SHORT)
    batch = run.stream.next_batch()
    chunks = run.state.chunks(batch, 64)
    packed = ["bounds" in chunk.inputs for chunk in chunks]
    assert {*packed} == {True, False}
    assert packed == sorted(packed), "long ones come first, so that what doesn't fit shows at once"
    lengths = run.state.tokens(batch)
    for chunk, packs in zip(chunks, packed, strict=True):
        assert ((lengths[chunk.rows] <= SHORT) == packs).all()
        assert chunk.padded <= 64
    assert sorted(torch.cat([chunk.rows for chunk in chunks]).tolist()) == list(range(len(batch.texts)))
    found, expected = (curve(tiny_encoder, annotations, packs, SHORT, dropout=False) for packs in (True, False))
    assert_same(found, expected)


def test_a_small_batch_is_padded(tiny_encoder, annotations, monkeypatch):
    monkeypatch.setattr(state, "training_kernel", lambda *_: by_mask)
    run = Run(tiny_encoder, annotations)
    batch = run.stream.next_batch()
    tokens = int(run.state.tokens(batch).sum())
    for least, packs in ((tokens, True), (tokens + 1, False)):
        monkeypatch.setattr(state, "ENOUGH_TO_PACK", least)
        assert {"bounds" in chunk.inputs for chunk in run.state.chunks(batch, 64)} == {packs}


def two_workers(folder, annotations):
    return curve(folder, annotations, True, dropout=False, chunk_tokens=64)


def test_two_workers_train_as_one(tiny_encoder, annotations):
    alone = two_workers(tiny_encoder, annotations)
    for worker in on_workers(2, two_workers, tiny_encoder, annotations):
        for ours, theirs in zip(worker[0], alone[0], strict=True):
            assert ours.loss == pytest.approx(theirs.loss, rel=1e-5)


def test_gradients_are_those_of_the_plain_batch_dropout_included(tiny_encoder, annotations):
    gradients = []
    for kept in (0, 10**9):
        run = run_of(tiny_encoder, annotations, True, chunk_tokens=64)
        run.state.memory.kept = kept
        run.take(run.stream.next_batch(), 1)
        gradients.append([p.grad for p in run.state.parameters() if p.grad is not None])
    for cached, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(cached, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", TRAINED)
def test_methods_that_change_inputs_say_so(tiny_encoder, annotations, case):
    state = Run(tiny_encoder, annotations, case=case).state
    ids = torch.randint(5, 60, (64, 12))
    labels, seeds = np.arange(64) % 2, np.arange(64).astype(np.uint64)
    given = state.method.inputs(ids, torch.ones_like(ids), labels, seeds)
    assert bool(given) == state.method.changes_inputs
