"""What a text can be."""

from __future__ import annotations


def is_utf8(text: str) -> bool:
    """Whether it can be written as UTF-8: half of a surrogate pair can't, nor can tokenizers and Arrow take it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
