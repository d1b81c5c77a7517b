"""Sections as one HTML file: no script, nothing to fetch, all text escaped."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from infocse_ray import __version__
from infocse_ray.page.blocks import Section
from infocse_ray.storage.redact import redacted


def render(title: str, head: dict[str, Any], sections: Sequence[Section]) -> bytes:
    """The page, UTF-8.

    Args:
        title: of the window and of the page.
        head: what stands above the sections: `label` and `line` of the verdict (or None), `about`, a line, and `links`,
            files beside the page with what they are.
        sections: in their order.
    """
    template = _environment().get_template("page.html")
    return template.render(title=title, sections=sections, version=__version__, **head).encode()


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("infocse_ray.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_credentials,
    )


def _without_credentials(value: Any) -> Any:
    return redacted(value) if isinstance(value, str) and not isinstance(value, Markup) else value
