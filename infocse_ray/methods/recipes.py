"""The trainings among which `recipe: auto` chooses."""

from __future__ import annotations

from typing import Any, NamedTuple

from infocse_ray.settings import MethodName, Settings


class Recipe(NamedTuple):
    """Settings of section `train` that a training is told by; all others are the run's."""

    method: MethodName
    distillation: float

    def of(self, settings: Settings) -> Settings:
        """The settings with this training; nothing is chosen any more."""
        train = settings.train.model_copy(update=self._asdict())
        return settings.model_copy(update={"train": train, "recipe": None})


RECIPES: dict[str, Recipe] = {
    "infocse": Recipe("idc", 0.0),
    "infocse_distillation": Recipe("idc", 0.5),
    "simcse": Recipe("simcse", 0.0),
}
"""By name; of those that validate alike, an earlier one is chosen."""

DEFAULT = "infocse_distillation"
"""That of runs that choose nothing; another must be better beyond luck."""

NOTHING = Recipe("none", 0.0)
"""What is trained where none of them beats the start."""


def how_chosen(recipe: dict[str, Any]) -> str:
    """A sentence for people.

    Args:
        recipe: as `metrics.json` has it.
    """
    tried = ", ".join(name for name, pilot in recipe["pilots"].items() if "validation" in pilot)
    best = "validated best, or no worse than the best beyond luck" if recipe["chosen"] == DEFAULT else "validated best"
    came = f"{recipe['chosen']} {best}" if recipe["chosen"] else "none validated better than the start"
    return f"Short trainings chose how it is trained ({tried}): {came}."
