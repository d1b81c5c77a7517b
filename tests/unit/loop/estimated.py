"""A run whose work is estimated, of a corpus that is told by its counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from infocse_ray.loop.estimate import Work
from infocse_ray.loop.run import Run
from infocse_ray.loop.speed import Speed
from infocse_ray.runtime.placement import Placement
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage

SPEED = Speed(tokens_per_second=1000.0, start_seconds=5.0)
WORK = Work(
    annotations=2,
    trainings=2,
    annotated=60_000.0,
    step=4_000.0,
    look=2_000.0,
    looks=5,
    between=40_000.0,
    tested=10_000.0,
    passes=8.0,
    cached=1.25,
    beside=2.0,
)


def run_of(folder: Storage | None = None, on: str = "counterpart", **sections: Any) -> Run:
    """Of settings by section, with defaults for what is needed."""
    needed = {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}}
    sections["train"] = {"max_steps": 10**6 if "minutes" in sections else 2000} | sections.get("train", {})
    sections["loop"] = {"max_iterations": 3} | sections.get("loop", {})
    settings = Settings.model_validate(needed | sections)
    counts = {
        "tokens": 100_000,
        "sentences": 10_000,
        "documents": {"train": 800, "valid": 100, "test": 100},
        "labelled": {"valid": 100, "test": 0},
    }
    store: Any = SimpleNamespace(summary=counts, documents=lambda splits: sum(counts["documents"][s] for s in splits))
    where = {"annotate": Placement(4, False, 1), "train": Placement(1, False, 4)}
    root = folder or Storage("nowhere")
    rounds = SimpleNamespace(
        root=root,
        run=root / "r",
        store=store,
        splits=["train", "valid"],
        where=where,
        whitening=None,
        settings=settings,
        on=on,
    )
    rounds.share = lambda _: None
    rounds._replace = lambda settings: SimpleNamespace(**(vars(rounds) | {"settings": settings}))
    inputs: Any = SimpleNamespace(
        method=SimpleNamespace(annotated=settings.train.method == "idc", distillation=settings.train.distillation),
        initialization=None,
        encoder=SimpleNamespace(max_length=32, max_seq_length=60, base_dimension=32),
    )
    manifest: Any = SimpleNamespace(add=lambda name, stage: None)
    nothing: Any = None
    return Run(settings, inputs, manifest, rounds, nothing, nothing, None, False, "i", SPEED)  # pyright: ignore
