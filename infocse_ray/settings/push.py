"""Settings of `infocse push`."""

from __future__ import annotations

from pydantic import Field

from infocse_ray.settings.section import Section


class Push(Section):
    """Put an encoder's folder into a repository of the hub."""

    model: str = Field(
        min_length=1, description="Folder or URI of the encoder: a run's <storage>/<name>/model, or an export."
    )
    repo: str = Field(description="Repository, user/name or organisation/name; made if it isn't there.")
    private: bool = Field(
        default=False, description="Only its members see the repository; one that is public already is refused."
    )
    revision: str | None = Field(
        default=None, min_length=1, description="Branch to write to; made if it isn't there. Default: main."
    )
    message: str = Field(default="Upload an encoder with infocse_ray", min_length=1, description="Of the commit.")
    dry_run: bool = Field(
        default=False, description="Only check the folder and list what would be uploaded; needs no network."
    )
