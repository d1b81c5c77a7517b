"""Outcome of a run: its encoder compared with the one it started from, in the log and in metrics.json.

What it began with is the encoder as it came and, where there is whitening, that encoder whitened: what a user can have
without training, so what training must beat. Validation chose the encoder; the test, where there are labels, did not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.loop.general_ability import sts_of
from infocse_ray.loop.run import Look, Run
from infocse_ray.retrieval.doubts import doubts, of_a_run
from infocse_ray.retrieval.examples import Texts, examples, moves
from infocse_ray.retrieval.questions import compare
from infocse_ray.retrieval.ranks import shown
from infocse_ray.retrieval.verdict import FEWEST, Verdict, told, verdict
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Metric, Settings
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage

_SAID, _KEPT = 3, 12
"""Questions that changed most: in the log, and in `moved.json`."""

_START, _WHITENED, _RESULT = "start", "whitened", "result"
_NAMES = {_START: "the encoder as it came", _WHITENED: "the encoder as it came, whitened"}


def look_before(run: Run, compares: bool = False) -> Run:
    """Score what the run starts from, and say what is doubtful about being judged so, or about whitening.

    Args:
        run: before anything is trained.
        compares: whether every encoder is tested with and without whitening; then it isn't left out.

    Returns:
        The run, with the scores of what it begins with; without whitening, where that takes away beyond luck and the
        settings leave it to the run: its start, too, is never worse than the encoder as it came.
    """
    looks = _looks(_began(run), "valid")
    metric = run.settings.validate.metric
    stages = run.evaluate(looks)
    for name, stage in stages.items():
        say(f"{_NAMES[name.split('/')[0]]}: validation {metric} {shown(_metrics(stage), metric)}")
    came, *whitened = stages.values()
    if whitened and _metrics(whitened[0])[metric] < _metrics(came)[metric]:
        lead = compare(whitened[0].folder, came.folder, metric)
        found = verdict(lead, False, metric, _metrics(came)[metric], _metrics(whitened[0])[metric])
        if found.label == "LOSS":
            leaves = not compares and _may_leave_out(run.settings)
            then = (
                "it is left out; a number as encoder.whiten keeps it"
                if leaves
                else "--encoder.whiten off leaves it out"
            )
            say(f"warning: whitening takes away: validation {found.scores()}; {then}")
            run = run.without_whitening() if leaves else run
    began = _metrics(came if run.start == run.came else whitened[0])
    if run.trains:
        valid = run.store.summary["documents"]["valid"]
        most = run.settings.validate.max_documents  # pyright: ignore
        advice = of_a_run("split" in run.inputs.source.columns, most is not None and most < valid)
        for line in doubts(began, metric, run.judged_on, advice):
            say(f"warning: {line}")
    return run._replace(began=began)


def _may_leave_out(settings: Settings) -> bool:
    """Whether the settings leave it to the run how, and whether, its encoders are whitened."""
    encoder, train = settings.encoder, settings.train
    return encoder.whiten == "auto" and encoder.dimensions is None and train.never_worse and not train.whitened


class Outcome(NamedTuple):
    """What `metrics.json` and the card say of the result."""

    results: dict[str, Any]
    """`start` and `whitened` (where there is whitening): their `validation` and `test` scores; `result`: the same of
    the run's; `verdict`; `sts` where a file of pairs is named."""
    stages: dict[str, Stage]
    """All that was looked at, by name."""

    def tests(self, name: str) -> dict[str, Any]:
        """What `metrics.json` says of the tests of an encoder: `test`, and `plain`, the same without its whitening."""
        results: dict[str, Any] = {}
        if (exported := self.stages.get(f"{name}/test")) is not None:
            results["test"] = _metrics(exported)
        if (plain := self.stages.get(f"{name}/test_plain")) is not None:
            results["plain"] = {"test": _metrics(plain)}
        return results


def outcome(run: Run, result: EncoderFolder, more: dict[str, Look], trainings: list[dict[str, Any]]) -> Outcome:
    """Score the result beside what the run began with, and say which is better.

    Args:
        run: whose training is done.
        result: what it exports.
        more: other looks to take, by name; workers are started once for all.
        trainings: what `metrics.json` says of each; validation chose among all that they validated.
    """
    encoders = {**_began(run), _RESULT: result}
    looks = _looks(encoders, "valid")
    if run.store.summary["labelled"]["test"]:
        looks |= _looks(encoders, "test")
    stages = run.evaluate(looks | more)
    results: dict[str, Any] = {}
    for name in encoders:
        scored = {"validation": "valid", "test": "test"}
        results[name] = {key: _metrics(stages[f"{name}/{s}"]) for key, s in scored.items() if f"{name}/{s}" in stages}
    over = _WHITENED if run.trains and run.start != run.came else _START
    returned = run.trains and result.fingerprint == run.start.fingerprint
    among = sum(map(_validated, trainings)) if run.trains else _powers(run)
    results["verdict"] = _judged(stages, over, returned, run.settings.validate.metric, max(1, among))
    say(f"verdict: {results['verdict']['line']}")
    judged = results["verdict"]["judged_on"]
    split, on = ("test", "counterpart") if judged == "test" else ("valid", run.judged_on)
    texts = Texts(run.store, run.inputs.tokenizer, split, on)
    _show_moves(run, stages[f"{_START}/{split}"].folder, stages[f"{_RESULT}/{split}"].folder, texts)
    if run.inputs.sts is not None:
        results["sts"] = sts_of(run, encoders)
        shown_sts = ", ".join(f"{name} {value:.4f}" for name, value in results["sts"].items())
        say(f"general ability (Spearman's rank correlation on {run.settings.validate.sts}): {shown_sts}")
    return Outcome(results, stages)


def _show_moves(run: Run, before: Storage, after: Storage, texts: Texts) -> None:
    """Say which questions changed most, and keep more of them, with their texts, in `moved.json`."""
    changed = examples(before, after, texts, count=_KEPT)
    if changed:
        say("what changed most, since the encoder as it came:")
        for one in changed[:_SAID]:
            say("\n".join(f"  {line}" for line in one.lines()))
    content = {
        "before": _NAMES[_START],
        "split": texts.split,
        "on": texts.on,
        "questions": moves(before, after)._asdict(),
        "moved": [one.content() for one in changed],
    }
    (run.folder / "moved.json").write_json(content)


def _began(run: Run) -> dict[str, EncoderFolder]:
    """The encoder as it came, and whitened where it was: by what the run has begun with, or left out."""
    whitened = run.left_out or run.start
    return {_START: run.came, **({_WHITENED: whitened} if whitened != run.came else {})}


def _looks(encoders: dict[str, EncoderFolder], split: str) -> dict[str, Look]:
    return {f"{name}/{split}": Look(encoder, split) for name, encoder in encoders.items()}


def _validated(training: dict[str, Any]) -> int:
    """How many encoders a training validated, but what it began with."""
    return len(training.get("history", [None])) - 1 + len(training.get("train", {}).get("between", []))


def _powers(run: Run) -> int:
    """Powers that validation chose the whitening from: of these the result is the best, where nothing is trained.

    Labels chose none. Where something is trained, what it is held against is whitened by the best power, too.
    """
    return 0 if run.whitening is None or run.judged_on == "counterpart" else len(run.whitening.get("scores", {}))


def _metrics(stage: Stage) -> dict[str, Any]:
    return (stage.summary or {})["metrics"]


def _judged(stages: dict[str, Stage], over: str, returned: bool, metric: Metric, among: int = 1) -> dict[str, Any]:
    """The verdict against the whitened start; against the encoder as it came, should the result be worse than that.

    Nor is a result that scores below the encoder as it came a WIN, however sure it is that the whitened start is worse.
    """
    verdicts = _verdicts(stages, over, returned, metric, among)
    if over == _START:
        return verdicts
    came = _verdicts(stages, _START, False, metric, among)
    if came["label"] == "LOSS":
        over_whitened, over_came = (one[one["judged_on"]]["difference"] for one in (verdicts, came))
        # Where it lost against the whitened start as well, training is to blame.
        if verdicts["label"] != "LOSS" and over_whitened > over_came:
            say("warning: the encoder as it came is better than whitened here; set encoder.whiten to off")
        return came
    if verdicts["label"] == "WIN" and came[came["judged_on"]]["difference"] < 0:
        say("warning: it is better than the start whitened, but the encoder as it came scores higher than both")
        return came
    return verdicts


def _verdicts(stages: dict[str, Stage], over: str, returned: bool, metric: Metric, among: int = 1) -> dict[str, Any]:
    """What `metrics.json` says: the verdict on the test, where there is one, that on validation, and a line of both.

    The test judges, for validation has chosen, `among` so many; validation, where the test asks too few documents to
    tell: then a lead has to be more than that of the best of so many by luck.
    """
    verdicts: dict[str, Verdict] = {}
    for split, said in (("test", "test"), ("valid", "validation")):
        if (theirs := stages.get(f"{over}/{split}")) is not None:
            ours = stages[f"{_RESULT}/{split}"]
            lead = compare(ours.folder, theirs.folder, metric)
            chosen = among if said == "validation" and not returned else 1
            scores = _metrics(theirs)[metric], _metrics(ours)[metric]
            verdicts[said] = verdict(lead, returned, metric, *scores, chosen)
    judged = next((said for said, one in verdicts.items() if one.lead.documents >= FEWEST), next(iter(verdicts)))
    parts = [f"{said} {one.scores()}" for said, one in verdicts.items()]
    line = f"{verdicts[judged].label}, against {_NAMES[over]}: {'; '.join(parts)}"
    return told(line, over, judged, verdicts)
