"""Libraries: those that aren't installed are asked for in one line, those that talk of their own accord kept quiet."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence


def installed(packages: Sequence[str]) -> bool:
    """Whether all are."""
    return not _missing(packages)


def check_installed(packages: Sequence[str], extra: str, asked: str) -> None:
    """Refuse what needs packages that aren't here.

    Args:
        packages: that are imported.
        extra: of this package, which brings them.
        asked: the setting and its value.

    Raises:
        ValueError: one is missing.
    """
    if missing := _missing(packages):
        raise ValueError(
            f"{asked}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed: "
            f"pip install 'infocse-ray[{extra}]'"
        )


def _missing(packages: Sequence[str]) -> list[str]:
    return [package for package in packages if not _is_here(package)]


def _is_here(package: str) -> bool:
    """Whether it can be imported; a folder of its name is no package: a namespace, as Python has it, has no origin."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def quiet_libraries() -> None:
    """Loading and saving an encoder each draw a bar of their own, which says nothing about the run: not here."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
