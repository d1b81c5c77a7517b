"""Corpora that nothing was chosen on: what is a document of them, and what it must find."""

from __future__ import annotations

import gzip
from pathlib import Path

from infocse_ray.benchmarks.manual_pages import manual_pages, sections
from infocse_ray.benchmarks.untuned import purchases, without_titles

PAGE = r""".\" a comment
.TH SPLIT "1" "2022" "tools"
.SH NAME
split \- cut a file into pieces
.SH SYNOPSIS
.B split
[\fIOPTION\fR]
.SH DESCRIPTION
Output parts of
.I FILE
to others, named by
.BR prefix (1),
a\-z.
.PP
.nf
$ split example
.fi
{filler}
.SH AUTHOR
Nobody.
"""
FILLER = "A long sentence that says more of it. " * 9


def write(folder: Path, name: str, page: str) -> None:
    (folder / "man1").mkdir(exist_ok=True)
    (folder / "man1" / f"{name}.1.gz").write_bytes(gzip.compress(page.encode()))


def test_a_page_is_its_description_and_what_it_says_of_itself_in_a_line(tmp_path: Path) -> None:
    page = PAGE.replace("{filler}", FILLER)
    write(tmp_path, "split", page)
    (one,) = manual_pages(tmp_path)
    assert one["id"] == "split.1"
    assert one["counterpart"] == "cut a file into pieces"
    assert one["text"].startswith("Output parts of FILE to others, named by prefix(1), a-z. A long sentence")
    assert "example" not in one["text"]
    assert "Nobody" not in one["text"]


def test_pages_that_are_copies_short_or_say_their_line_in_the_text_are_left_out(tmp_path: Path) -> None:
    page = PAGE.replace("{filler}", FILLER)
    write(tmp_path, "a", page)
    write(tmp_path, "b", page)
    write(tmp_path, "short", PAGE.replace("{filler}", "Brief."))
    write(tmp_path, "said", page.replace("Output parts", "To cut a file into pieces, output parts"))
    write(tmp_path, "gcloud_x", page.replace("pieces", "smaller pieces"))
    write(tmp_path, "other", ".so man1/a.1\n" + page)
    assert [one["id"] for one in manual_pages(tmp_path)] == ["a.1"]


def test_sections_begin_at_their_headings() -> None:
    assert sections('before\n.SH "SEE ALSO"\nman\n.SH NOTES\n.SB x y\n') == {"SEE ALSO": "man", "NOTES": "x y"}


def test_no_word_of_the_title_is_left_in_an_article() -> None:
    article = {
        "id": "1",
        "counterpart": "Rush Creek (mine)",
        "sentences": ["RUSH is old.", "At Rush Creek, a creek."] * 3,
    }
    (one,) = without_titles([article, article | {"sentences": ["Too short."]}, article | {"counterpart": "Ox"}])
    assert one == {"id": "1", "counterpart": "Rush Creek (mine)", "sentences": ["it is old.", "At it, a it."] * 3}


def test_people_who_bought_little_are_left_out() -> None:
    person = {"id": "1", "sentences": ["a", "b", "c", "d", "e"], "counterpart": "f", "split": "x"}
    (one,) = purchases([person, person | {"sentences": ["a"]}])
    assert one == {"id": "1", "sentences": ["a", "b", "c", "d", "e"], "counterpart": "f"}
