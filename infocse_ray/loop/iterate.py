"""The outer loop (Alg. 1) of one run: annotate with the encoder there is, train on the pairs, validate, repeat.

1. f is the starting encoder, trained with another method first if there is one: the iteration before the first.
2. Iteration t annotates every document with f (Eq. 4) and trains f on the pairs (Eq. 5).
3. The loop ends when an iteration's validation score doesn't grow.
A method that needs no annotation trains once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.loop.iteration_stages import IterationStages, iteration_report
from infocse_ray.loop.mix import Mix
from infocse_ray.loop.run import Run
from infocse_ray.methods.method import Method
from infocse_ray.retrieval.ranks import scores_in, shown
from infocse_ray.runtime.progress import say
from infocse_ray.sampling.shards import Shards
from infocse_ray.stages.stage import Stage
from infocse_ray.train.schedule import Budget

AfterIteration = Callable[[list[dict[str, Any]]], None]
"""Takes what `metrics.json` will say of the iterations so far."""


class Iterated(NamedTuple):
    """What the loop made."""

    encoders: list[EncoderFolder]
    """As it starts (or is initialised), then after each iteration."""
    iterations: list[dict[str, Any]]
    """What `metrics.json` says of each of these; without `validation` where nothing was trained."""
    best: int
    """Which of these has the best validation score."""


def iterate(
    run: Run,
    encoder: EncoderFolder,
    before: int = 0,
    may_stay: bool = True,
    after_iteration: AfterIteration | None = None,
    labels: Mix | None = None,
) -> Iterated:
    """Train without labels until validation stops growing.

    Args:
        run: under way; its method trains.
        encoder: to start from.
        before: how many iterations went before; 0: none, and the encoder is initialised first, if that is asked for.
        may_stay: whether what the first iteration starts from may be the best.
        after_iteration: called with `iterations` so far, after each that another may follow.
        labels: to train on beside what the method makes of annotations; None: none.
    """
    settings = run.settings
    iteration_stages = run.iteration_stages if may_stay else run.iteration_stages.from_anything()
    if labels is not None:  # what has labels among its pairs is validated on labels, as fine-tuning is
        iteration_stages = iteration_stages._replace(on="counterpart")
    metric, train, loop, patience = settings.validate.metric, settings.train, settings.loop, settings.validate.patience
    encoders = [encoder]
    iterations: list[dict[str, Any]] = [{"iteration": before}]
    if run.inputs.initialization is not None and not before:
        say(f"iteration 0: {settings.loop.initialization}")
        budget = Budget(
            loop.initialization_steps or train.max_steps,
            loop.initialization_tokens or train.max_tokens,
            loop.initialization_patience or patience,
        )
        stages, encoders[0] = train_iteration(run, iteration_stages, run.inputs.initialization, encoder, budget, 0)
        iterations[0] = iteration_report(0, stages)
    best = 0
    for number in range(1, _most(run) + 1):
        t = before + number
        assert run.inputs.method is not None
        say(f"iteration {t}")
        budget = Budget(train.max_steps, train.max_tokens, patience)
        scored = scores_in(iterations[-1]["validation"]) if "validation" in iterations[-1] else None
        stages, trained = train_iteration(
            run, iteration_stages, run.inputs.method, encoders[-1], budget, t, labels, scored=scored
        )
        encoders.append(trained)
        iterations.append(iteration_report(t, stages))
        iterations[0].setdefault("validation", iterations[number]["history"][0])
        old, new = (iterations[i]["validation"] for i in (best, number))
        if number == 1 and not may_stay:
            say(f"  {metric}: {shown(new, metric)}, it began with {shown(old, metric)}")
            best = 1
            continue
        grows = new[metric] > old[metric]
        say(f"  {metric}: {shown(new, metric)}, {'better than' if grows else 'no growth over'} {old[metric]:.4f}")
        if grows:
            best = number
        elif loop.early_stop:
            break
        if after_iteration is not None and number < _most(run):
            after_iteration(iterations)
    return Iterated(encoders, iterations, best)


def _most(run: Run) -> int:
    """How often to train: what annotates nothing has nothing to repeat."""
    if run.inputs.method is None:
        return 0
    return run.settings.loop.max_iterations if run.inputs.method.annotated else 1


def train_iteration(
    run: Run,
    iteration_stages: IterationStages,
    method: Method,
    encoder: EncoderFolder,
    budget: Budget,
    t: int,
    labels: Mix | None = None,
    source: Shards | None = None,
    scored: dict[str, Any] | None = None,
) -> tuple[dict[str, Stage], EncoderFolder]:
    """One round's finished stages and the encoder that comes out of it.

    Args:
        run: under way.
        iteration_stages: of the round's phase.
        method: that trains.
        encoder: to start from.
        budget: of the training.
        t: the round's number.
        labels: to train on beside what the method makes of annotations; None: none.
        source: the documents that a method which annotates nothing makes examples of; None: the corpus'.
        scored: what validation said of the encoder, if that is known, so that it isn't asked again.
    """
    stages: dict[str, Stage] = {}

    def done(name: str, stage: Stage) -> Stage:
        stages[name] = stage
        run.manifest.add(f"{iteration_stages.name(t)}/{name}", stage)
        return stage

    source = source or iteration_stages.documents
    if method.annotated:
        if (graph := iteration_stages.graph(encoder, t)) is not None:
            done("graph", graph)
        annotated = done("annotations", iteration_stages.annotate(encoder, t, graph))
        source = iteration_stages.annotated(annotated, t)
    counted, examples = iteration_stages.count(source, method, t)
    done("examples", counted)
    if labels is not None:
        method = labels.among(method, iteration_stages.settings)
    mixed_in = None if labels is None else labels.examples
    trained = done("train", iteration_stages.train(examples, method, encoder, budget, t, mixed_in, scored))
    summary = trained.summary or {}
    chosen = summary["chosen"]
    share = f"; {chosen.get('share', 0):g} of the way there is better"
    best = f"best at step {summary['best_step']:,}"
    came = {
        "start": "no step better than its start, which it returns",
        "trained": best,
        "interpolated": best + share,
    }[chosen["kind"]]
    say(f"  trained: {summary['steps']:,} steps, {summary['tokens']:,} tokens, {came} ({trained.seconds:.0f} s)")
    return stages, iteration_stages.trained_encoder(trained, encoder)
