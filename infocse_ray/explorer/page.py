"""The explorer's page: one HTML file that holds its style, its script and its data, and asks for nothing.

A corpus is untrusted text. It is in the file as JSON only, in which no letter can end the element or begin another, and
the script shows it as text (`textContent`), never as HTML. Should either fail all the same, the page's own policy
(Content-Security-Policy) runs no script but this one, known by its hash, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

_ESCAPED = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def embedded(value: Any) -> str:
    """JSON that is safe inside of a script element, as compact as can be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPED)


def render(content: dict[str, Any]) -> bytes:
    """The page.

    Args:
        content: of `explorer.json`.
    """
    style, script = _part("page.css"), _part("page.js")
    environment = Environment(autoescape=True, loader=FunctionLoader(_part), undefined=StrictUndefined)
    return (
        environment.get_template("page.html")
        .render(
            name=content["name"],
            documents=len(content["documents"]),
            style=Markup(style),
            style_hash=_hash(style),
            script=Markup(script),
            script_hash=_hash(script),
            data=Markup(embedded(content)),
        )
        .encode()
    )


def _part(name: str) -> str:
    return (files("infocse_ray.explorer") / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """As a Content-Security-Policy names what may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
