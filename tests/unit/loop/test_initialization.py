"""Which encoder the first annotation is made with, where another method is trained before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.loop.iterate import Iterated, iterate
from infocse_ray.loop.iteration_stages import IterationStages
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.train.choice import WeightsChoice

HERE = Storage("here")
CAME = EncoderFolder(HERE / "model", "came", 16)
BEFORE = 0.5
"""What it scores."""


class Script:
    """Stages whose trainings come to given scores; what these give back is chosen and found as in a run."""

    def __init__(self, after: dict[int, float], monkeypatch: pytest.MonkeyPatch) -> None:
        self.after = after
        """The score of each iteration's best step."""
        self.annotated_by: list[EncoderFolder] = []
        self.trained: list[tuple[EncoderFolder, float | None]] = []
        """What each training began with, and the score that it was told of that."""
        monkeypatch.setattr(IterationStages, "graph", lambda *_: None)
        monkeypatch.setattr(IterationStages, "annotate", self.annotate)
        monkeypatch.setattr(IterationStages, "count", lambda *_: (Stage("examples", "e", HERE, {"seconds": 0.0}), None))
        monkeypatch.setattr(IterationStages, "train", self.train)

    def annotate(self, encoder: EncoderFolder, t: int, graph: Stage | None) -> Stage:
        self.annotated_by.append(encoder)
        return Stage("annotate", "a", HERE, {"seconds": 0.0})

    def train(
        self, examples: None, method: Any, encoder: EncoderFolder, budget: Any, t: int, labels: None, scored: Any
    ) -> Stage:
        self.trained.append((encoder, scored and scored["recall@5"]))
        scores = [scored["recall@5"] if scored else BEFORE, self.after[t]]
        history = [{"step": step, "recall@5": score, "queries": 9} for step, score in enumerate(scores)]
        chosen = WeightsChoice("recall@5", history, 1, start_counts=True).chosen
        summary = {"history": history, "chosen": chosen, "best_step": 1, "steps": 1, "tokens": 9, "seconds": 0.0}
        return Stage("train", f"t{t}", HERE / f"trained_{t}", summary)

    def run(self) -> Iterated:
        content = {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}}
        content |= {"validate": {"metric": "recall@5"}, "loop": {"initialization": "conpono", "max_iterations": 1}}
        settings = Settings.model_validate(content)
        store = TokenStore(HERE, "f", {"shards": 1, "lanes": 1})
        run: Any = SimpleNamespace(
            settings=settings,
            iteration_stages=IterationStages(HERE, HERE, settings, store, ["train"], "halves", {}, None, None),
            inputs=SimpleNamespace(
                initialization=SimpleNamespace(annotated=False), method=SimpleNamespace(annotated=True)
            ),
            manifest=SimpleNamespace(add=lambda *_: None),
        )
        return iterate(run, CAME)


def test_an_initialisation_that_did_harm_annotates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({0: 0.4, 1: 0.6}, monkeypatch)
    found = script.run()
    assert script.annotated_by == [CAME]
    assert script.trained == [(CAME, None), (CAME, BEFORE)]
    assert [entry["validation"]["recall@5"] for entry in found.iterations] == [BEFORE, 0.6]


def test_an_initialisation_that_did_good_annotates(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({0: 0.55, 1: 0.5}, monkeypatch)
    found = script.run()
    [annotator] = script.annotated_by
    assert str(annotator.folder) == str(HERE / "trained_0" / "models" / "step-00000001")
    assert script.trained == [(CAME, None), (annotator, 0.55)]
    assert (found.best, found.encoders) == (0, [annotator, annotator]), "the iteration returns its start"
