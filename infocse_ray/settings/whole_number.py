"""Whole numbers that are given from Python, numpy's among them."""

from __future__ import annotations

import operator
from typing import Any


def from_one(value: Any, refusal: str) -> int:
    """The value as an int.

    Raises:
        ValueError: with `refusal`, where it is no whole number from 1.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(refusal)
    return number
