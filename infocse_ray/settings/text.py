"""What a text can be, and how one of a corpus is shown."""

from __future__ import annotations


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
