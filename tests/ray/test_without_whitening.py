"""A run whose whitening takes away goes on without it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.loop import outcome
from infocse_ray.loop.infocse import pretrain
from infocse_ray.loop.manifest import read_manifest
from infocse_ray.loop.run import Look, Run
from infocse_ray.retrieval.bootstrap import Lead
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents, write_jsonl
from tests.ray.test_pretrain import settings_for

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_whitening_that_takes_away_is_left_out_as_if_it_had_been_off(
    tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", make_documents(150))
    compare, evaluate = outcome.compare, Run.evaluate
    begun = list[bool]()

    def worse(run: Run, looks: dict[str, Look]) -> dict[str, Stage]:
        """What the run looks at first: whitened it finds less."""
        stages = evaluate(run, looks)
        if begun:
            return stages
        scores = {"start/valid": 0.9, "whitened/valid": 0.1}
        metrics = {name: (stage.summary or {})["metrics"] for name, stage in stages.items()}
        return {
            name: dataclasses.replace(
                stage, summary={"metrics": metrics[name] | {run.settings.validate.metric: scores[name]}}
            )
            for name, stage in stages.items()
        }

    def lost(*folders: Any) -> Lead:
        lead = compare(*folders) if begun else Lead(-0.8, -0.9, -0.7, 0.0, 40, 40)
        begun.append(True)
        return lead

    monkeypatch.setattr(Run, "evaluate", worse)
    monkeypatch.setattr(outcome, "compare", lost)
    left = pretrain(settings_for(tmp_path, tiny_encoder, train={"never_worse": True}))
    root = Storage.open(str(tmp_path / "runs"))
    assert left["settings"]["encoder"]["whiten"] == "off"
    assert "whitening" not in left
    assert {"start", "whitened", "result"} <= left.keys()
    assert left["verdict"]["over"] == "start"
    assert any(warning.startswith("whitening takes away") for warning in left["warnings"])
    assert EncoderFolder(root / "run" / "model", "x", 16).load().whitening is None
    off = pretrain(
        settings_for(tmp_path, tiny_encoder, name="off", train={"never_worse": True}, encoder={"whiten": "off"})
    )
    assert "whitened" not in off
    one, other = (read_manifest(root / name)["stages"]["iteration_1/train"] for name in ("run", "off"))
    assert one["folder"] == other["folder"], "trained once for both"
