"""The cluster explorer: what a run puts into its page, and the command `infocse explorer`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from infocse_ray.settings.section import Section, parts, plain_name


def _ids(value: object) -> object:
    """Ids as texts: `a,b` names two, and YAML reads some as numbers."""
    ids = parts(value)
    return [str(one) if isinstance(one, int) else one for one in ids] if isinstance(ids, list) else ids


Ids = Annotated[list[str], BeforeValidator(_ids)]


class Explorer(Section):
    """explorer: the page that shows the clusters of some documents, made when a run ends; no result depends on it."""

    documents: int = Field(
        default=200,
        ge=0,
        description="Training documents in <storage>/<name>/explorer.html, drawn by the seed; fewer where they would "
        "make the page larger than 5 MB. 0: only those of `ids`.",
    )
    ids: Ids = Field(
        default=[],
        description="Ids of training documents that the page has beside these (a,b; a list in YAML where ids have "
        "commas); every iteration has to have annotated them (annotate.share).",
    )


class ExploreRun(Section):
    """The explorer of a finished run, made again."""

    name: str = Field(description="Name of the run; may be given without --name.")
    storage: str = Field(default="runs", min_length=1, description="Folder or URI that the run is in.")
    documents: int | None = Field(
        default=None, ge=0, description="Documents drawn by the run's seed. Default: explorer.documents of the run."
    )
    ids: Ids = Field(default=[], description="Ids of training documents to show, beside explorer.ids of the run (a,b).")

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        return plain_name(value)
