"""Documents read three ways by the encoders of runs: a row is what a plain evaluation of the whitened encoder gives."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from infocse_ray.benchmarks import readings
from infocse_ray.benchmarks.finished_runs import FinishedRuns
from infocse_ray.benchmarks.readings import READINGS, run
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import for_inference
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.retrieval.refit import Refit, WhiteningPlan
from infocse_ray.retrieval.validation import questions_for, score
from infocse_ray.settings import Reading
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from tests.unit.encoder.test_encoder import load
from tests.unit.encoder.test_encoder_modules import some_whitening
from tests.unit.stores import Written, write_store


def sentences(draw: np.random.Generator, count: int) -> list[list[int]]:
    return [draw.integers(7, 60, draw.integers(3, 9)).tolist() for _ in range(count)]


@pytest.fixture
def runs(tmp_path: Path, tiny_encoder: Path) -> dict[str, list[SentenceEncoder]]:
    """Two runs, whose results are other encoders; those of each run, without whitening, by the rows that show them."""
    root, draw = Storage.open(str(tmp_path)), np.random.default_rng(0)
    written = [
        Written(f"d{i}", sentences(draw, 4), (), sentences(draw, 1), "test" if i % 2 else "valid") for i in range(40)
    ]
    store = write_store(root / "corpora" / "c", written, 2)
    stage = {"fingerprint": "f", "files": {}, "kind": "prepare", "summary": store.summary}
    (root / "corpora" / "c" / "stage.json").write_json(checked(stage))
    shown: dict[str, list[SentenceEncoder]] = {"as it came": [], "result": []}
    for number, name in enumerate(("one", "two")):
        stages = {"corpus": {"folder": "corpora/c"}}
        for stage, row in (("iteration_0/encoder", "as it came"), ("", "result")):
            encoder = load(tiny_encoder, True)
            if row == "result":
                encoder.whitening = some_whitening(out=8)
                with torch.no_grad():
                    for weights in encoder.backbone.parameters():
                        weights += 0.05 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(number))
            shown[row].append(encoder)
            EncoderFolder.save(encoder, root / name / stage / "model" if stage else root / name / "model")
            stages[stage] = {"folder": f"{name}/{stage}"}
        settings = {
            "name": name,
            "seed": number,
            "encoder": {"model": "m", "max_length": 16},
            "corpus": {"source": "a"},
            "validate": {"on": "sentence"},
        }
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
    run(argparse.Namespace(storage=str(tmp_path), runs=["one", "two"]))
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    cells = {tuple(row[:3]): row[3:] for row in rows if len(row) == 7}
    added = {tuple(row[:2]): row[2:] for row in rows if len(row) == 6}
    ways: list[tuple[str, Reading]] = [
        (fitted, reading) for fitted in ("none", "sentences", "sentences, whole texts") for reading in READINGS
    ]
    for way in ways:
        ours, start = cells["result", *way], cells["as it came", *way]
        assert added[way][::2] == ours[::2]
        for place in (0, 2):
            lead = float(added[way][place + 1].split()[0])
            assert lead == pytest.approx(float(ours[place]) - float(start[place]), abs=2e-4)
    store = FinishedRuns.of(str(tmp_path), ["one"]).store
    for row, encoders in runs.items():
        for fitted, reading in ways:
            asked, found = questions_for(store, "test", "counterpart", reading=reading), []
            for seed, encoder in enumerate(encoders):
                encoder.whitening = None
                plan = WhiteningPlan(None, None, ["train", "test"], seed, fitted not in ("none", "sentences"))
                ready = for_inference(encoder, "fp32", torch.device("cpu"))
                ready.whitening = None if fitted == "none" else Refit.of(plan, store, ready, torch.device("cpu"))(ready)
                found.append(score(ready, asked).metrics)
            expected = [np.mean([metrics[name] for metrics in found]) for name in ("recall@5", "mrr")]
            shown = cells[row, fitted, reading]
            assert [float(value) for value in shown[::2]] == pytest.approx(expected, abs=1e-4)
            assert all(shown[1::2]) == ((fitted, reading) not in (("none", "sentences"), ("sentences", "sentences")))
    assert len({tuple(shown[::2]) for shown in cells.values()}) > len(cells) / 2
    manifest = tmp_path / "two" / "manifest.json"
    other = json.loads(manifest.read_text()) | {"inputs": {"encoder": "other"}}
    del other["checksum"]
    manifest.write_text(json.dumps(checked(other)))
    with pytest.raises(ValueError, match=r"^--runs: they began with 2 encoders; give runs of one at a time"):
        FinishedRuns.of(str(tmp_path), ["one", "two"])
