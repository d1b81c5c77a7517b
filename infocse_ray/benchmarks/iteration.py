"""A whole run as a user waits for it: where its seconds go, and how many of them pass while workers start."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from infocse_ray.benchmarks.corpora import MAX_LENGTH, read_documents
from infocse_ray.benchmarks.measure import in_fresh_process, local_ray
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.loop.infocse import pretrain
from infocse_ray.page.record import Record
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage

NAME = "run"
_FIRST = ("corpus", "start", "whitened")


def run_once(work: str, arguments: argparse.Namespace) -> tuple[float, float, list[tuple[str, float, float | None]]]:
    """A run in a Ray of its own: its seconds, those until Ray was there, and of each stage its seconds and start."""
    settings = Settings.model_validate(
        {
            "name": NAME,
            "storage": f"{work}/runs",
            "encoder": {"model": arguments.model, "max_length": MAX_LENGTH},
            "corpus": {"source": f"{work}/corpus.jsonl", "valid_fraction": 0.15, "test_fraction": 0.15},
            "train": {"max_steps": arguments.steps, "batch_size": arguments.batch_size},
            "validate": {"every": max(1, arguments.steps // 2), "patience": arguments.steps},
            "loop": {"max_iterations": arguments.iterations, "early_stop": False},
        }
    )
    begun = time.perf_counter()
    with local_ray():
        connected = time.perf_counter() - begun
        pretrain(settings)
        whole = time.perf_counter() - begun
    stages = Record.read(Storage.open(settings.storage), NAME).stages
    seen = {one.fingerprint: (name, one.seconds, one.starting) for name, one in reversed(stages.items())}
    return whole, connected, sorted(seen.values(), key=lambda row: (not row[0].startswith(_FIRST), row[0]))


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    documents = read_documents(arguments)
    with tempfile.TemporaryDirectory() as work:
        with (Path(work) / "corpus.jsonl").open("w", encoding="utf-8") as lines:
            for number, sentences in enumerate(documents):
                lines.write(json.dumps({"id": str(number), "sentences": sentences}) + "\n")
        whole, connected, stages = in_fresh_process(run_once, work, arguments)
    rows = [
        (name, f"{seconds:.1f}", "" if starting is None else f"{starting:.1f}", f"{100 * seconds / whole:.1f} %")
        for name, seconds, starting in stages
    ]
    between = whole - connected - sum(seconds for _, seconds, _ in stages)
    starts = sum(starting or 0.0 for *_, starting in stages)
    rows += [
        ("starting Ray", f"{connected:.1f}", f"{connected:.1f}", f"{100 * connected / whole:.1f} %"),
        ("between stages", f"{between:.1f}", "", f"{100 * between / whole:.1f} %"),
        ("the run", f"{whole:.1f}", f"{starts + connected:.1f}", "100 %"),
    ]
    table(("stage", "seconds", "of these starting", "share"), rows)
    notes(
        f"{len(documents):,} documents, {sum(map(len, documents)):,} sentences; {arguments.iterations} iteration(s) of "
        f"at most {arguments.steps} steps of {arguments.batch_size} pairs. Starting: until a stage's workers began or "
        "had done something for the first time.",
    )
