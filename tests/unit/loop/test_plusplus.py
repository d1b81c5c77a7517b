"""InfoCSE++'s rounds on scores that follow a script: what starts from what, when it ends, whose encoder comes back."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from infocse_ray.loop import iterate, plusplus
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.settings import Settings
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage

HERE = Storage("here")


class Rounds(NamedTuple):
    """As much of `IterationStages` as is looked at."""

    anything: bool = False
    on: str = "sentence"
    root: Any = HERE

    def from_anything(self) -> Rounds:
        return self._replace(anything=True)


class Script:
    """Stands in for training and evaluation; encoders are names, their validation scores are given."""

    def __init__(self, scores: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
        self.scores = scores
        self.done: list[str] = []
        self.exported: Any = None
        self.from_anything: dict[str, bool] = {}
        """Whether a training was let off being better than its start, by what it trained."""
        self.on: dict[str, str] = {}
        """What it was validated on, likewise."""
        self.judged: list[float] = []
        """What trainings validated that the outcome was told of, but for what each began with."""
        self.labels: dict[str, Any] = {}
        """What a training without labels had of them all the same, by what it trained."""
        run = SimpleNamespace(
            inputs=SimpleNamespace(method=None, initialization=None),
            iteration_stages=Rounds(),
            manifest=SimpleNamespace(add=lambda *_: None),
            store=SimpleNamespace(summary={"labelled": {"test": 9}}),
            folder=HERE,
            start="start",
            whitening=None,
            began=self.entry("start"),
            tests=lambda name, encoder, also_plain: {name: encoder},
            finish=self.finish,
        )
        inputs = SimpleNamespace(identity=lambda _: "identity", source=None)
        labels = Stage("labels", "f", HERE, {"labelled": {}, "leaks": {}, "last": 7})

        @contextlib.contextmanager
        def open_run(job: str, settings: Settings, *_: Any, **__: Any) -> Any:
            run.settings = settings
            run.inputs.initialization = None if settings.loop.initialization == "none" else "conpono"
            if settings.train.method != "none":
                run.inputs.method = SimpleNamespace(annotated=True)
            yield run

        monkeypatch.setattr(plusplus, "check", lambda _: inputs)
        monkeypatch.setattr(plusplus, "check_labelled", lambda *_: None)
        monkeypatch.setattr(plusplus, "finished", lambda *_: None)
        monkeypatch.setattr(plusplus, "open_run", open_run)
        monkeypatch.setattr(plusplus, "draw_labels", lambda _: labels)
        monkeypatch.setattr(plusplus, "drawn_examples", lambda _, sample: SimpleNamespace(source=sample))
        monkeypatch.setattr(plusplus, "fine_tune", self.fine_tune)
        monkeypatch.setattr(plusplus, "look_before", lambda run, _: run)
        monkeypatch.setattr(plusplus, "outcome", self.outcome)
        monkeypatch.setattr(iterate, "train_iteration", self.train_iteration)

    def entry(self, encoder: str) -> dict[str, float]:
        return {"step": 0, "recall@5": self.scores[encoder], "queries": 100}

    def train_iteration(
        self,
        run: Any,
        rounds: Any,
        method: Any,
        encoder: str,
        budget: Any,
        t: int,
        labels: Any = None,
        scored: Any = None,
    ) -> Any:
        trained = f"i{t}"
        assert scored is None or scored == {"recall@5": self.scores[encoder], "queries": 100}, "of what it starts from"
        self.labels[trained] = labels
        self.done.append(f"{encoder} > {trained}")
        self.from_anything[trained] = rounds.anything
        self.on[trained] = rounds.on
        history = [self.entry(encoder), self.entry(trained) | {"step": 1}]
        summary = {"best_step": 1, "history": history, "chosen": history[1], "seconds": 0.0}
        return {"train": Stage("train", trained, HERE, summary)}, trained

    def fine_tune(self, run: Any, sample: LabelSample, source: Any, encoder: str, number: int) -> Any:
        assert sample == source == LabelSample(42, 7)
        tuned = f"f{number}"
        self.done.append(f"{encoder} > {tuned}")
        return {"history": [self.entry(encoder), self.entry(tuned)], "validation": self.entry(tuned)}, tuned

    def outcome(self, run: Any, result: str, looks: dict[str, str], trainings: list[dict[str, Any]]) -> Any:
        self.done.append(f"test: {' '.join(looks.values())}")
        self.judged = [entry["recall@5"] for training in trainings for entry in training.get("history", ())[1:]]
        return SimpleNamespace(results={}, tests=lambda name: {"test": {"of": looks[name]}})

    def finish(self, encoder: str, card: Any, report: dict[str, Any]) -> dict[str, Any]:
        self.exported = encoder
        return report


def settings(**sections: Any) -> Settings:
    content = {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}}
    content |= {"loop": {"initialization": "none", "max_iterations": 3}, "validate": {"metric": "recall@5"}}
    return Settings.model_validate(content | sections)


def test_rounds_end_when_the_fine_tuned_score_stops_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    zero_shot = {"start": 0.1, "i1": 0.3, "i2": 0.2, "i3": 0.25, "i4": 0.35, "i5": 0.35, "i6": 0.05, "i7": 0.04}
    script = Script(zero_shot | {"f1": 0.5, "f2": 0.6, "f3": 0.6, "f4": 0.9}, monkeypatch)
    metrics = plusplus.plusplus(settings(plusplus={"max_rounds": 9}))
    assert script.done == [
        "start > i1",
        "i1 > i2",  # no growth
        "i1 > f1",
        "f1 > i3",  # worse than the fine-tuned, as training without labels may be
        "i3 > i4",
        "i4 > i5",  # a tie is no growth
        "i4 > f2",
        "f2 > i6",
        "i6 > i7",
        "i6 > f3",  # what was trained, though all it started from was better
        "test: i1 f1 i4 f2 i6 f3",
    ]
    assert (metrics["best_round"], script.exported) == (2, "f2")
    assert [one["round"] for one in metrics["rounds"]] == [1, 2, 3]
    assert [[e["iteration"] for e in one["iterations"]] for one in metrics["rounds"]] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [one["zero_shot"]["iteration"] for one in metrics["rounds"]] == [1, 4, 6]
    assert [one["zero_shot"]["test"]["of"] for one in metrics["rounds"]] == ["i1", "i4", "i6"]
    assert [one["fine_tuned"]["test"]["of"] for one in metrics["rounds"]] == ["f1", "f2", "f3"]
    tried = ["i1", "i2", "f1", "i3", "i4", "i5", "f2", "i6", "i7", "f3"]
    assert script.judged == [script.scores[name] for name in tried], "validation has chosen among all of them"
    later = {"i3", "i4", "i5", "i6", "i7"}
    assert {name for name, let_off in script.from_anything.items() if let_off} == later


def test_rounds_are_as_many_as_asked_for_and_only_the_first_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({"start": 0.1, "i0": 0.15, "i1": 0.2, "i2": 0.3, "f1": 0.4, "f2": 0.5}, monkeypatch)
    loop = {"max_iterations": 1, "initialization": "conpono"}
    metrics = plusplus.plusplus(settings(plusplus={"max_rounds": 2}, loop=loop))
    assert script.done == ["start > i0", "i0 > i1", "i1 > f1", "f1 > i2", "i2 > f2", "test: i1 f1 i2 f2"]
    assert (metrics["best_round"], script.exported) == (2, "f2")


@pytest.mark.parametrize(("fall_back", "tuned"), [(True, "start"), (False, "i2")])
def test_what_training_made_worse_is_fine_tuned_if_that_is_asked_for(
    fall_back: bool, tuned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script({"start": 0.5, "i1": 0.2, "i2": 0.3, "i3": 0.1, "f1": 0.6}, monkeypatch)
    plusplus.plusplus(settings(plusplus={"max_rounds": 1}), fall_back)
    trained = ["start > i1"] if fall_back else ["start > i1", "i1 > i2", "i2 > i3"]
    assert script.done == [*trained, f"{tuned} > f1", f"test: {tuned} f1"]


def test_fine_tuning_alone_trains_nothing_without_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({"start": 0.4, "f1": 0.5}, monkeypatch)
    metrics = plusplus.finetune(settings(plusplus={"max_rounds": 5}))
    assert script.done == ["start > f1", "test: start f1"]
    assert (metrics["best_round"], script.exported) == (1, "f1")
    [one] = metrics["rounds"]
    assert one["zero_shot"]["validation"]["recall@5"] == 0.4


def test_labels_are_mixed_into_every_round_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"start": 0.1, "i1": 0.2, "i2": 0.3, "f1": 0.4, "f2": 0.5}
    asked: dict[str, Any] = {"loop": {"max_iterations": 1}, "labels": {"train_size": 9}}
    script = Script(scores, monkeypatch)
    plusplus.plusplus(settings(plusplus={"max_rounds": 2}, **asked))
    assert script.labels == {"i1": None, "i2": None}
    assert set(script.on.values()) == {"sentence"}
    script = Script(scores, monkeypatch)
    monkeypatch.setattr(plusplus, "mix_of", lambda run, sample, examples: (run.settings.plusplus.label_share, sample))
    plusplus.plusplus(settings(plusplus={"max_rounds": 2, "label_share": 0.25}, **asked))
    assert script.labels == dict.fromkeys(("i1", "i2"), (0.25, LabelSample(42, 7)))
    assert set(script.on.values()) == {"counterpart"}, "what trains on labels is validated on them"


@pytest.mark.parametrize(("never_worse", "exported", "round_"), [(True, "start", 0), (False, "f1", 1)])
def test_what_it_began_with_comes_back_where_no_round_is_better(
    never_worse: bool, exported: str, round_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training without labels, validated without labels, may have made worse what fine-tuning can't make good again."""
    script = Script({"start": 0.4, "i1": 0.45, "i2": 0.1, "f1": 0.3}, monkeypatch)
    metrics = plusplus.plusplus(settings(plusplus={"max_rounds": 1}, train={"never_worse": never_worse}))
    assert (metrics["best_round"], script.exported) == (round_, exported)


def test_no_round_is_named_best_where_each_returned_its_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict is START RETURNED then, and what came back is no fine-tuned encoder."""
    script = Script({"start": 0.4}, monkeypatch)
    started = {"history": [script.entry("start")], "validation": script.entry("start")}
    monkeypatch.setattr(plusplus, "fine_tune", lambda run, sample, source, encoder, number: (started, encoder))
    metrics = plusplus.finetune(settings())
    assert (metrics["best_round"], script.exported) == (0, "start")
    assert "the best encoder is what it began with" in capsys.readouterr().out


def test_fine_tuning_alone_mixes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({"start": 0.4, "f1": 0.3}, monkeypatch)
    plusplus.finetune(settings(plusplus={"label_share": 0.25}))
    assert script.done == ["start > f1", "test: start f1"]


def test_plusplus_without_a_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^train.method = none: .*infocse finetune"):
        plusplus.plusplus(settings(train={"method": "none"}))
