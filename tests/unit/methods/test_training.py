"""Every method in training: it learns, resumes, and neither chunks nor workers change what it computes."""

import numpy as np
import pytest
import torch

from infocse_ray.encoder.embed import for_inference
from infocse_ray.train.checkpoint import Snapshot, load_checkpoint
from tests.unit.group import on_workers
from tests.unit.trainees import TRAINED, Run, annotated, listen


@pytest.fixture(scope="module")
def source(tiny_encoder, tmp_path_factory):
    return annotated(tmp_path_factory.mktemp("source"), tiny_encoder)


@pytest.mark.parametrize("case", TRAINED)
def test_a_step_changes_all_of_head_and_encoder(tiny_encoder, source, case):
    run = Run(tiny_encoder, source, case=case)
    # A decoder's output layer is its word embeddings, by another name.
    trained = {f"head.{name}" for name, _ in run.state.head.named_parameters(remove_duplicate=False)}
    trained |= {name for name, p in run.encoder.named_parameters() if p.requires_grad}
    before = run.weights()
    # CPC's GRU has a gradient once the maps behind it, which start at 0, have taken a step.
    for _ in range(2 if case == "cpc" else 1):
        run.next()
    changed = {name for name, tensor in run.weights().items() if not torch.equal(tensor, before[name])}
    assert changed == trained
    assert {name for name in before if name not in trained and "pooler" not in name} == set()


WITH_HEADS = ["simcse", "ict", "cpc", "declutr", "conpono", "conpono margin", "tsdae"]


@pytest.mark.parametrize(
    ("case", "part"), [*((case, "encoder") for case in TRAINED), *((case, "head") for case in WITH_HEADS)]
)
def test_steps_on_one_batch_lower_its_loss(tiny_encoder, source, case, part):
    """Encoder and head each by itself: together, one hides that the other stands still."""
    # In 32 dimensions a head has less to turn than in hundreds, and needs larger steps.
    run = Run(tiny_encoder, source, dropout=False, case=case, temperature=5.0, head_learning_rate=1e-2)
    listen(run.state.head)
    still = run.state.head if part == "encoder" else run.encoder
    before = {name: tensor.clone() for name, tensor in still.state_dict().items()}
    batch = run.stream.next_batch()
    losses = []
    for step in range(1, 13):
        losses.append(run.take(batch, step).loss)
        still.load_state_dict(before)
    assert np.mean(losses[-2:]) < 0.99 * losses[0]


@pytest.mark.parametrize("case", TRAINED)
def test_padding_adds_tokens_and_takes_none(tiny_encoder, source, case):
    report = Run(tiny_encoder, source, case=case, chunk_tokens=64).next()
    assert 0 < report.tokens <= report.padded


@pytest.mark.parametrize("case", TRAINED)
def test_resumed_equals_uninterrupted(tiny_encoder, source, case, tmp_path):
    uninterrupted = Run(tiny_encoder, source, case=case)
    uninterrupted.losses(1)
    Snapshot.of(0, uninterrupted.state, uninterrupted.stream.state(), {"step": 1}).write(tmp_path)
    expected = uninterrupted.losses(2)
    resumed = Run(tiny_encoder, source, case=case)
    resumed.losses(2)  # a step too far: loading must replace everything
    assert load_checkpoint(tmp_path, resumed.state, resumed.stream) == {"step": 1}
    resumed.step = 1
    assert resumed.losses(2) == expected
    for name, tensor in resumed.weights().items():
        assert torch.equal(tensor, uninterrupted.weights()[name]), name


def curve(folder, source, case, chunk_tokens=128, batch_size=14):
    """Losses, gradient norms and tokens of a few steps without dropout, the gradients of the last, workers' shares."""
    run = Run(folder, source, dropout=False, case=case, chunk_tokens=chunk_tokens, batch_size=batch_size)
    batches = [run.stream.next_batch() for _ in range(2 if batch_size == 14 else 3)]
    reports = [run.take(batch, step) for step, batch in enumerate(batches, 1)]
    modules = (("encoder", run.encoder), ("head", run.state.head))
    gradients = {
        f"{part}.{name}": p.grad.numpy().copy()
        for part, module in modules
        for name, p in module.named_parameters()
        if p.grad is not None
    }
    return [(r.loss, r.gradient_norm, r.tokens) for r in reports], gradients, [len(batch.doc_ids) for batch in batches]


def same(found, expected, case):
    (reports, gradients, _), (right, right_gradients, _) = found, expected
    np.testing.assert_allclose(reports, right, rtol=2e-4, err_msg=case)
    assert gradients.keys() == right_gradients.keys()
    largest = max(np.abs(g).max() for g in right_gradients.values())
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, right_gradients[name], atol=2e-3 * largest, err_msg=f"{case} {name}")


@pytest.fixture(scope="module")
def alone(tiny_encoder, source):
    return curves(tiny_encoder, source, 14)


def curves(folder, source, batch_size):
    return {case: curve(folder, source, case, batch_size=batch_size) for case in TRAINED}


def both_curves(folder, source):
    return [curves(folder, source, batch_size) for batch_size in (14, 2)]


def test_two_workers_train_as_one(tiny_encoder, source, alone):
    right = [alone, curves(tiny_encoder, source, 2)]
    first, second = on_workers(2, both_curves, tiny_encoder, source)
    shares = set()
    for mine, theirs, expected in zip(first, second, right, strict=True):
        for case in TRAINED:
            same(mine[case], expected[case], case)
            same(theirs[case], expected[case], case)
            shares |= set(zip(mine[case][2], theirs[case][2], strict=True))
    assert any(0 in share for share in shares)
    assert any(len(set(share)) == 2 for share in shares if 0 not in share)


@pytest.mark.parametrize("case", TRAINED)
def test_chunks_change_no_result(tiny_encoder, source, alone, case):
    same(curve(tiny_encoder, source, case, 100_000), alone[case], case)


@pytest.mark.parametrize("case", TRAINED)
def test_inference_knows_nothing_of_training(tiny_encoder, source, case):
    run = Run(tiny_encoder, source, case=case)
    batch = run.stream.next_batch()
    ids, mask = run.encoder.pad(batch.texts, 40)

    def vectors(encoder):
        with torch.inference_mode():
            return encoder(ids, mask)

    run.take(batch, 1)
    ready = for_inference(run.encoder, "fp32", torch.device("cpu"))
    similarity = run.settings.train.similarity
    fresh = Run(tiny_encoder, source, case="idc", similarity=similarity).encoder.eval()
    fresh.load_state_dict(run.encoder.state_dict())
    expected = vectors(fresh)
    assert torch.equal(vectors(ready), expected)
    assert torch.equal(vectors(run.encoder.eval()), expected)


@pytest.mark.parametrize("case", TRAINED)
def test_the_head_follows_from_the_seed(tiny_encoder, source, case):
    def head(seed):
        torch.seed()
        state = torch.get_rng_state()
        found = torch.cat(
            [
                torch.zeros(1),
                *(p.flatten() for p in Run(tiny_encoder, source, seed=seed, case=case).state.head.parameters()),
            ]
        )
        assert torch.equal(torch.get_rng_state(), state)
        return found

    assert torch.equal(head(1), head(1))
    drawn = len(head(1)) > 1 and not case.startswith("conpono")  # whose maps start at 0
    assert torch.equal(head(1), head(2)) == (not drawn)
