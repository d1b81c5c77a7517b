"""What a text can be, and how one of a corpus is shown."""

from __future__ import annotations

_BRIEF = 200
"""Characters of a value in an error."""


def is_utf8(text: str) -> bool:
    """Whether it can be written as UTF-8: half of a surrogate pair can't, nor can tokenizers and Arrow take it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def plain(text: str, most: int) -> str:
    """Text in one line of at most so many characters, without control characters and marks that turn its direction."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return text if len(text) <= most else f"{text[: most - 4].rstrip()} ..."


def brief(value: object) -> str:
    """What was given, as Python writes it, and of something long how it begins and what it is: an error is a line."""
    text = repr(value)
    if len(text) <= _BRIEF:
        return text
    size = f" of {len(value):,}" if isinstance(value, list | tuple | dict) else ""
    return f"{text[:_BRIEF]} ... (a {type(value).__qualname__}{size})"
