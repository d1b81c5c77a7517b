"""What a run shows while and after it works: TensorBoard's events, and metrics where Prometheus collects them."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from infocse_ray.loop.infocse import pretrain
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents, write_jsonl
from tests.ray.tiny_job import settings_for
from tests.unit.tracking.test_tensorboard import read_all

WANTED = ("documents", "sentences", "pairs", "tokens", "padding_share", "loss", "recall_at_5", "bad_rows")
COUNTED = {"bad_rows": 1.0, "documents": 60.0 + 60.0}
"""What the driver counts while it prepares and annotates, of 60 documents."""


def scraped(storage: Path) -> dict[tuple[str, str], float]:
    """Metrics of the run `seen` and of the corpus that it prepared, by name and labels, of all nodes."""
    found: dict[tuple[str, str], float] = {}
    stages = "|".join(corpus.name for corpus in storage.glob("corpora/*")) or "none"
    for node in ray.nodes():
        url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        for line in lines:
            match = re.match(r"ray_infocse_(\w+?)(?:_total)?\{(.*)\} (\S+)$", line)
            if match and re.search(rf'run="seen"|stage="({stages})"', match[2]):
                found[match[1], match[2]] = float(match[3])
    return found


@contextlib.contextmanager
def scraping(storage: Path) -> Iterator[dict[str, float]]:
    """As Prometheus does while the block runs: Ray forgets a gauge that wasn't set for half a minute."""
    found: dict[str, float] = {}
    series: dict[tuple[str, str], float] = {}  # a process that is gone by now is in an earlier scrape alone
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(1.0):
            with contextlib.suppress(OSError):  # a node that is beginning
                series.update(scraped(storage))
            found.update({n: sum(value for (name, _), value in series.items() if name == n) for n, _ in list(series)})

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield found
        end = time.monotonic() + 60
        while not _complete(found) and time.monotonic() < end:
            time.sleep(1)
    finally:
        done.set()
        thread.join()


def _complete(found: dict[str, float]) -> bool:
    """Whether every process has shown what it counted: each does so every 10 s, in its own time."""
    return set(WANTED) <= set(found) and all(found[name] >= value for name, value in COUNTED.items())


def test_a_run_is_seen(tmp_path: Path, tiny_encoder: Path, ray_cluster: None) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", [*make_documents(60), {"id": "lonely", "sentences": ["One."]}])
    sections = {
        "corpus": {"test_fraction": 0.0},
        "encoder": {"whiten": "off"},
        "train": {"max_steps": 6, "max_tokens": None},
        "validate": {"every": 3, "every_tokens": None},
        "loop": {"max_iterations": 1, "initialization": "none"},
    }
    with scraping(tmp_path / "runs") as found:
        metrics = pretrain(settings_for(tmp_path, tiny_encoder, "seen", **sections))

    events = read_all(Storage.open(str(tmp_path / "runs" / "seen")))
    history = metrics["iterations"][1]["history"]
    assert [step for step, _ in events["iteration_1"]["train/loss"]] == [1, 2, 3, 4, 5, 6]
    assert events["iteration_1"]["train/loss"][2] == (3, pytest.approx(history[1]["loss"], abs=1e-3))
    assert events["iteration_1"]["validation/recall@5"] == [
        (entry["step"], pytest.approx(entry["recall@5"], abs=1e-3)) for entry in history
    ]
    assert events["run"]["corpus/documents"] == [(0, 60.0)]
    assert events["run"]["corpus/bad_rows"] == [(0, 1.0)]
    pairs = metrics["iterations"][1]["annotations"]["pairs"]
    assert events["iterations"]["annotations/pairs"] == [(1, float(pairs))]
    assert {"annotations/seconds", "examples/seconds", "train/seconds"} <= set(events["iterations"])

    pytest.importorskip("aiohttp_cors", reason="without ray[default] no node answers Prometheus")
    assert set(WANTED) <= set(found)
    assert {name: found[name] for name in COUNTED} == COUNTED
