"""Gradient caching against plain autograd on the same chunks and the same random numbers."""

import contextlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from infocse_ray.distributed import collectives as collective
from infocse_ray.train.cached import Chunk, backward, kept_at_once
from tests.unit.group import on_workers


class Toy(torch.nn.Module):
    """Token ids to vectors, with dropout, a buffer, and a note of what each forward ran in."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 8)
        self.dropout = torch.nn.Dropout(dropout)
        self.hidden = torch.nn.Linear(8, 16)
        self.out = torch.nn.Linear(16, 6)
        self.scale = torch.nn.Buffer(torch.ones(()))
        self.watch: Callable[[], object] = lambda: None
        self.seen: list[object] = []

    def forward(self, input_ids, attention_mask, mlm_labels=None):
        self.seen.append(self.watch())
        hidden = torch.tanh(self.hidden(self.dropout(self.embedding(input_ids))))
        weight = attention_mask.to(hidden.dtype)[:, :, None]
        vectors = self.out(self.dropout((hidden * weight).sum(1) / weight.sum(1))) * self.scale
        return vectors, hidden[mlm_labels >= 0] if mlm_labels is not None else hidden[:0, 0]


def toy(dropout: float) -> Toy:
    torch.manual_seed(3)
    return Toy(dropout).double()


def chunk(rows, ids, mask):
    return Chunk(rows, {"input_ids": ids, "attention_mask": mask})


def chunks(sizes, seed=0):
    """Chunks of the given numbers of sentences, whose rows are shuffled over the chunks."""
    draw = np.random.default_rng(seed)
    rows = np.split(draw.permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    found = []
    for part in rows:
        width = int(draw.integers(3, 9))
        lengths = draw.integers(1, width + 1, len(part))
        ids = torch.from_numpy(draw.integers(0, 50, (len(part), width)))
        found.append(chunk(torch.from_numpy(part), ids, torch.from_numpy(np.arange(width) < lengths[:, None]).long()))
    return found


def one_chunk(parts):
    """The same sentences as one chunk."""
    width = max(c.inputs["input_ids"].shape[1] for c in parts)

    def joined(tensors):
        return torch.cat([torch.nn.functional.pad(t, (0, width - t.shape[1])) for t in tensors])

    ids, masks = (joined([c.inputs[name] for c in parts]) for name in ("input_ids", "attention_mask"))
    return [chunk(torch.cat([c.rows for c in parts]), ids, masks)]


def loss_of(vectors):
    """Every vector's gradient depends on every other, and on its place."""
    weight = torch.linspace(1, 2, len(vectors), dtype=vectors.dtype)
    return (torch.logsumexp(vectors @ vectors.mT, 1) * weight).mean() if len(vectors) else vectors.sum()


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def plain(model, parts):
    """All activations kept."""
    vectors = torch.empty(sum(len(c.rows) for c in parts), 6, dtype=torch.float64)
    for chunk in parts:
        vectors = vectors.index_copy(0, chunk.rows, model(**chunk.inputs)[0])
    loss = loss_of(vectors)
    loss.backward()
    return loss.detach(), vectors.detach()


@pytest.mark.parametrize("kept_tokens", [0, 10_000])
@pytest.mark.parametrize("sizes", [[7], [4, 1, 5, 3]])
def test_cached_equals_plain_autograd_with_dropout_on(sizes, kept_tokens):
    parts = chunks(sizes)
    model, other = toy(0.3), toy(0.3)
    torch.manual_seed(11)
    expected_loss, expected_vectors = plain(model, parts)
    expected_next = torch.rand(3)
    torch.manual_seed(11)
    loss, vectors = backward(other, parts, loss_of, kept_tokens=kept_tokens)
    torch.testing.assert_close(torch.rand(3), expected_next, rtol=0, atol=0)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(vectors, expected_vectors, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(other), gradients(model), rtol=1e-12, atol=1e-12)
    assert not loss.requires_grad
    assert not vectors.requires_grad
    # Without dropout the comparison above would prove nothing about random numbers.
    torch.manual_seed(12)
    assert backward(toy(0.3), parts, loss_of)[0] != loss


def test_chunked_equals_one_chunk():
    parts = chunks([4, 1, 5, 3])
    model, other = toy(0.0), toy(0.0)
    loss, vectors = backward(model, parts, loss_of)
    whole_loss, whole_vectors = backward(other, one_chunk(parts), loss_of)
    torch.testing.assert_close(loss, whole_loss, rtol=1e-12, atol=0)
    torch.testing.assert_close(vectors, whole_vectors, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(model), gradients(other), rtol=1e-12, atol=1e-12)


def test_gradients_are_added():
    model, parts = toy(0.0), chunks([3, 2])
    backward(model, parts, loss_of)
    once = gradients(model).clone()
    backward(model, parts, loss_of)
    torch.testing.assert_close(gradients(model), 2 * once, rtol=1e-12, atol=1e-12)


def test_activations_of_one_chunk_at_a_time():
    """And the first one's, whose turn comes first, from the beginning."""
    model, parts = toy(0.0), chunks([3, 2, 4])
    model.watch = torch.is_grad_enabled
    backward(model, parts, loss_of)
    assert model.seen == [True] + [False] * 2 + [True] * 2


def test_a_batch_of_few_tokens_is_encoded_once():
    model, parts = toy(0.0), chunks([3, 2, 4])
    tokens = sum(c.inputs["input_ids"].numel() for c in parts)
    model.watch = torch.is_grad_enabled
    backward(model, parts, loss_of, kept_tokens=tokens)
    assert model.seen == [True] * 3
    model.seen.clear()
    backward(model, parts, loss_of, kept_tokens=tokens - 1)
    assert model.seen == [True] * 2 + [False] + [True], "as many chunks as there is room for"


@pytest.mark.parametrize("sizes", [[5], [2, 3, 4]])
def test_every_forward_runs_in_autocast(sizes):
    model = toy(0.0)
    inside = []

    @contextlib.contextmanager
    def autocast():
        inside.append(True)
        yield
        inside.pop()

    model.watch = lambda: len(inside)
    backward(model, chunks(sizes), loss_of, autocast)
    assert model.seen == [1] * (2 * len(sizes) - 1)


def bf16():
    return torch.autocast("cpu", torch.bfloat16)


def in_turn(*contexts):
    """Makes these contexts, one a call."""
    made = iter(contexts)
    return lambda: next(made)()


def test_autocast_changes_both_passes_alike():
    parts = chunks([2, 3, 4])

    def cached(autocast):
        model = toy(0.0).float()
        backward(model, parts, lambda v: loss_of(v.float()), autocast)
        return gradients(model)

    other, vectors = toy(0.0).float(), torch.zeros(9, 6)
    for chunk in parts:
        with bf16():  # one a chunk, for a weight is cast once in each: its gradients are then summed in fp32, as there
            vectors = vectors.index_copy(0, chunk.rows, other(**chunk.inputs)[0].float())
    loss_of(vectors).backward()
    torch.testing.assert_close(cached(bf16), gradients(other), rtol=1e-5, atol=1e-7)
    # The first chunk is encoded once; the first pass over the others is in one context, the second in one for each.
    fp32 = contextlib.nullcontext
    for one_pass in (in_turn(bf16, bf16, fp32, fp32), in_turn(bf16, fp32, bf16, bf16)):
        difference = (cached(one_pass) - gradients(other)).abs().max()
        assert difference > 100 * (1e-7 + 1e-5 * gradients(other).abs().max())


def of_tokens(read, written=None):
    """A chunk of so many tokens that are read, and so many that are to be written."""
    inputs = {"input_ids": torch.zeros(1, read, dtype=torch.int64)}
    if written is not None:
        inputs["decoded"] = torch.zeros(1, written, dtype=torch.int64)
    return Chunk(torch.arange(1), inputs)


def test_memory_is_of_what_is_there_at_once():
    """Of the chunks that are kept together, or of a larger one that is encoded again; of what is written, too."""
    assert [of_tokens(4, written).padded for written in (None, 3, 9)] == [4, 4, 9]
    parts = [of_tokens(n) for n in (2, 3, 4)]
    assert [kept_at_once(parts, tokens) for tokens in (0, 4, 5, 9)] == [4, 4, 5, 9]


def forwards_under_ddp(all_kept):
    """Whether each of a step's forwards keeps its activations, where there is room for the first chunk's."""
    model = toy(0.0)
    model.watch = torch.is_grad_enabled
    wrapped = DistributedDataParallel(model, broadcast_buffers=False)
    backward(wrapped, chunks([4, 1, 5]), loss_of, all_kept=all_kept)
    return model.seen


def test_workers_without_room_for_all_activations_keep_those_of_a_chunk():
    assert on_workers(2, forwards_under_ddp, False) == [[True, False, False, True, True]] * 2
    assert on_workers(2, forwards_under_ddp, True) == [[True] * 3] * 2


# Chunks of each worker at each step: one, several, few enough to be kept, and none, changing places.
STEPS = [([5], [2, 9, 9]), ([2, 9, 4], [3]), ([4], []), ([], [9, 9]), ([9, 3], [2, 8, 9]), ([2, 1], [9, 8]), ([6], [2])]


def steps_under_ddp(bucket_mb, apart=None):
    rank = torch.distributed.get_rank()
    model = toy(0.0)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=bucket_mb, broadcast_buffers=False)
    reduced: list[int] = []

    def hook(state, bucket):
        reduced.append(bucket.index())
        tensor = bucket.buffer() / torch.distributed.get_world_size()
        work = torch.distributed.all_reduce(tensor, async_op=True)
        assert work is not None
        return work.get_future().then(lambda f: f.value()[0])

    wrapped.register_comm_hook(None, hook)
    found = []
    for step, sizes in enumerate(STEPS):
        mine = sizes[rank]
        parts = chunks(mine, seed=10 * step + rank) if mine else []
        model.zero_grad()
        reduced.clear()
        # A loss that talks to the other worker while DDP has exchanges of its own.
        fits = len(parts) <= 1 or sum(part.padded for part in parts) <= 30
        all_kept = not collective.any_worker(not fits)
        backward(
            wrapped,
            parts,
            lambda v: loss_of(v) + 0.0 * _exchange(v),
            kept_tokens=30,
            apart=apart,
            all_kept=all_kept,
        )
        found.append((gradients(model).numpy().copy(), sorted(reduced)))
    return found


def silently(work):
    """Do what a worker does apart from the others: nothing may be exchanged in it, not even by DDP."""
    send, torch.distributed.all_reduce = torch.distributed.all_reduce, lambda *_, **__: pytest.fail("an exchange")
    try:
        return work()
    finally:
        torch.distributed.all_reduce = send


def _exchange(vectors):
    total = vectors.detach().sum()
    torch.distributed.all_reduce(total)
    return total


def test_one_all_reduce_a_step_whatever_each_workers_chunks():
    expected = []
    for step, sizes in enumerate(STEPS):
        model = toy(0.0)
        model.zero_grad()
        for rank, mine in enumerate(sizes):
            if mine:
                backward(model, chunks(mine, seed=10 * step + rank), loss_of)
        expected.append(gradients(model) / 2)
    for bucket_mb, several, apart in ((25, False, None), (1e-4, True, None), (1e-4, True, silently)):
        for found in on_workers(2, steps_under_ddp, bucket_mb, apart):
            for (gradient, reduced), right in zip(found, expected, strict=True):
                np.testing.assert_allclose(gradient, right, rtol=1e-9, atol=1e-12)
                assert reduced == list(range(len(reduced)))
            assert (len(found[-1][1]) > 1) == several
