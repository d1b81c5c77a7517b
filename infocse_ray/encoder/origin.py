"""Where an encoder comes from, as far as its folder says: its name on the hub and its licence.

The folder's texts are somebody else's. What isn't shaped like a name or a licence's identifier is left out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from infocse_ray.settings.yaml_values import load_yaml
from infocse_ray.storage.folder import is_remote

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
_IDENTIFIER = re.compile(r"[a-z0-9][a-z0-9.+-]{0,59}")
_LINK = re.compile(r"https?://[^\s<>\"'`]{1,300}|LICENSE[\w.]{0,10}", re.ASCII)
_FRONT_MATTER = re.compile(r"\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)", re.ASCII)
"""A folder of the hub's cache."""


class Origin(NamedTuple):
    """What is known of an encoder that a run starts from; None: isn't known."""

    name: str | None
    """On the hub, such as sentence-transformers/all-MiniLM-L6-v2."""
    license: str | None
    """Its identifier, as the hub has it, such as apache-2.0."""
    license_name: str | None = None
    """With the identifier `other`."""
    license_link: str | None = None


def origin_of(folder: Path, model: str) -> Origin:
    """Read a folder's card and configuration.

    Args:
        folder: of the encoder.
        model: what named it, perhaps a name on the hub.
    """
    card = front_matter(folder / "README.md")
    return Origin(
        _own_name(folder, model) or _base(card) or _configured(folder),
        _matched(_IDENTIFIER, card.get("license")),
        _matched(_IDENTIFIER, card.get("license_name")),
        _matched(_LINK, card.get("license_link")),
    )


def front_matter(card: Path) -> dict[str, Any]:
    """The YAML at the head of a card; empty where there is none that can be read."""
    try:
        found = _FRONT_MATTER.match(card.read_text(encoding="utf-8"))
        values = load_yaml(found[1], strict=False) if found else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return values if isinstance(values, dict) else {}


def _own_name(folder: Path, model: str) -> str | None:
    for part in reversed(folder.parts):
        if cached := _CACHED.fullmatch(part):
            return f"{cached[1]}/{cached[2]}"
    return None if is_remote(model) or Path(model).expanduser().exists() else _matched(_NAME, model)


def _base(card: dict[str, Any]) -> str | None:
    base = card.get("base_model")
    return _matched(_NAME, base[0] if isinstance(base, list) and base else base)


def _configured(folder: Path) -> str | None:
    """What `save_pretrained` of earlier releases wrote: where the weights had been loaded from.

    Of a sentence encoder it says what that was made of, and nothing of the encoder itself.
    """
    if (folder / "modules.json").exists():
        return None
    try:
        name = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("_name_or_path")
    except (OSError, ValueError, AttributeError):
        return None
    return None if isinstance(name, str) and Path(name).exists() else _matched(_NAME, name)


def _matched(pattern: re.Pattern[str], value: Any) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None
