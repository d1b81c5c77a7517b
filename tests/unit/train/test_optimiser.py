"""The optimiser: Adam where nothing else is asked for, then warm-up, weight decay and clipping; and no bad step."""

import re

import numpy as np
import pytest
import torch

from infocse_ray.distributed import collectives as collective
from infocse_ray.errors import NonFinite
from infocse_ray.train.checkpoint import Snapshot, load_checkpoint
from tests.unit.group import on_workers
from tests.unit.trainees import Run

RATE, HEAD_RATE = 1e-3, 4e-3
OPTIONS = {"warmup_steps": 3, "weight_decay": 0.5, "max_gradient_norm": 0.05, "head_learning_rate": HEAD_RATE}


def run_of(folder, annotations, case="conpono", **train):
    return Run(folder, annotations, dropout=False, case=case, **train)


def trained(run):
    """Parameters by name, as `Run.weights` names them, and the learning rate of each."""
    head = {f"head.{name}": (p, HEAD_RATE) for name, p in run.state.head.named_parameters()}
    return {name: (p, RATE) for name, p in run.encoder.named_parameters() if p.requires_grad} | head


def test_without_options_it_is_adam(tiny_encoder, annotations):
    run, other = (run_of(tiny_encoder, annotations, case="idc") for _ in range(2))
    other.state.optimizer = torch.optim.Adam(
        [{"params": [p], "full_lr": RATE} for p in other.state.parameters()], lr=RATE, fused=True
    )
    assert run.losses(4) == other.losses(4)
    for name, tensor in run.weights().items():
        assert torch.equal(tensor, other.weights()[name]), name


def test_weights_decay_by_the_rate_and_vectors_do_not(tiny_encoder, annotations):
    plain, decayed = (
        run_of(tiny_encoder, annotations, head_learning_rate=HEAD_RATE, weight_decay=d) for d in (0.0, 0.5)
    )
    with torch.no_grad():  # CONPONO's maps start at 0, which has nothing to lose
        for run in (plain, decayed):
            run.state.head.maps.fill_(0.01)
    before = plain.weights()
    for run in (plain, decayed):
        run.next()
    less, more = plain.weights(), decayed.weights()
    kinds = set()
    for name, (parameter, rate) in trained(plain).items():
        matrix = parameter.ndim > 1
        kinds.add((name.startswith("head."), matrix))
        # Gradients are equal at the first step, so that decay is all that differs.
        lost = rate * 0.5 * before[name] if matrix else torch.zeros_like(before[name])
        torch.testing.assert_close(less[name] - more[name], lost, rtol=1e-2, atol=1e-6, msg=name)
        assert matrix == ("bias" not in name and "LayerNorm" not in name)
    assert kinds == {(False, True), (False, False), (True, True)}


def test_learning_rates_rise_in_a_straight_line(tiny_encoder, annotations):
    run = run_of(tiny_encoder, annotations, warmup_steps=4, head_learning_rate=HEAD_RATE)
    whole = run_of(tiny_encoder, annotations, head_learning_rate=HEAD_RATE)
    before = run.weights()
    found = []
    for step in range(1, 7):
        run.next()
        found.append(sorted({group["lr"] for group in run.state.optimizer.param_groups}))
        if step == 1:
            whole.next()
            for name in trained(run):
                slow, fast = (weights[name] - before[name] for weights in (run.weights(), whole.weights()))
                torch.testing.assert_close(4 * slow, fast, rtol=1e-2, atol=1e-6, msg=name)
    shares = [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(found, [[share * RATE, share * HEAD_RATE] for share in shares])


def gradient(run):
    return torch.cat([p.grad.flatten() for p in run.state.parameters() if p.grad is not None])


def test_large_gradients_are_scaled_down_and_small_ones_are_not(tiny_encoder, annotations):
    free = run_of(tiny_encoder, annotations)
    norm = free.next().gradient_norm
    assert norm == pytest.approx(float(gradient(free).norm()), rel=1e-5)
    clipped = run_of(tiny_encoder, annotations, max_gradient_norm=norm / 10)
    assert clipped.next().gradient_norm == norm
    torch.testing.assert_close(gradient(clipped), gradient(free) / 10, rtol=1e-4, atol=1e-9)
    loose = run_of(tiny_encoder, annotations, max_gradient_norm=norm * 1.01)
    loose.next()
    assert torch.equal(gradient(loose), gradient(free))


def test_resumed_equals_uninterrupted_amid_the_warm_up(tiny_encoder, annotations, tmp_path):
    uninterrupted = run_of(tiny_encoder, annotations, **OPTIONS)
    uninterrupted.losses(1)
    Snapshot.of(0, uninterrupted.state, uninterrupted.stream.state(), {"step": 1}).write(tmp_path)
    expected = uninterrupted.losses(4)
    resumed = run_of(tiny_encoder, annotations, **OPTIONS)
    resumed.losses(2)  # a step too far: loading must replace everything
    assert load_checkpoint(tmp_path, resumed.state, resumed.stream) == {"step": 1}
    resumed.step = 1
    assert resumed.losses(4) == expected
    for name, tensor in resumed.weights().items():
        assert torch.equal(tensor, uninterrupted.weights()[name]), name


def curve(folder, annotations):
    """Of a few steps with every option: losses, norms, and the weights they lead to."""
    run = run_of(folder, annotations, **OPTIONS)
    reports = [run.next() for _ in range(4)]
    return [(r.loss, r.gradient_norm) for r in reports], {n: t.numpy() for n, t in run.weights().items()}


def test_two_workers_take_the_steps_of_one(tiny_encoder, annotations):
    reports, weights = curve(tiny_encoder, annotations)
    assert min(norm for _, norm in reports) > OPTIONS["max_gradient_norm"]
    for theirs, found in on_workers(2, curve, tiny_encoder, annotations):
        np.testing.assert_allclose(theirs, reports, rtol=2e-4)
        for name, tensor in found.items():
            np.testing.assert_allclose(tensor, weights[name], atol=2e-4, err_msg=name)


def break_gradient(folder, annotations, part, value):
    """The message of a step whose loss is finite and whose gradient, of one part on one worker, is not."""
    run = run_of(folder, annotations)
    run.next()
    if collective.rank() == collective.workers() - 1:
        head, word = run.state.head.maps, run.encoder.backbone.embeddings.word_embeddings.weight
        (head if part == "head" else word).register_hook(lambda gradient: gradient * value)
    before = run.weights()
    state = run.state.optimizer.state_dict()["state"]
    moments = [state[key]["exp_avg"].clone() for key in state]
    with pytest.raises(NonFinite) as error:
        run.take(run.stream.next_batch(), 2)
    for name, tensor in run.weights().items():
        assert torch.equal(tensor, before[name]), name
    state = run.state.optimizer.state_dict()["state"]
    assert all(torch.equal(state[key]["exp_avg"], moment) for key, moment in zip(state, moments, strict=True))
    return str(error.value)


@pytest.mark.parametrize("part", ["encoder", "head"])
def test_no_worker_steps_where_a_gradient_is_not_finite(tiny_encoder, annotations, part):
    message = (
        r"step 2: the loss is [\d.]+ but its gradient is not finite; documents of the batch: doc-.*train\.learning"
    )
    assert re.match(message, break_gradient(tiny_encoder, annotations, part, torch.nan))
    first, second = on_workers(2, break_gradient, tiny_encoder, annotations, part, torch.inf)
    assert first == second
    assert re.match(message, first)
