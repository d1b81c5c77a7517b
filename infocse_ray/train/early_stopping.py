"""Keep the best validation score; stop when it hasn't grown for a number of steps."""

from __future__ import annotations

from typing import Any


class EarlyStopping:
    """Tracks one score, higher being better."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.best: float | None = None
        self.best_step = 0

    def improved(self, step: int, score: float) -> bool:
        """Note the score at `step`; whether it is better than every one before. Ties are no growth."""
        if self.best is not None and score <= self.best:
            return False
        self.best, self.best_step = score, step
        return True

    def stop(self, step: int) -> bool:
        """Whether `patience` steps have passed since the best score."""
        return step - self.best_step >= self.patience

    def state(self) -> dict[str, Any]:
        """What `restore` needs."""
        return {"best": self.best, "best_step": self.best_step}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state()`."""
        self.best, self.best_step = state["best"], state["best_step"]
