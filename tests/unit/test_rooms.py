"""The rooms of the code: imports run one way through them, and the pages name files that there are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "infocse_ray"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def rooms() -> list[str]:
    """In the order in which docs/design.md has them, lowest first."""
    page = (ROOT / "docs" / "design.md").read_text()
    return re.findall(r"^\| `(\w+)/?`", page.split("| room |")[1].split("\n\n")[0], flags=re.MULTILINE)


def imports(file: Path) -> Iterator[str]:
    """Rooms that a file imports when it is itself imported, or in a function; not for types alone."""
    tree = ast.parse(file.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in for_types and node.module:
            head, _, rest = node.module.partition(".")
            if head == "infocse_ray" and rest:
                yield rest.partition(".")[0]


def test_every_room_is_on_the_page():
    there = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    there |= {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert there == set(rooms())


@pytest.mark.parametrize("room", rooms())
def test_imports_run_one_way(room: str):
    order = rooms()
    above = set(order[order.index(room) + 1 :])
    files = [PACKAGE / f"{room}.py"] if (PACKAGE / f"{room}.py").exists() else (PACKAGE / room).rglob("*.py")
    wrong = {f"{file.relative_to(PACKAGE)} imports {name}" for file in files for name in imports(file) if name in above}
    assert not wrong - ({"cli.py imports commands"} if room == "cli" else set())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_files_that_there_are(page: Path):
    text = page.read_text()
    named = {name for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|yaml|md))`", text) if "<" not in name}
    named |= set(re.findall(r"\]\(([\w./-]+)\)", text))
    bases = (ROOT, PACKAGE, page.parent, ROOT / "tests")
    missing = {name for name in named if not any((base / name).exists() for base in bases)}
    assert not missing
