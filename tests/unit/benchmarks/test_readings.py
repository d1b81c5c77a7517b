"""Documents read three ways by the encoders of runs: each row is what a plain evaluation of that encoder gives."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from infocse_ray.benchmarks import readings
from infocse_ray.benchmarks.readings import run
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import for_inference
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.retrieval.validation import questions_for, score
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from tests.unit.encoder.test_encoder import load
from tests.unit.encoder.test_encoder_modules import some_whitening
from tests.unit.stores import Written, write_store


def sentences(draw: np.random.Generator, count: int) -> list[list[int]]:
    return [draw.integers(7, 60, draw.integers(3, 9)).tolist() for _ in range(count)]


@pytest.fixture
def runs(tmp_path: Path, tiny_encoder: Path) -> dict[str, list[SentenceEncoder]]:
    """Two runs whose results are other whitenings; their encoders by the row that shows them."""
    root, draw = Storage.open(str(tmp_path)), np.random.default_rng(0)
    written = [
        Written(f"d{i}", sentences(draw, 4), (), sentences(draw, 1), "test" if i % 2 else "valid") for i in range(40)
    ]
    store = write_store(root / "corpora" / "c", written, 2)
    stage = {"fingerprint": "f", "files": {}, "kind": "prepare", "summary": store.summary}
    (root / "corpora" / "c" / "stage.json").write_json(checked(stage))
    shown: dict[str, list[SentenceEncoder]] = {"as it came": [load(tiny_encoder, True)], "whitened": [], "result": []}
    for number, name in enumerate(("one", "two")):
        stages = {"corpus": {"folder": "corpora/c"}}
        for stage, row, out in (
            ("iteration_0/encoder", "as it came", None),
            ("iteration_0/whitening", "whitened", 8),
            ("", "result", 9 + number),
        ):
            encoder = load(tiny_encoder, True)
            if out is not None:
                encoder.whitening = some_whitening(out=out)
                shown[row].append(encoder)
            EncoderFolder.save(encoder, root / name / stage / "model" if stage else root / name / "model")
            stages[stage] = {"folder": f"{name}/{stage}"}
        settings = {"encoder": {"max_length": 16}}
        manifest = {"format": 2, "stages": stages, "settings": settings, "finished": "f", "inputs": {"encoder": "e"}}
        (root / name / "manifest.json").write_json(checked(manifest))
    return shown


def test_each_row_is_a_plain_evaluation(
    tmp_path: Path,
    runs: dict[str, list[SentenceEncoder]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(readings, "for_inference", lambda encoder, _, device: for_inference(encoder, "fp32", device))
    run(argparse.Namespace(storage=str(tmp_path), runs=["one", "two"], documents=100))
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    cells = {(row[0], row[1]): row[2:] for row in rows if len(row) == 8}
    added = {row[0]: row[1:] for row in rows if len(row) == 7}
    for reading in readings.READINGS:
        ours, start = cells["result", reading], cells["whitened", reading]
        assert added[reading][::2] == ours[::2]
        for place in (0, 2, 4):
            lead = float(added[reading][place + 1].split()[0])
            assert lead == pytest.approx(float(ours[place]) - float(start[place]), abs=2e-4)
    store = readings.FinishedRuns.of(str(tmp_path), ["one"]).store
    for name, encoders in runs.items():
        for reading in readings.READINGS:
            asked = (
                questions_for(store, "test", "counterpart", reading=reading),
                questions_for(store, "valid", "sentence", 100, reading=reading),
            )
            found = [
                [score(for_inference(one, "fp32", torch.device("cpu")), q).metrics for one in encoders] for q in asked
            ]
            expected = [
                np.mean([metrics[name] for metrics in found[split]])
                for split, name in ((0, "recall@5"), (0, "mrr"), (1, "mrr"))
            ]
            row = cells[name, reading]
            assert [float(value) for value in row[::2]] == pytest.approx(expected, abs=1e-4)
            assert all(row[1::2]) == (reading != "sentences")
    assert len({tuple(row) for row in cells.values()}) == len(cells)
    manifest = tmp_path / "two" / "manifest.json"
    other = json.loads(manifest.read_text()) | {"inputs": {"encoder": "other"}}
    del other["checksum"]
    manifest.write_text(json.dumps(checked(other)))
    with pytest.raises(ValueError, match=r"^--runs: they began with 2 encoders; give runs of one at a time"):
        readings.FinishedRuns.of(str(tmp_path), ["one", "two"])
