"""Training steps on a tiny encoder: workers, dropout, bad numbers, checkpoints."""

import re

import numpy as np
import pytest
import torch

from infocse_ray.corpus.tokens import Tokens
from infocse_ray.distributed import collectives as collective
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.errors import NonFinite
from infocse_ray.sampling.stream import Batch, ExampleStream
from infocse_ray.train.checkpoint import Snapshot, load_checkpoint
from infocse_ray.train.state import TrainState
from tests.unit.group import on_workers
from tests.unit.stores import counted
from tests.unit.train.test_loss import Ids, eq_1
from tests.unit.trainees import Run, ragged


def curve(folder, annotations, chunk_tokens):
    run = Run(folder, annotations, dropout=False, chunk_tokens=chunk_tokens, distillation=0.5)
    reports = [run.next() for _ in range(10)]
    return reports, {name: tensor.numpy() for name, tensor in run.weights().items()}


def two_curves(folder, annotations):
    return [curve(folder, annotations, chunk_tokens) for chunk_tokens in (64, 8192)]


def test_two_workers_train_as_one(tiny_encoder, annotations):
    alone, alone_weights = curve(tiny_encoder, annotations, 64)
    losses = np.array([report.loss for report in alone])
    assert losses.std() > 1e-2
    for worker in on_workers(2, two_curves, tiny_encoder, annotations):
        # Chunked as alone, and in one chunk.
        for reports, weights in worker:
            np.testing.assert_allclose([r.loss for r in reports], losses, rtol=1e-5)
            for field, rtol in (("gradient_norm", 1e-4), ("spread", 1e-4), ("tokens", 0)):
                np.testing.assert_allclose(
                    [getattr(r, field) for r in reports], [getattr(r, field) for r in alone], rtol=rtol
                )
            for name, tensor in weights.items():
                np.testing.assert_allclose(tensor, alone_weights[name].astype(np.float64), atol=2e-4, err_msg=name)


def test_chunks_change_no_result(tiny_encoder, annotations):
    cut, whole = (Run(tiny_encoder, annotations, dropout=False, chunk_tokens=n) for n in (64, 8192))
    np.testing.assert_allclose(cut.losses(5), whole.losses(5), rtol=1e-5)


def test_the_loss_of_a_step_is_eq_1_of_its_batch(tiny_encoder, annotations):
    """With a document twice, a text on both sides, and texts that are equal only once they are cut to 14 tokens."""
    long = list(range(10, 24))
    anchors = [[7, 8], [9, 30], [11, 12], [13], [14, 15, 16], [*long, 30]]
    positives = [[17], [18, 19], [13], [20, 21], [*long, 31, 32], [22, 23]]
    documents, anchor_texts, positive_texts = [5, 6, 5, 7, 8, 9], [0, 1, 2, 3, 4, 5], [6, 7, 3, 8, 5, 9]
    run = Run(tiny_encoder, annotations, dropout=False)

    def vectors(rows):
        return torch.cat([run.encoder(*run.encoder.pad(ragged([row]))) for row in rows]).double()

    with torch.inference_mode():
        ids = Ids(*map(torch.tensor, (documents, anchor_texts, positive_texts)))
        expected = eq_1(vectors(anchors), vectors(positives), ids, 1.0)
        unmasked = Ids(*map(torch.tensor, (list(range(6)), list(range(6)), list(range(6, 12)))))
        assert abs(eq_1(vectors(anchors), vectors(positives), unmasked, 1.0) - expected) > 1e-2
    names, keys = [f"d{i}" for i in documents], np.array(documents)
    batch = Batch.of_pairs(names, keys, ragged(anchors).cut(14), ragged(positives).cut(14))
    for chunk_tokens in (64, 8192):
        fresh = Run(tiny_encoder, annotations, dropout=False, chunk_tokens=chunk_tokens)
        report = fresh.take(batch, 1)
        assert report.loss == pytest.approx(float(expected), rel=1e-5)


def test_what_holds_on_to_the_start_pulls_once_the_encoder_has_left_it(tiny_encoder, annotations):
    plain, held = (Run(tiny_encoder, annotations, dropout=False, distillation=share) for share in (0.0, 0.75))
    batch = plain.stream.next_batch()
    first, at_start = plain.take(batch, 1), held.take(batch, 1)
    # Nowhere are similarities nearer to the start's than at the start: their part of the gradient is 0.
    assert at_start.gradient_norm == pytest.approx(0.25 * first.gradient_norm, rel=1e-4)
    assert held.take(batch, 2).gradient_norm != pytest.approx(0.25 * plain.take(batch, 2).gradient_norm, rel=1e-2)


def test_the_start_is_held_on_to_as_it_was_and_whitened(tiny_encoder, annotations):
    run = Run(tiny_encoder, annotations, distillation=0.5)
    d = run.encoder.base_dimension
    run.encoder.whitening = Whitening(torch.linspace(-1, 1, d), torch.eye(d)[:, :7], 1.0)
    run.state = TrainState(run.encoder, run.state.method, run.settings, 5)
    batch = run.stream.next_batch()
    at_start = embed(run.encoder.eval(), batch.texts).vectors.clone()
    assert at_start.shape[1] == 7
    run.losses(2)
    held = run.state.reference(batch)
    assert held is not None
    assert torch.equal(held, at_start)
    assert not torch.allclose(embed(run.encoder.eval(), batch.texts).vectors, at_start, atol=1e-3)


def test_steps_on_one_batch_lower_its_loss(tiny_encoder, annotations):
    run = Run(tiny_encoder, annotations, dropout=False, temperature=10.0)
    batch = run.stream.next_batch()
    losses = [run.take(batch, step).loss for step in range(1, 9)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.1


def test_dropout_is_on_and_seeded_by_step(tiny_encoder, annotations):
    batch = Run(tiny_encoder, annotations).stream.next_batch()

    def loss(seed, step, dropout=True):
        run = Run(tiny_encoder, annotations, dropout)
        run.encoder.eval()  # the step itself must turn dropout on, and seed it
        torch.seed()
        return run.take(batch, step, seed).loss

    assert loss(1, 1) == loss(1, 1)
    assert loss(1, 1) != loss(2, 1)
    assert loss(1, 1) != loss(1, 2)
    assert loss(1, 1, dropout=False) == loss(2, 1, dropout=False)


def noise(folder, annotations):
    """What the draws of two steps on one batch begin with."""
    run = Run(folder, annotations)
    batch, seeds = run.stream.next_batch(), []
    for step in (1, 2):
        run.take(batch, step)
        seeds.append(torch.initial_seed())
    return seeds


def test_each_worker_has_noise_of_its_own(tiny_encoder, annotations):
    """Else the rows of one would be dropped where those of the other are."""
    first, second = on_workers(2, noise, tiny_encoder, annotations)
    assert len({*first, *second}) == 4
    assert noise(tiny_encoder, annotations) == first


def test_only_the_pooler_is_frozen(tiny_encoder, annotations):
    run = Run(tiny_encoder, annotations)
    frozen = {name for name, p in run.encoder.named_parameters() if not p.requires_grad}
    assert frozen == {"backbone.pooler.dense.weight", "backbone.pooler.dense.bias"}
    assert all(p.grad is None for p in run.encoder.parameters())
    before = run.weights()
    run.next()
    changed = {name for name, tensor in run.weights().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name, p in run.encoder.named_parameters() if p.requires_grad}


def fail(folder, annotations):
    """The message of a step on a batch of which one worker's last document has a token without a vector."""
    run = Run(folder, annotations)
    batch = run.stream.next_batch()
    victim = len(batch.doc_ids) - 1
    if collective.rank() == collective.workers() - 1:
        mask = 4  # a token that no sentence has
        values = batch.texts.values.copy()
        values[batch.texts.offsets[2 * victim]] = mask
        batch = batch._replace(texts=Tokens(values, batch.texts.offsets))
        with torch.no_grad():
            run.encoder.backbone.embeddings.word_embeddings.weight[mask] = torch.nan
    before = run.weights()
    with pytest.raises(NonFinite) as error:
        run.take(batch, 17)
    for name, tensor in run.weights().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0, equal_nan=True)
    return batch.doc_ids[victim], str(error.value)


def test_a_loss_that_is_not_finite_names_step_and_documents(tiny_encoder, annotations):
    victim, message = fail(tiny_encoder, annotations)
    assert re.match(rf"step 17: .*non-finite vectors: {victim}\. Lower train\.learning_rate", message)
    (_, first), (victim, second) = on_workers(2, fail, tiny_encoder, annotations)
    # Every worker says what any worker knows: only worker 0's message is seen.
    assert first == second
    assert re.match(rf"step 17: .*non-finite vectors: {victim}\. ", first)


def test_finite_vectors_without_finite_loss_name_the_batch(tiny_encoder, annotations):
    run = Run(tiny_encoder, annotations, temperature=1e-40, batch_size=30)
    batch = run.stream.next_batch()
    with pytest.raises(NonFinite, match=rf"step 1: .*documents of the batch: {batch.doc_ids[0]}, .* and \d+ more\. "):
        run.take(batch, 1)


def asked(folder, annotations, who):
    """What a worker knows of tokens and of being asked to stop, where one worker is asked."""
    run = Run(folder, annotations)
    batch = run.stream.next_batch()
    prepared = run.state.prepare(batch)
    agreed = run.state.agree(prepared, collective.rank() == who)
    return prepared.tokens, (agreed.tokens, agreed.stop)


def test_all_workers_learn_in_the_same_step_that_they_are_to_stop(tiny_encoder, annotations):
    found = on_workers(2, asked, tiny_encoder, annotations, 0)
    tokens = sum(here for here, _ in found)
    assert [known for _, known in found] == [(tokens, True)] * 2
    assert asked(tiny_encoder, annotations, None) == (tokens, (tokens, False))


@pytest.mark.parametrize("distillation", [0.0, 0.5])
def test_resumed_equals_uninterrupted(tiny_encoder, annotations, tmp_path, distillation):
    uninterrupted = Run(tiny_encoder, annotations, distillation=distillation)
    first = uninterrupted.losses(3)
    # Another's lanes: two workers wrote the checkpoint that one worker reads.
    method = uninterrupted.state.method
    owner, second = (ExampleStream(counted(annotations, method), method, 14, 5, rank, 2) for rank in (0, 1))
    for stream in (owner, second):
        for _ in range(3):
            stream.next_batch()
    progress = {"step": 3, "history": [{"mrr": 0.5}], "stopping": {"best": None}}
    for rank, stream in enumerate((owner, second)):
        Snapshot.of(rank, uninterrupted.state, stream.state(), progress).write(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "encoder.safetensors",
        "files-00000.json",
        "files-00001.json",
        "head.safetensors",
        "lanes-00000.npz",
        "lanes-00001.npz",
        "optimizer.pt",
        "progress.json",
    ]
    expected = uninterrupted.losses(4)
    resumed = Run(tiny_encoder, annotations, distillation=distillation)
    resumed.losses(1)  # loading must replace everything
    assert load_checkpoint(tmp_path, resumed.state, resumed.stream) == progress
    resumed.step = 3
    assert resumed.losses(4) == expected
    for name, tensor in resumed.weights().items():
        assert torch.equal(tensor, uninterrupted.weights()[name]), name
    assert first != expected[:3]
    torch.load(tmp_path / "optimizer.pt", weights_only=True)


def test_a_checkpoint_of_an_encoder_that_is_not_whitened_takes_the_whitening_away(tiny_encoder, annotations, tmp_path):
    run, other = (Run(tiny_encoder, annotations, dropout=False) for _ in range(2))
    run.losses(1)
    Snapshot.of(0, run.state, run.stream.state(), {"step": 1}).write(tmp_path)
    d = other.encoder.base_dimension
    other.encoder.whitening = Whitening(torch.zeros(d), torch.eye(d), 1.0)
    load_checkpoint(tmp_path, other.state, other.stream)
    assert other.encoder.whitening is None
    for name, tensor in other.weights().items():
        assert torch.equal(tensor, run.weights()[name]), name
