"""`minutes`: training sized so that the run takes about so long on this cluster, and the estimate before the work.

1. How fast the cluster embeds and trains (see `pace`) gives the tokens of each training (see `estimate`). However much
   time there is, `train.max_steps` and `train.max_tokens` end it, too.
2. Every iteration annotates and validates anew. Where that would leave too little of the time for training, fewer
   documents validate, and then there are fewer iterations: one that trains gives more than several that hardly do. At
   last no weights between the start's and the trained ones are tried, each of which is validated like a step.
3. That is a stage of its own, named by the run's inputs and `minutes`: a run that goes on, here or on another cluster,
   finds what was settled, and so the same trainings.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from infocse_ray.loop.estimate import Estimate, asked_documents, work_of
from infocse_ray.loop.pace import measured
from infocse_ray.loop.run import Run
from infocse_ray.loop.speed import Speed
from infocse_ray.runtime.progress import duration, say
from infocse_ray.settings import fingerprint
from infocse_ray.stages.stage import Stage, run_stage

_FORMAT = 2

_ENOUGH = 0.4
"""Of the time, for training: with less there are fewer iterations."""

_LITTLE = 0.1
"""Of the time, for training: with less a warning says what the rest goes into."""

_OVER = 1.1
"""Times the time, what takes longer doesn't fit."""

_AMPLE = 1.5
"""Times the estimate of what all steps encode, there is time for them whatever special tokens and prompts they have."""

_COARSE = 0.98
"""Times the tokens that don't fit, are tried next; what fits is found between the two."""

_FEWEST_DOCUMENTS = 1_000
"""Validation documents that are asked all the same: they tell an MRR to about 0.03."""


def sized(run: Run, begun: float, compared: bool = False) -> Run:
    """Say how long the run takes, and with `minutes` size its trainings first.

    Args:
        run: about to work.
        begun: when it was, by `time.monotonic()`: what went before counts.
        compared: whether its validation is compared with other runs': then as many documents ask as in these.

    Returns:
        The run; where `minutes` is set, with what Sizes has settled.
    """
    if not run.trains:
        return run
    settings, speed = run.settings, run.speed
    if settings.minutes is not None:
        settled = _settled(run, begun, compared)
        run.manifest.add("minutes", settled)
        summary = settled.summary or {}
        speed = Speed(*summary["speed"])
        sizes = Sizes(**{name: summary[name] for name in Sizes._fields if name in summary})
        say(sizes.line(run))
        run = _with(sizes.of(run), minutes=None)  # its settings say what was settled: with them it isn't settled again
    if speed is not None:
        work, train = work_of(run), run.settings.train
        steps = train.max_steps * work.step
        say(work.estimate(speed, min(float(train.max_tokens or steps), steps)).line())
    return run


def _too_little(run: Run, sizes: Sizes, speed: Speed, seconds: float, rest: float) -> str:
    """What to say where the time is too little, all of it or what is left for training; else nothing.

    Args:
        run: which hasn't the sizes.
        sizes: settled.
        speed: of the cluster.
        seconds: that the run may take.
        rest: of these, from now on.
    """
    tokens = sizes.tokens(run)
    least = work_of(sizes.of(run)).estimate(speed, tokens)
    over = least.seconds > _OVER * rest
    wanted = min(_tokens_of_steps(run), run.settings.train.max_tokens or math.inf)
    if not over and (tokens >= wanted or least.training >= _LITTLE * rest):
        return ""
    annotates = least.annotating > least.validating
    by_number = annotates and run.settings.annotate.share != "auto"
    lower = "annotate.share" if by_number else "" if annotates else "validate.max_documents"
    how = "with one step in each training the run still takes about " if over else "training is little of "
    takes = f"{how}{duration(least.seconds + seconds - rest)}, of which annotating is {duration(least.annotating)}"
    return f"warning: minutes = {run.settings.minutes:g}: {takes}; raise it{f', or lower {lower}' if lower else ''}"


class Sizes(NamedTuple):
    """What is settled."""

    max_tokens: int | None
    """Of each training; None: as the settings say, for there is time for all steps."""
    max_iterations: int
    max_documents: int
    """That validation asks."""
    max_steps: int | None = None
    """Of each training, whatever sentences it reads; None: an earlier version settled none."""
    interpolates: bool = True
    """Whether `train.interpolation` is as it was asked for; else it is left out."""

    def of(self, run: Run) -> Run:
        """The run with these."""
        loop, tokens = run.settings.loop, self.max_tokens or run.settings.train.max_tokens
        first = loop.initialization_tokens and min(loop.initialization_tokens, tokens or math.inf)
        # A step has a token at least: without steps tokens alone end a training.
        steps = min(one for one in (tokens, self.max_steps) if one is not None)
        between = run.settings.train.interpolation if self.interpolates else []
        sections = {
            "train": {"max_tokens": tokens, "max_steps": steps, "interpolation": between},
            "loop": {"max_iterations": self.max_iterations, "initialization_tokens": first},
            "validate": {"max_documents": self.max_documents},
        }
        changed = {name: getattr(run.settings, name).model_copy(update=section) for name, section in sections.items()}
        return _with(run, **changed)

    def tokens(self, run: Run) -> int:
        """Of each training, by the estimate; `run` hasn't these."""
        by_steps = None if self.max_steps is None else _tokens_of_steps(run)
        return min(one for one in (self.max_tokens, by_steps, run.settings.train.max_tokens) if one is not None)

    def line(self, run: Run) -> str:
        """For people, about a run that has them; `run` hasn't."""
        settings, step, tokens = run.settings, work_of(run).step, self.tokens(run)
        asked = {"loop.max_iterations": settings.loop.max_iterations, "validate.max_documents": asked_documents(run)}
        settled = dict(zip(asked, (self.max_iterations, self.max_documents), strict=True))
        less = [f"{name} = {settled[name]:,}, not {most:,}" for name, most in asked.items() if settled[name] < most]
        if not self.interpolates:
            less.append("train.interpolation = []")
        why = f"; {' and '.join(less)}, lest little of the time be training" if less else ""
        if tokens >= _tokens_of_steps(run):
            why += "; train.max_steps ends it sooner than the time does, and more steps may take away"
        steps = f"{tokens / step:,.0f}"
        many = "step" if steps == "1" else "steps"
        return f"minutes = {settings.minutes:g}: {tokens:,} tokens ({steps} {many}) in each training{why}"


def _tokens_of_steps(run: Run) -> int:
    """That `train.max_steps` encode in a training, by the estimate: special tokens and prompts are left out of it."""
    return max(1, int(run.settings.train.max_steps * work_of(run).step))


def _with(run: Run, **settings: Any) -> Run:
    """The run with other settings."""
    changed = run.settings.model_copy(update=settings)
    return run._replace(settings=changed, iteration_stages=run.iteration_stages._replace(settings=changed))


def _settled(run: Run, begun: float, compared: bool) -> Stage:
    """The stage whose summary has the Sizes by name, and the `speed` that gave them."""
    settings = run.settings
    assert settings.minutes is not None
    seconds = 60 * settings.minutes

    def measure(_: Stage) -> dict[str, Any]:
        speed = measured(run)
        rest = seconds - (time.monotonic() - begun)
        sizes = _sizes(run, speed, rest, compared)
        if warning := _too_little(run, sizes, speed, seconds, rest):
            say(warning)
        return {"speed": list(speed), **sizes._asdict()}

    identity = fingerprint("minutes", _FORMAT, run.identity, settings.minutes, compared)
    return run_stage(run.iteration_stages.root, run.folder / "minutes", "minutes", identity, measure)


def _sizes(run: Run, speed: Speed, seconds: float, compared: bool = False) -> Sizes:
    """What takes so many seconds: as much as was asked for beside training, or what leaves it enough of them."""
    found, asked, of_steps = None, run.settings.train.max_tokens or math.inf, _tokens_of_steps(run)
    ample = math.ceil(_AMPLE * of_steps)
    for iterations, documents, interpolates in _lower_and_lower(run, compared):
        found = Sizes(None, iterations, documents, run.settings.train.max_steps, interpolates)
        tokens = _tokens_in(seconds, run, found, speed, int(min(asked, ample)))
        estimate = _estimate(run, found, speed, tokens)
        found = found._replace(max_tokens=None if tokens >= ample else tokens)
        enough = tokens >= min(asked, of_steps) or estimate.training >= _ENOUGH * seconds
        if enough and estimate.seconds <= _OVER * seconds:  # one step in each of several trainings may be too much
            break
    assert found is not None
    return found


def _tokens_in(seconds: float, run: Run, sizes: Sizes, speed: Speed, most: int) -> int:
    """Of each training, so that the run takes so long: a step's at least, and most at most.

    It is searched for: the more training reads the more is annotated, by halves and whole shards (`annotate.enough`),
    and a longer one may take less, which embeds its texts once for `train.distillation`. So not the first limit counts.
    """
    if _estimate(run, sizes, speed, most).seconds <= seconds:
        return most
    least = there = min(most, max(1, round(work_of(run).step)))
    above = most
    while (lower := int(_COARSE * above)) > least:
        if _estimate(run, sizes, speed, lower).seconds <= seconds:
            there = lower
            break
        above = lower
    while above - there > max(1, there // 1000):
        tokens = (there + above) // 2
        if _estimate(run, sizes, speed, tokens).seconds <= seconds:
            there = tokens
        else:
            above = tokens
    return there


def _estimate(run: Run, sizes: Sizes, speed: Speed, tokens: int) -> Estimate:
    """Of the run with these sizes, where its trainings have so many tokens."""
    return work_of(sizes._replace(max_tokens=tokens).of(run)).estimate(speed, tokens)


def _lower_and_lower(run: Run, compared: bool) -> Iterator[tuple[int, int, bool]]:
    """Iterations, validation documents at most, and whether weights between two are tried: less and less of them.

    First as asked for, then fewer documents, then fewer iterations, then no such weights, too.
    """
    iterations, documents = run.settings.loop.max_iterations, asked_documents(run)
    yield iterations, run.settings.validate.max_documents, True
    while documents > _FEWEST_DOCUMENTS and not compared:
        documents = max(_FEWEST_DOCUMENTS, documents // 2)
        yield iterations, documents, True
    if work_of(run).annotations:
        while iterations > 1:
            iterations -= 1
            yield iterations, documents, True
    if run.settings.train.interpolation:
        yield iterations, documents, False
