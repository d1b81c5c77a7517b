"""Running out of memory, pretended: chunks get smaller until a step fits, on all workers; errors say what to lower."""

import contextlib
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from infocse_ray.distributed import collectives as collective
from infocse_ray.distributed.memory import advised, is_out_of_memory
from infocse_ray.encoder import embed as embed_module
from infocse_ray.encoder.embed import embed
from infocse_ray.errors import OutOfMemory
from infocse_ray.settings import Settings
from infocse_ray.train import meters, step
from infocse_ray.train.memory import FIRST_ON_CPU, FIRST_ON_GPU, ChunkMemory, OutOfMemoryEverywhere
from infocse_ray.train.meters import CpuMeter
from tests.unit.group import on_workers
from tests.unit.trainees import Run, annotated, ragged, settings_for

STEPS = 2


def out_of_memory(*_: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor) -> torch.Tensor:  # pyright: ignore
        return hidden.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # pyright: ignore
        out_of_memory()
        return gradient


PLACES = ["forward", "forward with gradients", "a later chunk", "backward"]


def starve(run: Run, most: int, place: str = "forward") -> None:
    """Run out of memory somewhere in every step whose chunks may have more than `most` tokens."""
    chunks_with_gradients = 0

    def hook(module: torch.nn.Module, arguments: Any, hidden: torch.Tensor) -> torch.Tensor:
        nonlocal chunks_with_gradients
        gradients = torch.is_grad_enabled()
        chunks_with_gradients = chunks_with_gradients + 1 if gradients else 0
        if run.state.memory.tokens <= most:
            return hidden
        if place == "backward":
            return _Backward.apply(hidden) if gradients else hidden  # pyright: ignore[reportReturnType]
        later = chunks_with_gradients > 1 or run.state.memory.tokens > 2 * most
        if {"forward with gradients": gradients, "a later chunk": gradients and later}.get(place, True):
            out_of_memory()
        return hidden

    run.encoder.backbone.embeddings.register_forward_hook(hook)


def curve(run: Run) -> tuple[list[tuple], dict[str, np.ndarray]]:
    reports = [tuple(run.next()) for _ in range(STEPS)]
    return reports, {name: tensor.numpy() for name, tensor in run.weights().items()}


def assert_same(found: Any, expected: Any, rtol: float = 0.0) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=rtol)
    for name, weights in expected[1].items():
        np.testing.assert_allclose(found[1][name], weights, rtol=rtol, atol=rtol, err_msg=name)


@pytest.mark.parametrize("place", PLACES)
def test_a_step_that_ran_out_ends_as_with_the_smaller_chunk_from_the_start(tiny_encoder, annotations, place):
    run = Run(tiny_encoder, annotations, chunk_tokens="auto")
    starve(run, 64, place)
    found = curve(run)
    assert run.state.memory.tokens == 64
    expected = curve(Run(tiny_encoder, annotations, chunk_tokens=64))
    assert_same(found, expected)
    # Without dropout's noise, which differs by chunks, this would prove little.
    assert curve(Run(tiny_encoder, annotations, chunk_tokens=256))[0] != expected[0]


def test_auto_with_room_enough_is_one_chunk_encoded_once(tiny_encoder, annotations):
    run = Run(tiny_encoder, annotations, chunk_tokens="auto")
    calls = []
    run.encoder.backbone.embeddings.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    found = curve(run)
    assert all(calls)
    assert run.state.memory.tokens == FIRST_ON_CPU
    assert_same(found, curve(Run(tiny_encoder, annotations, chunk_tokens=FIRST_ON_CPU)))


def starved_curves(folder, annotations):
    """Curves of two workers of which the second alone runs out, in several places, and of fixed chunks."""
    found = {}
    for most, place in ((64, "forward"), (64, "backward"), (10_000, "forward")):
        run = Run(folder, annotations, chunk_tokens="auto")
        if collective.rank() == 1:
            starve(run, most, place)
        found[most, place] = (*curve(run), run.state.memory.tokens)
    for tokens in (64, FIRST_ON_CPU):
        found[tokens] = curve(Run(folder, annotations, chunk_tokens=tokens))
    return found


def test_workers_lower_the_chunk_together_when_one_runs_out(tiny_encoder, annotations):
    for worker in on_workers(2, starved_curves, tiny_encoder, annotations):
        for key, tokens in (((64, "forward"), 64), ((64, "backward"), 64), ((10_000, "forward"), FIRST_ON_CPU)):
            reports, weights, lowered = worker[key]
            assert lowered == tokens
            # Fixed chunks don't exchange gradients with a chunk without text, whose padding counts.
            fixed = [report[:4] for report in worker[tokens][0]], worker[tokens][1]
            assert_same(([report[:4] for report in reports], weights), fixed, 1e-5)


def messages_of_a_step_that_never_fits(folder, annotations):
    """Of both workers, of which one always runs out, and the weights after it."""
    run = Run(folder, annotations, chunk_tokens="auto")
    before = run.weights()
    if collective.rank() == collective.workers() - 1:
        starve(run, 0)
    with pytest.raises(OutOfMemoryEverywhere) as error:
        run.next()
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.weights().items())
    return str(error.value)


def test_what_does_not_fit_with_the_smallest_chunk_ends_on_every_worker_with_advice(tiny_encoder, annotations):
    alone = messages_of_a_step_that_never_fits(tiny_encoder, annotations)
    assert alone.startswith(
        "step 1: out of GPU memory with train.chunk_tokens = auto, lowered from 8192 to 64 tokens: "
    )
    assert "lower encoder.max_length" in alone
    assert on_workers(2, messages_of_a_step_that_never_fits, tiny_encoder, annotations) == [alone, alone]


@pytest.mark.parametrize(
    ("chunk_tokens", "advice"), [(1000, r"= 1000: lower it, to 500 for example, or set it to auto"), (64, "max_length")]
)
def test_a_fixed_chunk_is_not_lowered_but_named(tiny_encoder, annotations, chunk_tokens, advice):
    run = Run(tiny_encoder, annotations, chunk_tokens=chunk_tokens)
    starve(run, 10)
    with pytest.raises(OutOfMemoryEverywhere, match=rf"step 1: .*train\.chunk_tokens .*{advice}") as error:
        run.next()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("chunk_tokens", ["auto", 64])
def test_a_loss_that_does_not_fit_names_the_batch(tiny_encoder, annotations, chunk_tokens, monkeypatch):
    monkeypatch.setattr(step, "contrastive_loss", out_of_memory)
    run = Run(tiny_encoder, annotations, chunk_tokens=chunk_tokens)
    with pytest.raises(OutOfMemoryEverywhere, match=r"step 1: .*the loss of 28 texts at once; lower the batch size"):
        run.next()


def test_one_worker_goes_on_when_memory_runs_out_after_steps_have_fitted(tiny_encoder, annotations):
    """Activations that were kept are given up first, with the noise and the results of chunks encoded twice."""
    curves = []
    for room in (0, 10**9):
        run = Run(tiny_encoder, annotations, chunk_tokens="auto")
        memory = run.state.memory
        memory.tokens = memory.kept = 64
        memory._meter.room = lambda room=room: room
        run.next()
        assert not memory.careful
        assert (memory.kept > 64) == bool(room)

        def hook(*_: object, memory: ChunkMemory = memory) -> None:
            if memory.kept > 64:
                out_of_memory()

        run.encoder.backbone.embeddings.register_forward_hook(hook)
        curves.append(curve(run))
        assert (memory.tokens, memory.kept) == (64, 64)
    assert_same(*curves)


@pytest.mark.parametrize(
    "said",
    [
        "Triton Error [CUDA]: out of memory",
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    ],
)
def test_what_runs_out_elsewhere_is_taken_for_it(said):
    assert is_out_of_memory(RuntimeError(said))
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_other_errors_are_not_taken_for_it(tiny_encoder, annotations):
    def fail(*_: object) -> None:
        raise RuntimeError("shapes don't match")

    for chunk_tokens in ("auto", 64):
        run = Run(tiny_encoder, annotations, chunk_tokens=chunk_tokens)
        run.encoder.backbone.embeddings.register_forward_hook(fail)
        with pytest.raises(RuntimeError, match="shapes don't match") as error:
            run.next()
        assert not isinstance(error.value, OutOfMemory)
    with pytest.raises(RuntimeError, match="shapes"), advised("a", "b"):
        fail()
    with pytest.raises(OutOfMemory, match="a; b"), advised("a", "b"):
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def test_the_tokens_reached_are_told_once_and_gone_on_with():
    memory = ChunkMemory("auto", torch.device("cpu"))
    assert (memory.tokens, memory.news()) == (FIRST_ON_CPU, None)
    assert ChunkMemory("auto", torch.device("cuda", 0)).tokens == FIRST_ON_GPU
    memory.until_it_fits(1, lambda: memory.apart(lambda: out_of_memory() if memory.tokens > 2_048 else None))
    assert "chunks of 8,192 tokens; from here on they have 2,048" in (memory.news() or "")
    assert memory.news() is None
    again = ChunkMemory("auto", torch.device("cpu"))
    again.resume(memory.tokens)
    assert (again.tokens, again.news()) == (2_048, None)
    fixed = ChunkMemory(512, torch.device("cpu"))
    fixed.resume(memory.tokens)
    assert fixed.tokens == 512


class FakeMeter:
    """A GPU on which every token takes 100 bytes."""

    steps, runs_out = 2, True

    def __init__(self, room: int) -> None:
        self.tokens, self._room, self.begun = 0, room, 0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        self.begun += 1
        yield

    def taken(self) -> int:
        return 100 * self.tokens

    def room(self) -> int:
        return self._room


class FakeCpu(FakeMeter):
    """A CPU; by default with room for no more than it begins with."""

    steps, runs_out = 1, False

    def __init__(self, room: int = 0) -> None:
        super().__init__(room)


def kept_by_workers() -> tuple[int, bool]:
    """What two workers keep of which the second has less room."""
    meter = FakeMeter(1_000_000 if collective.rank() == 0 else 500_000)
    memory = ChunkMemory("auto", torch.device("cpu"), meter)
    meter.tokens = 2_000
    for _ in range(2):
        memory.fitted(2_000)
    return memory.kept, memory.careful


def test_what_is_kept_grows_to_what_a_step_has_shown_to_fit():
    meter = FakeMeter(10_000_000)
    memory = ChunkMemory("auto", torch.device("cpu"), meter)
    meter.tokens = 4_000
    for number in (1, 2):
        assert (memory.kept, memory.careful) == (FIRST_ON_CPU, True)
        assert memory.state() == {"chunk_tokens": FIRST_ON_CPU, "kept_tokens": None, "kept_room": None}
        with memory.watched():
            memory.fitted(4_000)
        assert meter.begun == number
    assert (memory.tokens, memory.kept, memory.careful) == (FIRST_ON_CPU, 85_000, False)
    memory.fitted(1)
    assert memory.kept == 85_000
    # A restart may be memory's doing: the same noise and the same activations, but every step looked after.
    again = ChunkMemory("auto", torch.device("cpu"), meter)
    again.resume(*memory.state().values())
    again.fitted(4_000)
    again.fitted(4_000)
    assert (again.tokens, again.kept, again.careful) == (FIRST_ON_CPU, 85_000, True)
    again.until_it_fits(1, lambda: again.apart(lambda: out_of_memory() if again.kept > 10_000 else None))
    assert (again.tokens, again.kept) == (FIRST_ON_CPU, FIRST_ON_CPU), "the noise stays where it can"
    # All agree, so that DDP's exchanges are the same ones.
    assert on_workers(2, kept_by_workers) == [(FIRST_ON_CPU, False)] * 2


def kept_by_unlike_workers() -> tuple[int, int]:
    """What two workers keep, and keep when they go on: a token of the second takes more, and it has less room."""
    first = collective.rank() == 0
    meter = FakeCpu(10_000_000 if first else 5_000_000)
    memory = ChunkMemory("auto", torch.device("cpu"), meter)
    meter.tokens = 2_000 if first else 4_000
    memory.fitted(2_000)
    again = ChunkMemory("auto", torch.device("cpu"), FakeCpu(8_000_000 if first else 2_500_000))
    again.resume(*memory.state().values())
    return memory.kept, again.kept


def test_all_workers_keep_what_the_one_with_least_room_and_the_one_that_takes_most_can():
    assert on_workers(2, kept_by_unlike_workers) == [(21_250, 10_625)] * 2


def test_what_a_token_takes_is_told_by_those_that_were_there_at_once(tiny_encoder, annotations, monkeypatch):
    run = Run(tiny_encoder, annotations, chunk_tokens="auto")
    memory, fitted = run.state.memory, []
    memory.tokens = memory.kept = 64
    monkeypatch.setattr(memory, "fitted", fitted.append)
    batch = run.stream.next_batch()
    prepared = run.state.prepare(batch)
    run.take(batch, 1)
    assert fitted == [max(chunk.padded for chunk in prepared.chunks)]
    assert fitted[0] < prepared.padded


def test_a_resumed_training_on_a_cpu_goes_on_as_it_was():
    memory = ChunkMemory("auto", torch.device("cpu"), FakeCpu())
    assert memory.careful
    memory.fitted(10)
    assert not memory.careful
    for state, careful in ((memory.state(), False), ({"chunk_tokens": 512, "kept_tokens": None}, True)):
        again = ChunkMemory("auto", torch.device("cpu"), FakeCpu())
        again.resume(*state.values())
        assert again.careful == careful


def test_a_training_that_goes_on_where_there_is_less_memory_keeps_less():
    memory = ChunkMemory("auto", torch.device("cpu"), FakeCpu(100_000_000))
    memory._meter.tokens = 4_000  # pyright: ignore[reportAttributeAccessIssue]
    memory.fitted(4_000)
    state, kept = memory.state(), 850_000
    assert memory.kept == kept
    for room in (200_000_000, 100_000_000, 50_000_000, 100_000_000):
        again = ChunkMemory("auto", torch.device("cpu"), FakeCpu(room))
        again.resume(*state.values())
        kept = min(kept, kept * room // 100_000_000)
        assert (again.tokens, again.kept, again.careful) == (FIRST_ON_CPU, kept, False)
        state = again.state()
    again.resume(FIRST_ON_CPU, 850_000, 10**12)
    assert again.kept == FIRST_ON_CPU, "the noise stays"


def test_auto_is_the_one_word_that_the_setting_takes():
    assert settings_for("idc", chunk_tokens="auto").train.chunk_tokens == "auto"
    with pytest.raises(ValueError, match="chunk_tokens"):
        settings_for("idc", chunk_tokens="automatic")
    content = {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}}
    assert Settings.model_validate(content).train.chunk_tokens == "auto"


def test_embedding_takes_smaller_batches_until_they_fit(tiny_encoder, annotations, monkeypatch):
    monkeypatch.setattr(embed_module, "_budgets", {})
    run = Run(tiny_encoder, annotations, dropout=False)
    run.encoder.eval()
    draw = np.random.default_rng(0)
    sentences = ragged([draw.integers(7, 60, length).tolist() for length in draw.integers(1, 15, 200)])
    expected = embed(run.encoder, sentences)
    sizes: list[int] = []
    most = 300

    def hook(module: torch.nn.Module, arguments: Any, hidden: torch.Tensor) -> None:
        sizes.append(hidden.shape[0] * hidden.shape[1])
        if sizes[-1] > most:
            out_of_memory()

    run.encoder.backbone.embeddings.register_forward_hook(hook)
    found = embed(run.encoder, sentences)
    torch.testing.assert_close(found.vectors, expected.vectors, rtol=1e-5, atol=1e-6)
    assert found.tokens == expected.tokens
    assert max(sizes) > 300
    sizes.clear()
    embed(run.encoder, sentences)
    assert max(sizes) <= 600, "what was found out is gone on with"
    most = 10
    with pytest.raises(OutOfMemory, match=r"one text of 1\d tokens; lower encoder\.max_length"):
        embed(run.encoder, sentences)


def test_what_autograd_keeps_is_counted_once_and_until_it_is_gone():
    meter = CpuMeter()
    x = torch.ones(1_000, 100, requires_grad=True)
    with meter.watched():
        first = (x * x).sum()  # x twice
        second = x.exp()  # its result
        assert meter.taken() == 2 * 400_000
        first.backward()
        del second
        third = x.sin().cos()  # x and its sine, where there were x and its exponential
    assert meter.taken() == 2 * 400_000
    with meter.watched():
        del third
        assert meter.taken() == 0
    assert 0 < meter.room() < 2**50


def test_a_cpu_has_the_room_that_goes_with_its_threads(monkeypatch):
    monkeypatch.setattr(meters, "_memory", lambda: 1_000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    for threads, room in ((1, 75), (2, 150), (4, 300), (8, 300)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert CpuMeter().room() == room


def test_a_container_has_the_memory_that_it_may_have(monkeypatch):
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit, expected in (("4096\n", 4096), (f"{2 * whole}\n", whole), ("max\n", whole)):
        monkeypatch.setattr(meters, "Path", lambda _, limit=limit: SimpleNamespace(read_text=lambda: limit))
        assert meters._memory() == expected


def test_a_batch_that_memory_has_room_for_is_encoded_once(tiny_encoder, annotations):
    """From the second step on, with the noise and the results it would have had."""
    curves = []
    for room in (0, 10**9):
        run = Run(tiny_encoder, annotations, chunk_tokens="auto")
        memory, calls = run.state.memory, []
        memory.tokens = memory.kept = 64
        memory._meter.room = lambda room=room: room
        run.encoder.backbone.embeddings.register_forward_hook(lambda *_, c=calls: c.append(torch.is_grad_enabled()))
        run.next()
        assert not all(calls)
        calls.clear()
        curves.append(curve(run))
        assert all(calls) == bool(room)
        assert (memory.kept > 64) == bool(room)
    assert_same(*curves)


def test_a_batch_of_few_tokens_is_cut_by_length_all_the_same(tiny_encoder, tmp_path):
    run = Run(tiny_encoder, annotated(tmp_path, tiny_encoder, 100), chunk_tokens="auto", batch_size=100)
    chunks = run.state.chunks(batch := run.stream.next_batch(), run.state.memory.tokens)
    tokens = run.state.tokens(batch)
    assert tokens.sum() < FIRST_ON_CPU // 3
    assert sum(chunk.padded for chunk in chunks) < 1.1 * tokens.sum()
    assert all(chunk.padded > 256 for chunk in chunks[:-1]), "what a chunk takes by itself stays little"
