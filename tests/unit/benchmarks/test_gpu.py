"""The benchmark of a GPU runs on a CPU, small, and without Ray; what it makes up is what both sides read."""

from __future__ import annotations

import argparse
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from infocse_ray.benchmarks import gpu, gpu_clock, made_up
from infocse_ray.benchmarks.gpu import DISTILLATION, MODELS, operations
from infocse_ray.commands.benchmark import main
from infocse_ray.encoder import kernels
from infocse_ray.train.memory import ChunkMemory
from infocse_ray.train.meters import CudaMeter
from tests.unit.trainees import ragged

_WITHOUT_RAY = """
import sys
sys.modules["ray"] = None
from infocse_ray.commands.benchmark import main
sys.exit(main(["gpu", "--small", "--models", "bert_base", "modernbert_base", "qwen3"]))
"""


def test_it_runs_without_ray_and_measures_the_encoders_that_are_named():
    ran = subprocess.run([sys.executable, "-c", _WITHOUT_RAY], capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    assert "left out" not in ran.stderr, "of sentence-transformers' settings"
    for name in MODELS.values():
        rows = [line.split(" | ") for line in ran.stdout.splitlines() if line.startswith(f"| {name}")]
        if name == MODELS["minilm"]:
            assert not rows
            continue
        annotated, *trained = rows
        assert ["batches of" in figure for figure in annotated].count(True) == 2, "encode, and tokenised beforehand"
        assert len(trained) == 3, "two batches, and one of them with distillation"
        assert [f"distillation {DISTILLATION}" in row[0] for row in trained] == [False, False, True]
        assert all("MultipleNegativesRankingLoss" in row[-1] for row in trained[:2])
    assert "tests/gpu: not run" in ran.stdout


def test_what_stands_for_a_backbone_is_where_the_encoder_is_and_attends_as_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "_WAITED_FOR", ("meta",))
    config = SimpleNamespace(model_type="bert", _attn_implementation="sdpa")
    encoder = SimpleNamespace(backbone=SimpleNamespace(config=config), dimension=4, device=torch.device("meta"))
    seen: list[torch.nn.Module] = []

    def embed(encoder: Any, *_: object) -> None:
        seen.append(encoder.backbone)
        with kernels.without_a_look(encoder.backbone.config, torch.device("meta")):
            encoder.backbone(torch.zeros(1, 2, dtype=torch.int64))

    monkeypatch.setattr(gpu, "embed", embed)
    some: Any = SimpleNamespace(sentences=ragged([[5], [6, 7]]))
    gpu.host_seconds(SimpleNamespace(encoder=encoder), some)  # pyright: ignore[reportArgumentType]
    assert {one.device.type for backbone in seen for one in backbone.parameters()} == {"meta"}


def test_all_encoders_are_measured_where_none_is_named(monkeypatch: pytest.MonkeyPatch):
    asked: list[argparse.Namespace] = []
    monkeypatch.setattr(gpu, "run", asked.append)
    assert main(["gpu"]) == main(["gpu", "--models", *reversed(MODELS)]) == 0
    assert [list(arguments.models) for arguments in asked] == [[*MODELS], [*reversed(MODELS)]]


def test_an_encoder_for_which_no_time_is_left_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    clock, device = [0.0], torch.device("cpu")

    def rows_of(name: str, *_: object) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        clock[0] += 200.0
        return (name, "1"), [(f"{name}, 8 pairs", "1")]

    for name, stands_for in {"rows_of": rows_of, "gpu_tests": "{:.0f} s for tests".format}.items():
        monkeypatch.setattr(gpu, name, stands_for)
    monkeypatch.setattr(gpu.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(gpu, "peak_of", lambda *_: 1.0)
    monkeypatch.setattr(gpu.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu.torch, "device", lambda *_: device)
    monkeypatch.setattr(gpu, "inference_dtype", lambda *_: torch.float32)
    monkeypatch.setattr(gpu, "notes", lambda *said: print(*said, sep="\n"))
    gpu.run(argparse.Namespace(small=True, models=[*MODELS]))
    said = capsys.readouterr().out
    assert said.count("BERT-base | 1") == 1
    assert "| MiniLM-L6 | 1" in said
    assert "\nModernBERT-base is left out: there was no time" in said
    assert said.endswith("140 s for tests\n")


def test_steps_count_once_memory_is_settled_and_on_batches_that_were_not_seen(monkeypatch: pytest.MonkeyPatch):
    class Meter:
        steps, runs_out = CudaMeter.steps, True

        def taken(self) -> int:
            return 1_000

        def room(self) -> int:
            return 10**9

    memory = ChunkMemory("auto", torch.device("cpu"), Meter())  # pyright: ignore[reportArgumentType]
    settled: list[bool] = []
    clock = [0.0]

    def step(batch: int) -> None:
        settled.append(not memory.careful)
        memory.fitted(100)
        clock[0] += 10.0 if batch < gpu_clock.UNCOUNTED else 0.5

    monkeypatch.setattr(gpu_clock, "now", lambda: clock[0])
    batches = range(gpu_clock.UNCOUNTED + gpu_clock.COUNTED)
    assert gpu_clock.pace(step, batches, 8, torch.device("cpu")).rate == 16.0
    assert settled[gpu_clock.UNCOUNTED - 1 :] == [True] * (1 + gpu_clock.COUNTED), "one that isn't counted keeps more"


def test_texts_are_read_as_the_tokens_they_were_made_of(tmp_path):
    some = made_up.documents(100)
    encoder = made_up.save_encoder(made_up.backbone("MiniLM-L6", small=True), tmp_path / "encoder").load()
    ids = encoder.tokenizer(made_up.texts(some.sentences), add_special_tokens=False)["input_ids"]
    assert np.concatenate(ids).tolist() == some.sentences.values.tolist()
    assert [len(row) for row in ids] == some.sentences.lengths.tolist()
    assert encoder.lengths(some.sentences).max() <= made_up.MAX_LENGTH


def test_arithmetic_is_that_of_the_weights_that_multiply(tmp_path):
    encoder = made_up.save_encoder(made_up.backbone("BERT-base", small=True), tmp_path / "encoder").load()
    layer = 4 * 32 * 32 + 2 * 32 * 64
    assert operations(encoder, 10, 1) == 10 * (2 * 2 * layer + 4 * 2 * 32 * 10)
