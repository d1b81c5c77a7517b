"""InfoCSE++ (section 3.3): training without labels and fine-tuning in turns, after SimCLRv2 (Chen et al. 2020).

1. A round trains without labels until that converges (Alg. 1), then fine-tunes what came of it.
2. The next round's training without labels is initialised with the fine-tuned encoder (Alg. 1, line 2).
3. Rounds end when the fine-tuned validation score doesn't grow; the best fine-tuned encoder comes back, or what the run
   began with, should that be better: training without labels may be validated without labels.
With `plusplus.label_share` the training without labels has the same labels among its pairs.
Plain fine-tuning is one round that trains nothing without labels. The test split is looked at after the last round.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.loop.card import few_shot_card
from infocse_ray.loop.drawn_documents import drawn_examples
from infocse_ray.loop.fine_tuning import check_labelled, check_labels, draw_labels, drawn, fine_tune
from infocse_ray.loop.identity import few_shot_identity, with_plain
from infocse_ray.loop.inputs import check
from infocse_ray.loop.iterate import iterate
from infocse_ray.loop.mix import check_mix, mix_of
from infocse_ray.loop.outcome import look_before, outcome
from infocse_ray.loop.run import Look, Run, finished, open_run
from infocse_ray.retrieval.ranks import shown
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Settings
from infocse_ray.stages.repair import repairing
from infocse_ray.stages.stage import Stage


def finetune(settings: Settings, also_plain: bool = False) -> dict[str, Any]:
    """Fine-tune `encoder.model` as it is; the result is in `<storage>/<name>/model`.

    Returns and raises what `plusplus` does; there is one round, whose zero-shot encoder is the one that came.
    """
    train = settings.train.model_copy(update={"method": "none"})
    loop = settings.loop.model_copy(update={"initialization": "none"})
    alone = {"train": train, "loop": loop, "plusplus": settings.plusplus.model_copy(update={"label_share": 0.0})}
    return few_shot("finetune", settings.model_copy(update=alone), 1, also_plain=also_plain)


def plusplus(settings: Settings, fall_back: bool = True, also_plain: bool = False) -> dict[str, Any]:
    """Train without labels and fine-tune in turns; the result is in `<storage>/<name>/model`.

    Args:
        settings: of the run.
        fall_back: whether the first round may fine-tune the encoder as it is (or as it is initialised) where training
            without labels made that worse. A later round never does: such training takes from a fine-tuned encoder's
            score before another fine-tuning gives more back.
        also_plain: also test encoders without their whitening.

    Returns:
        The content of `metrics.json`: of each round the `iterations` as `pretrain` reports them, `zero_shot`, which of
        them was fine-tuned, with its validation and test metrics, and `fine_tuned`, those after it; `best_round`, 0
        if none is better than what it began with; `labels`, their counts; the settings and versions.

    Raises:
        ValueError: a setting doesn't fit the corpus, its labels, the encoder or the cluster; nothing was trained.
        TrainingStopped: training can't go on; what was finished is kept.
    """
    if settings.train.method == "none":
        raise ValueError(
            "train.method = none: there is no training without labels to take turns with; name a method, or use "
            "`infocse finetune`"
        )
    return few_shot("plusplus", settings, settings.plusplus.max_rounds, fall_back, also_plain)


@repairing
def few_shot(
    job: str, settings: Settings, most: int, fall_back: bool = True, also_plain: bool = False
) -> dict[str, Any]:
    """At most so many rounds; see `plusplus`."""
    if settings.minutes is not None:
        raise ValueError(
            f"minutes = {settings.minutes:g}: is for `infocse pretrain`; set finetune.epochs, plusplus.max_rounds and "
            "train.max_tokens"
        )
    if settings.recipe is not None:
        raise ValueError(
            f"recipe = {settings.recipe}: is for `infocse pretrain`, whose metrics.json says what it chose; name that "
            "with train.method and train.distillation"
        )
    inputs = check(settings)
    check_labelled(inputs.source)
    check_mix(settings)
    identity = with_plain(few_shot_identity(settings, inputs.identity(settings), most, fall_back), also_plain)
    if (metrics := finished(job, settings, identity)) is not None:
        return metrics
    with open_run(job, settings, inputs, identity, functools.partial(check_labels, settings), fine_tunes=True) as run:
        return _few_shot(run, most, fall_back, also_plain)


class _Round(NamedTuple):
    """A round, and the encoders before and after its fine-tuning."""

    entry: dict[str, Any]
    """Of `rounds` in `metrics.json`."""
    zero_shot: EncoderFolder
    fine_tuned: EncoderFolder

    def encoders(self) -> Iterator[tuple[str, dict[str, Any], EncoderFolder]]:
        """What may be tested: its name, what `entry` says of it, and the encoder."""
        for name, encoder in (("zero_shot", self.zero_shot), ("fine_tuned", self.fine_tuned)):
            yield f"round_{self.entry['round']}/{name}", self.entry[name], encoder


def _few_shot(run: Run, most: int, fall_back: bool, also_plain: bool) -> dict[str, Any]:
    run = look_before(run, also_plain)
    labels = draw_labels(run)
    rounds, best = _take_turns(run, labels, most, fall_back)
    entries = [one.entry for one in rounds]
    result, best_round = rounds[best].fine_tuned, best + 1
    if fall_back and run.settings.train.never_worse and _is_worse(run, entries[best]["fine_tuned"]["validation"]):
        result, best_round = run.start, 0
    elif result == run.start:  # no step of any training in it was better
        best_round = 0
    looks: dict[str, Look] = {}
    if run.store.summary["labelled"]["test"]:
        for name, _, encoder in _encoders(rounds):
            looks |= run.tests(name, encoder, also_plain)
    trainings = [training for entry in entries for training in (*entry["iterations"], entry["fine_tuned"])]
    came = outcome(run, result, looks, trainings)
    for name, said, _ in _encoders(rounds):
        said |= came.tests(name)
    summary = labels.summary or {}
    report = {
        "best_round": best_round,
        "labels": {key: summary[key] for key in ("labelled", "leaks")} | {"train_size": run.settings.labels.train_size},
        "rounds": entries,
        **came.results,
    }
    whitening = entries[best]["fine_tuned"].get("whitening") if best_round else run.whitening
    if whitening is not None:
        report["whitening"] = whitening
    metrics = run.finish(result, functools.partial(few_shot_card, run.settings), report)
    best_one = "what it began with"
    if best_round:
        no_better = rounds[best].fine_tuned == rounds[best].zero_shot
        best_one = f"that of round {best_round}, {'which fine-tuning made no better' if no_better else 'fine-tuned'}"
    say(
        f"the best encoder is {best_one}; it is in {run.folder / 'model'}, its figures in {run.folder / 'metrics.json'}"
    )
    return metrics


def _take_turns(run: Run, labels: Stage, most: int, fall_back: bool) -> tuple[list[_Round], int]:
    """The rounds until one gives nothing more, and the place of the best."""
    sample = drawn(run.settings, labels)
    examples = drawn_examples(run, sample)
    mix = mix_of(run, sample, examples)
    source = None if examples is None else examples.source
    rounds: list[_Round] = []
    encoder, iterations, best = run.start, 0, 0
    for number in range(1, most + 1):
        if most > 1:
            say(f"round {number} of at most {most}")
        made = iterate(run, encoder, iterations, may_stay=fall_back and number == 1, labels=mix)
        unlabelled = made.encoders[made.best]
        fine_tuned, encoder = fine_tune(run, sample, source, unlabelled, number)
        chosen = made.iterations[made.best]
        # Before its first step fine-tuning looked at what the iterations made, on counterparts as it does itself.
        before = fine_tuned["history"][0]
        chosen.setdefault("validation", before)  # nothing was trained
        entry = {
            "round": number,
            "iterations": made.iterations[1:] if iterations else made.iterations,
            "zero_shot": {"iteration": chosen["iteration"], "validation": before},
            "fine_tuned": fine_tuned,
        }
        rounds.append(_Round(entry, unlabelled, encoder))
        iterations = made.iterations[-1]["iteration"]
        if number > 1 and not _grows(run, rounds, best):
            break
        best = number - 1
    return rounds, best


def _encoders(rounds: list[_Round]) -> Iterator[tuple[str, dict[str, Any], EncoderFolder]]:
    """Those of all rounds."""
    return (one for each in rounds for one in each.encoders())


def _grows(run: Run, rounds: list[_Round], best: int) -> bool:
    """Whether the last round's fine-tuned score is better than that of the best before."""
    metric = run.settings.validate.metric
    before, now = (rounds[i].entry["fine_tuned"]["validation"] for i in (best, -1))
    grows = now[metric] > before[metric]
    say(
        f"round {rounds[-1].entry['round']}: fine-tuned {metric} {shown(now, metric)}, "
        f"{'better than' if grows else 'no growth over'} {before[metric]:.4f}"
    )
    return grows


def _is_worse(run: Run, made: dict[str, Any]) -> bool:
    """Whether what was made validates worse than what the run began with."""
    metric, began = run.settings.validate.metric, run.began
    assert began is not None
    if worse := made[metric] < began[metric]:
        say(f"warning: no round is better than what it began with: {metric} {shown(began, metric)}; it is returned")
    return worse
