"""The benchmark of a GPU runs on a CPU, small, and without Ray; what it makes up is what both sides read."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from infocse_ray.benchmarks import made_up
from infocse_ray.benchmarks.gpu import MODELS, operations

_WITHOUT_RAY = """
import sys
sys.modules["ray"] = None
from infocse_ray.commands.benchmark import main
sys.exit(main(["gpu", "--small"]))
"""


def test_it_runs_without_ray_and_measures_every_encoder():
    ran = subprocess.run([sys.executable, "-c", _WITHOUT_RAY], capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    for name in MODELS:
        rows = [line for line in ran.stdout.splitlines() if line.startswith(f"| {name}")]
        assert len(rows) == 3, "one of annotating, two batches of training"
    assert "tests/gpu: not run" in ran.stdout


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
