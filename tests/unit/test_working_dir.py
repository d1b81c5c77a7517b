"""What `ray job submit --working-dir .` uploads, by Ray's own packaging."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from ray._private.runtime_env.packaging import _zip_files, get_uri_for_directory

ROOT = Path(__file__).parents[2]
LEFT_BEHIND = [
    ".git/objects/ab/cdef",
    ".venv/bin/python",
    ".pytest_cache/v/cache",
    ".hypothesis/examples/a",
    ".secrets.yaml",
    "build/lib/x.py",
    "corpus.jsonl",
    "data/part.parquet",
    "docs/page.md",
    "encoder/model.safetensors",
    "infocse_ray/__pycache__/x.cpython-311.pyc",
    "infocse_ray/model.safetensors",
    "infocse_ray.egg-info/PKG-INFO",
    "infocse_ray/configs/labels.tsv",
    "jobs/news.jsonl.zst",
    "my venv/lib/python3.11/site-packages/torch/__init__.py",
    "runs/news/manifest.json",
    "shared/notes.md",
    "tests/unit/test_x.py",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what is uploaded, with what gathers around it while one works."""
    tree = tmp_path / "tree"
    for part in ("infocse_ray", "jobs"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (".gitignore", ".rayignore", "README.md", "LICENSE", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / file, tree / file)
    (tree / "news.yaml").write_text("name: news\n")
    return tree


def uploaded(tree: Path, package: Path, include_gitignore: bool = True) -> set[str]:
    _zip_files(str(tree), [], str(package), include_gitignore)
    with zipfile.ZipFile(package) as file:
        return set(file.namelist())


def litter(tree: Path) -> None:
    for name in LEFT_BEHIND:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(b"x")


def test_code_and_configurations_are_uploaded_and_nothing_else(tree: Path, tmp_path: Path) -> None:
    wanted = {
        file.relative_to(tree).as_posix()
        for part in ("infocse_ray", "jobs")
        for file in (tree / part).rglob("*")
        if file.is_file()
    }
    assert {"infocse_ray/settings/__init__.py", "jobs/pretrain.py", "infocse_ray/configs/adapt.yaml"} <= wanted
    litter(tree)

    found = uploaded(tree, tmp_path / "package.zip")

    assert found == wanted | {"pyproject.toml", "constraints.txt", "news.yaml"}


def test_what_git_ignores_needs_no_gitignore_to_stay_behind(tree: Path, tmp_path: Path) -> None:
    """With RAY_RUNTIME_ENV_IGNORE_GITIGNORE=1 Ray reads `.rayignore` alone."""
    litter(tree)

    assert not uploaded(tree, tmp_path / "package.zip", include_gitignore=False) & set(LEFT_BEHIND)


def test_a_run_beside_the_code_does_not_change_the_upload(tree: Path) -> None:
    """Its name is a hash of its content: what is uploaded already is not uploaded again."""
    before = get_uri_for_directory(str(tree), include_gitignore=True)
    litter(tree)
    after_litter = get_uri_for_directory(str(tree), include_gitignore=True)
    (tree / "infocse_ray" / "configs" / "mine.yaml").write_text("name: mine\n")

    assert after_litter == before
    assert get_uri_for_directory(str(tree), include_gitignore=True) != before
