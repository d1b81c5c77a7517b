"""`minutes`: training sized so that the run takes about so long on this cluster, and the estimate before the work.

1. How fast the cluster embeds and trains (see `pace`) gives the tokens of each training (see `estimate`).
2. Every iteration annotates and validates anew. Where that would leave too little of the time for training, there are
   fewer iterations: one that trains gives more than several that hardly do.
3. That is a stage of its own, named by the run's inputs and `minutes`: a run that goes on, here or on another cluster,
   finds what was settled, and so the same trainings.
"""

from __future__ import annotations

import time
from typing import Any

from infocse_ray.loop.estimate import Work, work_of
from infocse_ray.loop.pace import measured
from infocse_ray.loop.run import Run
from infocse_ray.loop.speed import Speed
from infocse_ray.runtime.progress import duration, say
from infocse_ray.settings import fingerprint
from infocse_ray.stages.stage import Stage, run_stage

_FORMAT = 2

_ENOUGH = 0.4
"""Of the time, for training: with less there are fewer iterations."""


def sized(run: Run, begun: float) -> Run:
    """Say how long the run takes, and with `minutes` size its trainings first.

    Args:
        run: about to work.
        begun: when it was, by `time.monotonic()`: what went before counts.

    Returns:
        The run, with `train.max_tokens` and `loop.max_iterations` settled where `minutes` is set.
    """
    if not run.trains:
        return run
    settings, speed = run.settings, run.speed
    if settings.minutes is not None:
        settled = _settled(run, begun)
        run.manifest.add("minutes", settled)
        summary = settled.summary or {}
        speed, tokens = Speed(*summary["speed"]), summary["max_tokens"]
        # A step has a token at least: tokens alone end a training.
        train = settings.train.model_copy(update={"max_tokens": tokens, "max_steps": tokens})
        settings = settings.model_copy(update={"train": train})
        asked, most = settings.loop.max_iterations, summary["max_iterations"]
        run = _of_iterations(run._replace(settings=settings), most)
        fewer = f", and loop.max_iterations = {most}, not {asked}, lest little of the time be training"
        steps = tokens / work_of(run).step
        said = f"minutes = {settings.minutes:g}: {tokens:,} tokens ({steps:,.0f} steps) in each training"
        say(said + (fewer if most < asked else ""))
    if speed is not None:
        work, train = work_of(run), run.settings.train
        steps = train.max_steps * work.step  # far more than max_tokens where these are settled
        say(work.estimate(speed, min(float(train.max_tokens or steps), steps)).line())
    return run


def _of_iterations(run: Run, most: int) -> Run:
    """The run as it is with so many iterations at most."""
    loop = run.settings.loop.model_copy(update={"max_iterations": most})
    settings = run.settings.model_copy(update={"loop": loop})
    return run._replace(settings=settings, iteration_stages=run.iteration_stages._replace(settings=settings))


def _settled(run: Run, begun: float) -> Stage:
    """The stage whose summary has `max_tokens` of each training, `max_iterations`, and the `speed` that gave both."""
    settings = run.settings
    assert settings.minutes is not None
    seconds = 60 * settings.minutes

    def measure(_: Stage) -> dict[str, Any]:
        speed = measured(run)
        rest = seconds - (time.monotonic() - begun)
        most, work, tokens = _sizes(run, speed, rest)
        if (least := work.estimate(speed, tokens).seconds) > 1.1 * rest:
            say(
                f"warning: minutes = {settings.minutes:g}: with one step in each training the run still takes about "
                f"{duration(least + seconds - rest)}; raise it, lower validate.max_documents, or set "
                "train.interpolation to []"
            )
        return {"speed": list(speed), "max_tokens": tokens, "max_iterations": most}

    identity = fingerprint("minutes", _FORMAT, run.identity, settings.minutes)
    return run_stage(run.iteration_stages.root, run.folder / "minutes", "minutes", identity, measure)


def _sizes(run: Run, speed: Speed, seconds: float) -> tuple[int, Work, int]:
    """Iterations at most, the run's work with these, and the tokens of each training that take so many seconds."""
    most, work = run.settings.loop.max_iterations, work_of(run)
    fewest = 1 if work.annotations else most
    while work.estimate(speed, tokens := work.tokens(speed, seconds)).training < _ENOUGH * seconds and most > fewest:
        most -= 1
        work = work_of(_of_iterations(run, most))
    return most, work, tokens
