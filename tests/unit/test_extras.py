"""Whoever is told to install an extra finds it in pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"(?:infocse[-_]ray|'\.)\[([a-z,]+)\]|`([a-z]+)`\s+extra\b")


def test_extras_that_texts_name_are_there() -> None:
    there = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("jobs/*.py"), *ROOT.glob("infocse_ray/**/*.py")]
    named = {
        (file.relative_to(ROOT).as_posix(), extra)
        for file in files
        if file.name != "CHANGELOG.md"  # which names what is gone
        for several, one in NAMED.findall(file.read_text())
        for extra in (several or one).split(",")
    }
    assert len(named) > 10
    assert {(file, extra) for file, extra in named if extra not in there} == set()
