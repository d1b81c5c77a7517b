"""What this library is compared with on a GPU: of the settings that work the fastest, and each does the same work."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from infocse_ray.benchmarks import gpu_theirs, made_up
from infocse_ray.benchmarks.gpu import sides_of
from infocse_ray.benchmarks.gpu_clock import Pace
from infocse_ray.benchmarks.gpu_theirs import SMALL, Found, fastest

CPU = torch.device("cpu")


def chosen(
    rates: dict[str, tuple[float, float]], limit: float = 60.0, clock: list[float] | None = None
) -> tuple[Found, list[tuple[str, bool]]]:
    """What is found where settings have these rates in trials and as a whole, 0: out of memory; and what was asked."""
    asked: list[tuple[str, bool]] = []

    def measure(way: str, trial: bool) -> Pace:
        asked.append((way, trial))
        if clock is not None:
            clock[0] += 1.0
        if not (rate := rates[way][not trial]):
            raise torch.OutOfMemoryError
        return Pace(rate, "1 MiB")

    return cast(Any, fastest)(rates, measure, limit), asked


def test_the_fastest_in_trials_is_measured():
    found, asked = chosen({"a": (1.0, 9.0), "b": (3.0, 2.0), "c": (2.0, 9.0)})
    assert found == Found(2.0, "1 MiB", "b")
    assert asked == [("a", True), ("b", True), ("c", True), ("b", False)]


def test_what_has_no_room_is_left_out(capsys: pytest.CaptureFixture[str]):
    assert chosen({"a": (0.0, 9.0), "b": (3.0, 0.0), "c": (2.0, 4.0)})[0] == Found(4.0, "1 MiB", "c")
    said = capsys.readouterr().err.splitlines()
    assert said == ["  a: left out, out of memory", "  b: 3", "  c: 2", "  b: left out, out of memory"]
    with pytest.raises(RuntimeError, match="in none of the settings"):
        chosen({"a": (0.0, 0.0)})


def test_a_search_ends_in_time_once_something_works(monkeypatch: pytest.MonkeyPatch):
    clock = [0.0]
    monkeypatch.setattr(gpu_theirs.time, "perf_counter", lambda: clock[0])
    ways = {"a": (0.0, 1.0), "b": (0.0, 1.0), "c": (1.0, 1.0), "d": (9.0, 9.0)}
    found, asked = chosen(ways, 1.5, clock)
    assert found.setting == "c"
    assert ("d", True) not in asked


def test_every_loss_that_is_tried_has_the_same_gradients(tmp_path, monkeypatch: pytest.MonkeyPatch):
    folder = made_up.save_encoder(made_up.backbone("BERT-base", small=True), tmp_path / "encoder")
    sides = sides_of(made_up.documents(300), 16)
    trainee = gpu_theirs._Trainee(folder, sides[:1], CPU, "sdpa")
    trainee.model.eval()  # without dropout
    found: dict[str, tuple[float, torch.Tensor]] = {}
    monkeypatch.setattr(gpu_theirs, "fastest", lambda ways, *_: list(ways))
    for way in cast(Any, gpu_theirs.train(folder, sides, CPU, SMALL)):
        trainee.model.zero_grad()
        loss = way.of(trainee.model, 16)([dict(side) for side in trainee.batches[0]], torch.empty(0))
        loss.backward()
        gradients = [p.grad.flatten() for p in trainee.model.parameters() if p.grad is not None]
        found[str(way)] = loss.item(), torch.cat(gradients)
    whole, *mini = found
    assert whole == "MultipleNegativesRankingLoss"
    assert [name.rsplit("mini-batches of ")[-1] for name in mini] == ["12 pairs", "200 tokens"]
    for name in mini:
        assert found[name][0] == pytest.approx(found[whole][0], rel=1e-5)
        torch.testing.assert_close(found[name][1], found[whole][1], rtol=1e-3, atol=1e-6)


def test_what_is_tried_on_a_gpu(monkeypatch: pytest.MonkeyPatch):
    sides, nowhere = sides_of(made_up.documents(300), 1_000), cast(Any, None)
    kernels = [gpu_theirs._Kernels("flash", True), *(gpu_theirs._Kernels("sdpa", cudnn) for cudnn in (False, True))]
    monkeypatch.setattr(gpu_theirs, "fastest", lambda ways, *_: list(ways))
    for there, first in ((kernels, ", flattened"), (kernels[1:], "")):
        monkeypatch.setattr(gpu_theirs, "_kernels", lambda *_, there=there: there)
        found = gpu_theirs.train(nowhere, sides, CPU, gpu_theirs.ON_GPU)
        names = [str(way) for way in cast(Any, found)]
        sizes = [name.split("mini-batches of ")[-1] for name in names if ", attention as torch" not in name]
        expected = ["1,000 pairs", "16,384 tokens", "512 pairs", "128 pairs"]
        assert sizes[:5] == [f"{one}{first}" for one in ["MultipleNegativesRankingLoss", *expected]]
        assert sizes[5:] == (["MultipleNegativesRankingLoss", *expected] if first else [])
        assert sum(", attention as torch" in name for name in names) == 4
        for measured, sizes in ((gpu_theirs.encode, 4), (gpu_theirs.forward, 3)):
            ways = cast(Any, measured(nowhere, sides[0][0], CPU, gpu_theirs.ON_GPU))
            assert len(set(ways)) == len(there) * 2 * sizes, "bf16 and fp16"
            assert [way.kernels for way in ways] == sorted((way.kernels for way in ways), key=there.index)


def test_vectors_of_batches_that_are_tokenised_beforehand_are_those_of_encode(
    tmp_path, monkeypatch: pytest.MonkeyPatch
):
    folder = made_up.save_encoder(made_up.backbone("ModernBERT-base", small=True), tmp_path / "encoder")
    sentences = made_up.documents(60).sentences
    model = gpu_theirs._model(folder, CPU, "sdpa", torch.float32)
    expected = model.encode(made_up.texts(sentences), convert_to_tensor=True)
    seen: list[torch.Tensor] = []

    def seconds(work: Any) -> float:
        seen.append(work())
        return 1.0

    monkeypatch.setattr(gpu_theirs, "seconds", seconds)
    found = gpu_theirs.forward(folder, sentences, CPU, SMALL._replace(tokens=(300,)))
    assert found == Found(float(len(sentences)), "-", "fp32, batches of 300 tokens")
    torch.testing.assert_close(seen[0], expected, rtol=1e-4, atol=1e-5)
