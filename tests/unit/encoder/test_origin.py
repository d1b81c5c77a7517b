"""What an encoder's folder says of where it comes from, which nobody here wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infocse_ray.encoder.origin import Origin, origin_of


def folder(tmp_path: Path, card: str | None = None, **config: str) -> Path:
    place = tmp_path / "encoder"
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps(config))
    if card is not None:
        (place / "README.md").write_text(f"---\n{card}\n---\n# It\n")
    return place


def test_names_and_licences(tmp_path: Path) -> None:
    here = folder(tmp_path)
    assert origin_of(here, str(here)) == Origin(None, None)
    assert origin_of(here, "acme/encoder").name == "acme/encoder"
    assert origin_of(here, "s3://bucket/encoder").name is None
    here = folder(tmp_path, "license: apache-2.0", _name_or_path="acme/base")
    assert origin_of(here, str(here)) == Origin("acme/base", "apache-2.0")
    (here / "modules.json").write_text("[]")
    assert origin_of(here, str(here)).name is None, "a sentence encoder was made of that, and isn't it"
    (here / "modules.json").unlink()
    here = folder(tmp_path, "license: other\nlicense_name: gemma\nlicense_link: LICENSE.md\nbase_model: [a/b, c/d]")
    assert origin_of(here, str(here)) == Origin("a/b", "other", "gemma", "LICENSE.md")
    cached = tmp_path / "models--acme--encoder" / "snapshots" / "0"
    cached.mkdir(parents=True)
    assert origin_of(cached, str(cached)).name == "acme/encoder"
    here = folder(tmp_path, "license: mit", _name_or_path=str(tmp_path))
    assert origin_of(here, str(here)).name is None


@pytest.mark.parametrize(
    "card",
    [
        "license: [mit]",
        'license: "mit\\n---\\n# Mine"',
        "license: '`x` <script>'",
        "license: mit: x",
        "- a list",
        "base_model: '../../etc'",
        "base_model: 'a/b`](http://x)'",
        "license_link: 'javascript:alert(1)'",
    ],
)
def test_what_is_no_name_is_left_out(card: str, tmp_path: Path) -> None:
    here = folder(tmp_path, card)
    assert origin_of(here, str(here)) == Origin(None, None)
