"""Where a run's curves and scores are shown."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from infocse_ray.settings.section import Section, each_once

SinkName = Literal["tensorboard", "mlflow", "wandb"]


class Tracking(Section):
    """tracking: what shows a run while it works; it changes no result, and no address or token belongs here."""

    sinks: list[SinkName] = Field(
        default=["tensorboard"],
        description="What gets curves and scores, as a,b: `tensorboard` (files in <storage>/<name>/events), `mlflow`, "
        "`wandb` (Weights & Biases); [] is none. Servers, projects and tokens come from those packages' own "
        "environment variables, such as MLFLOW_TRACKING_URI or WANDB_API_KEY.",
    )
    group: str | None = Field(
        default=None,
        min_length=1,
        description="What MLflow and Weights & Biases group runs by. Default: for trials the sweep's name, else none.",
    )

    @field_validator("sinks", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        return each_once(value)
