"""A JSON array of objects, read an item at a time, however it is laid out over lines."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

_STEP = 2**18
_LONGEST_ITEM = 2**26
"""Characters: what is longer is no document but an array that is broken."""
_BETWEEN = re.compile(r"[\s,]*")


class Unreadable(ValueError):
    """The file is no JSON array to its end; the message says from which item on, without naming the file."""


def begins_array(stream: io.BufferedReader) -> bool:
    """Whether the first character that isn't white space opens an array."""
    while True:
        part = stream.read(64)
        if start := part.removeprefix(b"\xef\xbb\xbf").lstrip():
            return start.startswith(b"[")
        if not part:
            return False


def read_items(stream: io.BufferedReader) -> Iterator[Any]:
    """The array's items, in their order; memory holds one of them and a little more.

    Items of an array that was appended to the first, as crawlers that are run again leave it, come after its own. Text
    that isn't UTF-8 becomes lone surrogates.

    Args:
        stream: the file as UTF-8.

    Raises:
        Unreadable: an item isn't JSON, the array's end is missing, or something else than an array follows it.
    """
    text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape")
    decode = json.JSONDecoder().raw_decode
    ahead = text.read(_STEP)
    place = _BETWEEN.match(ahead).end()  # pyright: ignore[reportOptionalMemberAccess]
    place += 1  # the bracket
    count = 0
    step = _STEP
    while True:
        place = _BETWEEN.match(ahead, place).end()  # pyright: ignore[reportOptionalMemberAccess]
        if ahead.startswith("]", place):
            rest = _BETWEEN.sub("", ahead[place + 1 :], count=1)
            while not rest and (rest := text.read(_STEP)):
                rest = _BETWEEN.sub("", rest, count=1)
            if rest and not rest.startswith("["):
                raise Unreadable(f"after {count:,} items the array ends, and something follows that is none")
            if not rest:
                return
            ahead, place = rest, 1
            continue
        try:
            item, end = decode(ahead, place)
            # What ends where the text read so far ends may go on: 1 of 12, true of what is no JSON.
            whole = end < len(ahead)
        except (ValueError, RecursionError):
            item, end, whole = None, place, False
        if whole:
            yield item
            count, place, step = count + 1, end, _STEP
            continue
        if len(ahead) - place > _LONGEST_ITEM or not (more := text.read(step)):
            raise Unreadable(f"item {count} of the array (counted from 0) isn't JSON, or the array's end is missing")
        ahead, place = ahead[place:] + more, 0
        step *= 2  # an item is tried again only when twice as much of it is there
