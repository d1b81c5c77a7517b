"""What a run and `infocse evaluate` ask of encoders is asked with documents read as their settings say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.loop import run as run_module
from infocse_ray.loop import scored
from infocse_ray.loop.run import Look, Run
from infocse_ray.settings import Settings
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.storage.folder import Storage


@pytest.mark.parametrize("reading", ["sentences", "both"])
def test_validation_and_test_of_a_run(reading: str, monkeypatch: pytest.MonkeyPatch):
    settings = Settings.model_validate(
        {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}, "validate": {"reading": reading}}
    )
    asked: list[Any] = []
    monkeypatch.setattr(run_module, "evaluate", lambda *given: asked.extend(given[3]) or [None] * len(given[3]))
    store = SimpleNamespace(summary={"labelled": {"valid": 9}})
    stages: Any = SimpleNamespace(root=None, run=Storage("r"), store=store, on="sentence", where={"train": None})
    nothing: Any = None
    run = Run(settings, nothing, nothing, stages, nothing, nothing, None, False, "i")._replace(
        manifest=SimpleNamespace(add=lambda *_: None)
    )  # pyright: ignore
    run.evaluate({split: Look(nothing, split) for split in ("valid", "test")})
    assert [(one.split, one.reading) for one in asked] == [("valid", reading), ("test", reading)]


@pytest.mark.parametrize("reading", ["sentences", "whole"])
def test_an_encoder_that_is_evaluated(reading: str, monkeypatch: pytest.MonkeyPatch):
    asked: list[Any] = []
    monkeypatch.setattr(scored, "evaluate", lambda *given: asked.extend(given[3]) or [None])
    monkeypatch.setattr(scored, "save_shared", lambda *_: None)
    settings = Evaluate.model_validate({"model": "m", "corpus": {"source": "a"}, "reading": reading})
    tokenizer = CorpusTokenizer("t")
    encoder: Any = SimpleNamespace(corpus_tokenizer=lambda: tokenizer)
    nothing: Any = None
    scored._score(settings, Storage("s"), {"model": encoder}, {tokenizer: nothing}, "counterpart", nothing, None)
    assert [one.reading for one in asked] == [reading]


@pytest.mark.parametrize("on", ["auto", "sentence", "halves", "readings"])
def test_a_reading_is_refused_where_sentences_ask(on: str):
    given = {"model": "m", "corpus": {"source": "a"}, "on": on}
    store: Any = SimpleNamespace(summary={"labelled": {"train": 0}, "documents": {"train": 9}})
    found = "sentence" if on == "auto" else on
    for reading in ({}, {"reading": "sentences"}):
        assert scored._asked(Evaluate.model_validate(given | reading), store) == found
    with pytest.raises(ValueError, match=rf"reading = whole: without labels \(on = {found}\) .* corpus\.counterpart"):
        scored._asked(Evaluate.model_validate(given | {"reading": "whole"}), store)


@pytest.mark.parametrize(("on", "said"), [("counterpart", True), ("sentence", False)])
def test_how_documents_were_read_is_said_where_they_were(on: Any, said: bool, capsys: pytest.CaptureFixture[str]):
    settings = Evaluate.model_validate({"model": "m", "corpus": {"source": "a"}})
    metrics = dict.fromkeys(("recall@5", "recall@10", "recall@20", "mrr"), 0.5) | {"queries": 9.0, "candidates": 9.0}
    one: Any = SimpleNamespace(name="m", spearman=None, metrics=metrics)
    scored._show_scores(settings, [one], on)
    read = ", documents read both whole and by their sentences" if said else ""
    assert f"9 questions of all documents ({on}) among 9 candidates{read}, with 95 %" in capsys.readouterr().out
