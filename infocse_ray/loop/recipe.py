"""`recipe: auto`: which training a run gets, by short ones from its start that validation scores.

1. Each of `RECIPES` trains `loop.pilot_steps`, as the first iteration would; they are stages of the run, named pilot_*.
   One that the encoder or the corpus doesn't allow is left out, such as pairs where no document has any, and so is one
   whose loss becomes non-finite. What isn't of a recipe's making ends the run: memory or storage that runs out, workers
   that are lost.
2. The one with the best validation score trains the run, from the start again; the default training, where that isn't
   worse beyond luck. If none beats the start, the run trains nothing and returns its start.
"""

from __future__ import annotations

from typing import Any

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.errors import NoExamples, NonFinite
from infocse_ray.loop.inputs import spec_of
from infocse_ray.loop.iterate import train_iteration
from infocse_ray.loop.run import Look, Run
from infocse_ray.methods.recipes import DEFAULT, NOTHING, RECIPES, Recipe
from infocse_ray.methods.registry import method_of
from infocse_ray.retrieval.questions import compare
from infocse_ray.retrieval.ranks import shown
from infocse_ray.retrieval.verdict import label_of
from infocse_ray.runtime.progress import say
from infocse_ray.train.schedule import Budget


def choose(run: Run) -> tuple[Run, dict[str, Any]]:
    """Choose how the run is trained, where that is asked for.

    Args:
        run: about to train.

    Returns:
        The run with the settings and the method that were chosen, and what `metrics.json` says of that; the run as it
        is and {} where nothing is to be chosen. `chosen` is the name of a recipe, or None if none beats the start;
        `start` has the start's validation metrics; `pilots` have by name their best `validation` metrics, `steps`,
        `seconds` per stage and the `history` of validations, or why they were `left_out`.

    Raises:
        ValueError: no recipe suits the encoder and the corpus, or can be trained with the run's settings.
        TrainingStopped: a pilot can't go on for another reason than its loss; the same command goes on with it.
    """
    if run.settings.recipe is None:
        return run, {}
    metric = run.settings.validate.metric
    start: dict[str, Any] = {}
    pilots: dict[str, dict[str, Any]] = {}
    encoders: dict[str, EncoderFolder] = {}
    for name, recipe in RECIPES.items():
        say(f"pilot: {name} (train.method {recipe.method}, train.distillation {recipe.distillation:g})")
        try:
            history, pilots[name], encoders[name] = _pilot(run, name, recipe)
        except _LeftOut as error:
            pilots[name] = {"left_out": str(error)}
            say(f"  left out: {error}")
            continue
        start = history[0]
    scored = {name: pilot["validation"] for name, pilot in pilots.items() if "validation" in pilot}
    if not scored:
        raise ValueError(f"recipe = auto: nothing can be trained: {next(iter(pilots.values()))['left_out']}")
    best = max(scored, key=lambda name: scored[name][metric])
    default = scored.get(DEFAULT, start)[metric]
    if scored[best][metric] > default > start[metric] and _level_with_default(run, best, encoders):
        say(f"  {best} isn't better than {DEFAULT} beyond luck, which is the default")
        best = DEFAULT
    chosen = best if scored[best][metric] > start[metric] else None
    each = ", ".join(f"{name} {shown(one, metric)}" for name, one in scored.items())
    say(f"recipe: {chosen or 'no training'}, for validation {metric}: start {shown(start, metric)}, {each}")
    if chosen is None:
        say("  no pilot beats the start, which is the result; to train all the same, leave recipe out")
    recipe = NOTHING if chosen is None else RECIPES[chosen]
    return _with(run, recipe), {"chosen": chosen, "start": start, "pilots": pilots}


def _level_with_default(run: Run, best: str, encoders: dict[str, EncoderFolder]) -> bool:
    """Whether another pilot is the best by no more than the luck of the validation documents, as a verdict has it."""
    looks = {f"pilot_{name}/valid": Look(encoders[name], "valid") for name in (best, DEFAULT)}
    ours, default = (stage.folder for stage in run.evaluate(looks).values())
    return label_of(compare(ours, default, run.settings.validate.metric)) != "WIN"


class _LeftOut(Exception):
    """A recipe doesn't suit the encoder or the corpus, or its loss became non-finite."""


def _with(run: Run, recipe: Recipe) -> Run:
    """The run trained so."""
    settings = recipe.of(run.settings)
    method = method_of(recipe.method, settings, spec_of(settings, run.inputs.encoder))
    stages = run.iteration_stages._replace(settings=settings)
    inputs = run.inputs._replace(method=method)
    return run._replace(settings=settings, inputs=inputs, iteration_stages=stages, piloted=True)


def _pilot(run: Run, name: str, recipe: Recipe) -> tuple[list[dict[str, Any]], dict[str, Any], EncoderFolder]:
    """Every validation of a pilot, the start's first, what `metrics.json` says of it, and its best encoder."""
    try:
        piloted = _with(run, recipe)
    except ValueError as error:  # the encoder has not what the method asks for
        raise _LeftOut(str(error)) from error
    settings = piloted.settings
    only_scored = settings.model_copy(update={"train": settings.train.model_copy(update={"interpolation": []})})
    stages = piloted.iteration_stages._replace(settings=only_scored, phase=f"pilot_{name}")
    steps = min(settings.loop.pilot_steps, settings.train.max_steps)
    budget = Budget(steps, settings.train.max_tokens, steps)
    assert piloted.inputs.method is not None
    try:
        done, encoder = train_iteration(piloted, stages, piloted.inputs.method, run.start, budget, 1)
    except (NoExamples, NonFinite) as error:
        raise _LeftOut(str(error)) from error
    summary = done["train"].summary or {}
    history = summary["history"]
    best = max(history[1:], key=lambda entry: entry[settings.validate.metric])
    seconds = {kind: stage.seconds for kind, stage in done.items()}
    said = {"validation": best, "steps": summary["steps"], "seconds": seconds, "history": history}
    return history, said, encoder
