"""Run a function on a group of Ray Train workers, or where one of them would be, and the train stage made of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ray.exceptions import RayError
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2.api.exceptions import TrainingFailedError, WorkerGroupError

from infocse_ray.errors import NonFinite, TrainingStopped, WorkersLost
from infocse_ray.runtime.failures import cause_of, one_line, process_lost, storage_failure
from infocse_ray.runtime.interrupts import run_interruptible
from infocse_ray.runtime.left_places import free_left_places
from infocse_ray.runtime.placement import Placement, await_places, watched
from infocse_ray.runtime.progress import Board, say
from infocse_ray.runtime.tasks import in_one_task
from infocse_ray.storage.checksums import read_checked
from infocse_ray.storage.folder import Storage
from infocse_ray.train.checkpoints import CHECKPOINTS, RAYS_RECORD
from infocse_ray.train.loop import BEGUN, Training, train_alone, train_worker
from infocse_ray.train.restore import drop_unreadable


def run_workers(
    work: Callable[[Any], None],
    argument: Any,
    placement: Placement,
    folder: Storage,
    name: str,
    max_failures: int,
    title: str,
    asked: Board | None = None,
) -> None:
    """Call `work(argument)` on every worker of a torch process group (gloo on CPUs, nccl on GPUs).

    Args:
        work: runs to its end on every worker, or resumes from `ray.train.get_checkpoint()`.
        argument: what it gets; sent by Ray.
        placement: how many workers, and what each has.
        folder: where Ray Train keeps its checkpoints.
        name: of the Ray Train run; the same folder and name resume it.
        max_failures: restarts after workers died, and as many after a process of Ray Train's own did.
        title: of the stage, for people.
        asked: the board where `work` looks whether it is to stop; None: it doesn't look.

    Raises:
        TrainingStopped: the workers failed more often than that.
        Interrupted: a signal came; the same folder and name go on from the last checkpoint.
        NoSpace, StorageUnavailable: that is why they failed.
    """
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    for left in reversed(range(max_failures + 1)):
        # Also GPU actors of the stage before, which may linger, are gone by then.
        await_places(placement, title)
        trainer = TorchTrainer(
            # Not as train_loop_config, which Ray shows on its dashboard: settings may hold credentials.
            lambda: work(argument),
            scaling_config=ScalingConfig(
                num_workers=placement.workers if placement.fewest is None else (placement.fewest, placement.workers),
                use_gpu=placement.use_gpu,
                resources_per_worker=placement.bundle,
            ),
            run_config=RunConfig(
                name=name,
                storage_path=folder.path,
                storage_filesystem=folder.filesystem,
                failure_config=FailureConfig(max_failures=max_failures),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )
        try:
            with watched(placement, title, placement.fewest or placement.workers):
                run_interruptible(trainer.fit, asked)
            return
        except (TrainingFailedError, RayError) as error:
            # Ray Train replaces workers that died. Where a process of its own beside them dies, such as its controller,
            # it gives up; and where a node's memory runs out Ray ends several processes at once, whichever they are.
            if isinstance(error, WorkerGroupError) or not process_lost(error):
                raise _why(error, folder, name) from error
            free_left_places()  # also for whatever this job does next
            if not left:
                raise _why(error, folder, name) from error
            say(f"{title}: {one_line(error)}; beginning again from the last checkpoint")


def run_one_worker(
    work: Callable[[Any], None], argument: Any, placement: Placement, folder: Storage, title: str
) -> None:
    """Call `work(argument)` where one worker of `placement` would be, without a group and its checkpoints.

    A task is there in a second or two, or at once where an earlier one's process is idle; a group of Ray Train takes
    its controller's start, its worker's and the group's.

    Args:
        work: runs to its end, or once more from the beginning after its worker died.
        argument: what it gets; sent by Ray.
        placement: what the worker has.
        folder: what errors of storage are about.
        title: of the stage, for people.

    Raises:
        TrainingStopped: the worker failed again, or the work did.
        Interrupted: a signal came.
        NoSpace, StorageUnavailable: that is why it failed.
    """
    try:
        in_one_task(work, argument, where=placement, title=title, retries=1)
    except RayError as error:
        raise _why(error, folder, title) from error


def _why(error: BaseException, folder: Storage, name: str) -> Exception:
    """What to raise for workers that failed."""
    if (failure := storage_failure(error, folder)) is not None:
        return failure
    what = f"{name}: the workers failed: {one_line(error).rstrip('.')}"
    if process_lost(error) and isinstance(cause_of(error), str):  # else it was one's error that ended the others
        return WorkersLost(f"{what}; what is finished is kept, and the same command goes on")
    return TrainingStopped(what)


def train(
    training: Training, placement: Placement, title: str, points: Callable[[Any], None] | None = None
) -> dict[str, Any]:
    """Train on a method's examples until validation stops growing.

    Args:
        training: what to train.
        placement: on which workers.
        title: of the stage, for people.
        points: gets what curves are made of (see `stages.metrics`); None: nobody does.

    Returns:
        The stage's summary: `chosen`, the validation of what comes back, with `kind`: `start`, nothing trained was
        better; `trained`, the encoder of `best_step`, in `models/step-...`; `interpolated`, one between these two, in
        `models/interpolated`. Also `best` score and `best_step` of what was trained, `steps`, `tokens` encoded,
        `history`, one entry a validation, `between`, those of interpolations, and `resumed_at`, the steps that
        training went on from after a crash.

    Raises:
        NonFinite: the loss became so.
        TrainingStopped: memory ran out, or workers failed too often.
    """
    result = training.folder / "result.json"
    if result.exists() and "error" in read_checked(result):
        # Of a driver that ended before it told: settings that name no result may have changed since.
        result.delete()
    if not result.exists():
        drop_unreadable(training.folder / CHECKPOINTS)
        steps, tokens, _ = training.budget
        unit, total = ("steps", steps) if tokens is None else ("tokens", tokens)
        with Board(title, unit, total, points) as board:
            _run(training._replace(board=board.handle), placement, title, board)
    outcome = read_checked(result)
    if "error" in outcome:
        result.delete()
        raise (NonFinite if outcome.get("non_finite") else TrainingStopped)(outcome["error"])
    # Of no use once the result is there; two, each with Adam's moments, are six times an encoder's size.
    (training.folder / CHECKPOINTS).delete()
    (training.folder / BEGUN).delete()
    return {
        "steps": outcome["step"],
        "tokens": outcome["tokens"],
        "best": outcome["stopping"]["best"],
        "best_step": outcome["stopping"]["best_step"],
        "history": outcome["history"],
        "chosen": outcome["chosen"],
        "between": outcome["between"],
        "workers": placement.workers,
        "resumed_at": outcome["resumed_at"],
    }


def _run(training: Training, placement: Placement, title: str, board: Board) -> None:
    """Train: where there is one worker in a process that may be there already, else, or should that fail, in a group.

    A group of one takes a quarter of a minute to start, controller, worker and imports one after the other; what it is
    for is that it begins again, from the last checkpoint, in new processes.
    """
    left = training.settings.train.max_failures
    if placement.workers == 1 and not (training.folder / CHECKPOINTS / RAYS_RECORD).exists():
        try:
            in_one_task(train_alone, training, where=placement, title=title, retries=0, asked=board)
            return
        except RayError as error:
            if not left:
                raise _why(error, training.folder, title) from error
            say(f"{title}: {one_line(error)}; beginning again from the last checkpoint")
            left -= 1
    run_workers(train_worker, training, placement, training.folder, CHECKPOINTS, left, title, board)
