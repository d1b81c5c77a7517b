"""Settings of `infocse report`."""

from __future__ import annotations

from pydantic import Field, field_validator

from infocse_ray.settings.section import Section, parts, plain_name


class ReportPage(Section):
    """The report page of a run, or one page of several."""

    names: list[str] = Field(
        description="Names of runs (a,b), may be given without --names. One: its own page is made again. Several: one "
        "page compares them."
    )
    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")

    @field_validator("names", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return parts(value)

    @field_validator("names")
    @classmethod
    def _names(cls, value: list[str]) -> list[str]:
        if not value:
            raise ValueError("name a run")
        if len(set(value)) < len(value):
            raise ValueError("name every run once")
        return [plain_name(name) for name in value]
