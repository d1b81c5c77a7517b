"""What happens after which step of a training, apart from how it is done."""

from __future__ import annotations

from typing import NamedTuple

from infocse_ray.settings import Settings


class Budget(NamedTuple):
    """When a stage's training ends at the latest."""

    steps: int
    tokens: int | None
    """Encoded, padding not counted; None: any number."""
    patience: int
    """Steps without a better validation score after which training stops."""


class Due(NamedTuple):
    """The actions that are due after a step."""

    validate: bool
    checkpoint: bool
    """Whatever the validation says; one that ends the training is followed by a checkpoint, too."""
    last: bool
    """The budget ends with it."""

    @property
    def may_checkpoint(self) -> bool:
        """Whether a checkpoint may follow, as far as is known before the step."""
        return self.checkpoint or self.validate


class Schedule:
    """A function of steps and tokens alone: the same on every worker, and for a training that was resumed."""

    def __init__(self, settings: Settings, budget: Budget) -> None:
        """Read `validate.every`, `validate.every_tokens` and `train.checkpoint_every`."""
        self._budget = budget
        self._every, self._every_tokens = settings.validate.every, settings.validate.every_tokens
        self._checkpoint_every = settings.train.checkpoint_every

    def after(self, step: int, tokens_before: int, tokens: int, stop: bool = False) -> Due:
        """The actions that are due after a step.

        Args:
            step: from 1.
            tokens_before: encoded since the first step, without those of this one.
            tokens: the same with those of this one.
            stop: training was asked to stop, and does after this step.
        """
        last = step == self._budget.steps or (self._budget.tokens is not None and tokens >= self._budget.tokens)
        if self._every_tokens is None:
            validate = last or step % self._every == 0
        else:
            validate = last or tokens // self._every_tokens > tokens_before // self._every_tokens
        by_steps = validate if self._checkpoint_every is None else step % self._checkpoint_every == 0
        return Due(validate, stop or by_steps, last)
