"""`ray job submit` against a Ray that `ray start --head` started, with its token."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import make_documents, write_jsonl
from tests.job_options import options_for
from tests.own_ray import RAY, own_ray

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with own_ray(tmp_path_factory.mktemp("home"), "--num-cpus=2") as environment:
        yield environment


def submit(environment: dict[str, str], *entrypoint: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RAY, "job", "submit", "--working-dir", ".", "--", *entrypoint],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )


def test_a_submitted_run_ends_with_its_result_in_storage(
    environment: dict[str, str], tmp_path: Path, tiny_encoder: Path
) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", make_documents(60))
    few = {"train__max_steps": "4", "validate__every": "4", "annotate__num_workers": "1", "encoder__whiten": "off"}
    options = options_for(tmp_path, "submitted", tiny_encoder, corpus__test_fraction="0", **few)

    done = submit(environment, "python", "jobs/pretrain.py", *options)

    assert done.returncode == 0, done.stdout
    assert "the best encoder is that of iteration" in done.stdout, "the driver's output is followed"
    run = tmp_path / "submitted" / "submitted"
    assert (run / "model" / "model.safetensors").exists()
    metrics = json.loads((run / "metrics.json").read_text())
    assert [entry["step"] for entry in metrics["iterations"][1]["history"]] == [0, 4]


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"RAY_AUTH_MODE": "disabled"}, "Unauthorized"), ({"RAY_AUTH_TOKEN": "guessed"}, "Forbidden")],
    ids=["no token", "another token"],
)
def test_submitting_without_the_token_is_refused(
    environment: dict[str, str], change: dict[str, str], reason: str, tmp_path: Path
) -> None:
    done = submit(environment | change, "touch", str(tmp_path / "it-ran"))

    assert done.returncode != 0
    assert reason in done.stdout, done.stdout
    assert not (tmp_path / "it-ran").exists()
