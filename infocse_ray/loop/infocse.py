"""InfoCSE (Alg. 1): adapt an encoder to a corpus without labels.

Every step is a stage: killed anywhere, the same command goes on.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from infocse_ray.corpus.store import TokenStore
from infocse_ray.loop.card import model_card
from infocse_ray.loop.general_ability import sts_of
from infocse_ray.loop.identity import with_plain
from infocse_ray.loop.inputs import check
from infocse_ray.loop.iterate import AfterIteration, iterate
from infocse_ray.loop.minutes import sized
from infocse_ray.loop.outcome import look_before, outcome
from infocse_ray.loop.recipe import choose
from infocse_ray.loop.run import Look, Run, finished, open_run
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Settings
from infocse_ray.stages.repair import repairing

_JOB = "pretrain"


@repairing
def pretrain(
    settings: Settings,
    after_iteration: AfterIteration | None = None,
    at_once: int = 1,
    also_plain: bool = False,
    tested: bool = False,
) -> dict[str, Any]:
    """Adapt an encoder to a corpus; the result is in `<storage>/<name>/model`.

    Args:
        settings: of the run.
        after_iteration: called after each iteration that another may follow, with what `metrics.json` will say of
            those so far; what it raises ends the run, which the same call goes on with.
        at_once: how many such runs share the cluster.
        also_plain: also test every encoder without its whitening.
        tested: whether a corpus without anything to test on is refused, before anything is trained.

    Returns:
        The content of `metrics.json`: per iteration the validation and test metrics (with `also_plain`, `plain` has
        those without whitening), its `whitening`, `sts` where a file of pairs is
        named, counts and seconds per stage (iteration 0 is the encoder as training
        starts from it, or as it is initialised); `best_iteration`; `start`, `whitened`, `result`, `verdict` and `sts`
        (see `Outcome`); `recipe`, where one was chosen (see `choose`); the settings, as settled, and versions.

    Raises:
        ValueError: a setting doesn't fit the corpus, the encoder or the cluster; nothing was trained.
        TrainingStopped: training can't go on; what was finished is kept.
    """
    begun = time.monotonic()
    inputs = check(settings)
    identity = with_plain(inputs.identity(settings), also_plain)
    if (metrics := finished(_JOB, settings, identity)) is not None:
        return metrics
    with open_run(_JOB, settings, inputs, identity, _check_test if tested else None, at_once=at_once) as run:
        # Whoever is told of iterations compares them with other runs'.
        return _pretrain(sized(run, begun, compared=after_iteration is not None), after_iteration, also_plain)


def _check_test(store: TokenStore) -> None:
    if not store.summary["labelled"]["test"]:
        raise ValueError("no test document has a counterpart; mark some as test, or raise corpus.test_fraction")


def _pretrain(run: Run, after_iteration: AfterIteration | None, also_plain: bool) -> dict[str, Any]:
    run = look_before(run, also_plain)
    run, recipe = choose(run)
    settings = run.settings
    encoders, iterations, best = iterate(run, run.start, after_iteration=after_iteration)
    looks: dict[str, Look] = {}
    if run.store.summary["labelled"]["test"]:
        for entry, encoder in zip(iterations, encoders, strict=True):
            looks |= run.tests(f"iteration_{entry['iteration']}", encoder, also_plain)
    # Among pilots validation has chosen, too.
    came = outcome(run, encoders[best], looks, [*iterations, *recipe.get("pilots", {}).values()])
    iterations[0].setdefault("validation", came.results["result"]["validation"])  # nothing was trained
    if run.whitening is not None:
        iterations[0].setdefault("whitening", run.whitening)
    for entry in iterations:
        entry |= came.tests(f"iteration_{entry['iteration']}")
    if run.inputs.sts is not None:
        named = {
            f"iteration_{entry['iteration']}": encoder for entry, encoder in zip(iterations, encoders, strict=True)
        }
        for entry, spearman in zip(iterations, sts_of(run, named).values(), strict=True):
            entry["sts"] = spearman
    results = {"best_iteration": best, "iterations": iterations, **came.results}
    if recipe:
        results["recipe"] = recipe
    if "whitening" in iterations[best]:
        results["whitening"] = iterations[best]["whitening"]
    metrics = run.finish(encoders[best], functools.partial(model_card, settings), results)
    say(
        f"the best encoder is that of iteration {best}; it is in {run.folder / 'model'}, its figures in "
        f"{run.folder / 'metrics.json'}"
    )
    return metrics
