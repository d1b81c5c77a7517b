"""Manual pages as documents: what a page describes, and the line that says in brief what that is."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

SHORTEST = 300
"""Characters of a description."""
LONGEST = 20_000
"""Characters after which a description is cut."""

_ESCAPES = [
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\\f(\[[^]]*\]|\(..|.)", ""),  # fonts
        (r"\\s[-+]?\d+", ""),  # sizes
        (r"\\\*(\[[^]]*\]|\(..|.)", ""),  # strings that a page defines
        (r"\\\((lq|rq)", '"'),
        (r"\\\((aq|oq|cq)", "'"),
        (r"\\\((em|en|hy|mi)", "-"),
        (r"\\\((..)", ""),
        (r"\\\[[^]]*\]", ""),
        (r"\\[&/,|^)%:]", ""),
        (r"\\-", "-"),
        (r"\\[ ~0]", " "),
        (r"\\e", r"\\"),
        (r"\\c", ""),
        (r"\\\"\s.*", ""),
    )
]
_ONE_FONT = frozenset(("B", "I", "SM", "SB"))
_FONTS = _ONE_FONT | {"BR", "IR", "RB", "RI", "BI", "IB"}
_PARAGRAPHS = frozenset(("PP", "P", "LP", "TP", "IP", "HP", "sp", "SS"))
_VERBATIM = {"nf": True, "EX": True, "Vb": True, "fi": False, "EE": False, "Ve": False}


def manual_pages(folder: str | Path) -> Iterator[dict[str, str]]:
    """The compressed pages in `man1/` to `man8/` of a folder, by name, as `id`, `text` and `counterpart`.

    A page is written with the man macros, has a description of 300 characters or more, and a line of three words or
    more that says what it is about, word by word no part of the description. Of pages with the same description, or the
    same line, the first counts. The thousands of `gcloud` are left out, which one template wrote.
    """
    seen: set[str] = set()
    for path in sorted(Path(folder).glob("man[1-8]/*.gz")):
        if path.name.startswith("gcloud") or path.is_symlink():
            continue
        try:
            page = gzip.decompress(path.read_bytes()).decode()
        except UnicodeDecodeError:
            continue
        if len(page) < 500 or ".so man" in page[:200] or ".Sh " in page:
            continue
        found = sections(page)
        text = re.sub(r"\s*\n\s*", " ", found.get("DESCRIPTION", ""))
        brief = re.split(r"\s+-+\s+", found.get("NAME", ""), maxsplit=1)
        if len(brief) < 2 or len(brief[1].split()) < 3 or len(text) < SHORTEST:
            continue
        counterpart = re.sub(r"\s+", " ", brief[1]).strip()
        if counterpart.lower() in text.lower() or {text, counterpart} & seen:
            continue
        seen |= {text, counterpart}
        yield {"id": path.name.removesuffix(".gz"), "text": text[:LONGEST], "counterpart": counterpart}


def sections(page: str) -> dict[str, str]:
    """The running text of a page's sections by their headings; a blank line is a paragraph, examples are left out."""
    parts: dict[str, list[str]] = {}
    into: list[str] | None = None
    verbatim = False
    for line in page.splitlines():
        macro = re.match(r"\.\s*([A-Za-z]\S*)\s*(.*)", line)
        if macro is None:
            if into is not None and not verbatim and not line.startswith((".", "'", " ", "\t")):
                into.append(_plain(line))
            continue
        name, rest = macro.groups()
        verbatim = _VERBATIM.get(name, verbatim)
        if name == "SH":
            into = parts.setdefault(_plain(rest).strip().strip('"').upper(), [])
        elif into is not None and name in _FONTS and not verbatim:
            words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', rest)]
            into.append(_plain((" " if name in _ONE_FONT else "").join(words)))
        elif into is not None and name in _PARAGRAPHS:
            into.append("\n")
    return {heading: re.sub(r"[ \t]+", " ", " ".join(lines)).strip() for heading, lines in parts.items()}


def _plain(line: str) -> str:
    for pattern, by in _ESCAPES:
        line = pattern.sub(by, line)
    return line
