"""InfoCSE (Alg. 1): adapt an encoder to a corpus without labels.

Every step is a stage: killed anywhere, the same command goes on.
"""

from __future__ import annotations

import functools
from typing import Any

from infocse_ray.loop.card import model_card
from infocse_ray.loop.inputs import check
from infocse_ray.loop.iterate import AfterIteration, iterate
from infocse_ray.loop.run import Run, finished, open_run
from infocse_ray.progress import say
from infocse_ray.repair import repairing
from infocse_ray.settings import Settings

_JOB = "pretrain"


@repairing
def pretrain(settings: Settings, after_iteration: AfterIteration | None = None, at_once: int = 1) -> dict[str, Any]:
    """Adapt an encoder to a corpus; the result is in `<storage>/<name>/model`.

    Args:
        settings: of the run.
        after_iteration: called after each iteration that another may follow, with what `metrics.json` will say of
            those so far; what it raises ends the run, which the same call goes on with.
        at_once: how many such runs share the cluster.

    Returns:
        The content of `metrics.json`: per iteration the validation and test metrics, counts and seconds per
        stage (iteration 0 is the encoder as it starts or as it is initialised); `best_iteration`; the settings and
        versions.

    Raises:
        ValueError: a setting doesn't fit the corpus, the encoder or the cluster; nothing was trained.
        TrainingStopped: training can't go on; what was finished is kept.
    """
    inputs = check(settings)
    identity = inputs.identity(settings)
    if (metrics := finished(_JOB, settings, identity)) is not None:
        return metrics
    with open_run(_JOB, settings, inputs, identity, at_once=at_once) as run:
        return _pretrain(run, after_iteration)


def _pretrain(run: Run, after_iteration: AfterIteration | None) -> dict[str, Any]:
    settings = run.settings
    encoders, iterations, best = iterate(run, run.start, after_iteration=after_iteration)
    if "validation" not in iterations[0]:  # nothing was trained
        [validated] = run.evaluate(encoders, "valid")
        run.manifest.add("iteration_0/valid", validated)
        iterations[0]["validation"] = (validated.summary or {})["metrics"]
    _warn_if_worse(iterations, best, settings.validate.metric)
    if run.store.summary["labelled"]["test"]:
        for entry, stage in zip(iterations, run.evaluate(encoders, "test"), strict=True):
            run.manifest.add(f"iteration_{entry['iteration']}/test", stage)
            entry["test"] = (stage.summary or {})["metrics"]
    found = {"best_iteration": best, "iterations": iterations}
    metrics = run.finish(encoders[best], functools.partial(model_card, settings), found)
    say(
        f"the best encoder is that of iteration {best}; it is in {run.folder / 'model'}, its figures in "
        f"{run.folder / 'metrics.json'}"
    )
    return metrics


def _warn_if_worse(iterations: list[dict[str, Any]], best: int, metric: str) -> None:
    """Say so when an initialisation did harm that nothing after it made good."""
    start = iterations[0].get("history", [iterations[0]["validation"]])[0][metric]
    if (found := iterations[best]["validation"][metric]) < start:
        say(
            f"warning: the best encoder's {metric} on validation is {found:.4f}, that of the encoder as it came "
            f"{start:.4f}; set loop.initialization to none, or lower train.learning_rate"
        )
