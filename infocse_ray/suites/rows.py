"""What a table of suites shows: a row for each thing asked, before and after."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from infocse_ray.retrieval.correlation import Estimate

_MARKUP = re.compile(r"[\\`*\[\]<>|]|(?<![^\W_])_|_(?![^\W_])")


class Row(NamedTuple):
    """A score on a data set, of one encoder or of two."""

    suite: str
    dataset: str
    read_as: str
    """How texts became vectors, or what ranked them in an encoder's place."""
    measure: str
    after: Estimate
    """Of `model`; low and high are those of the 95 % interval, or the value itself where there is none."""
    before: Estimate | None = None
    """Of `compare`; None where there is none."""
    difference: Estimate | None = None
    """After less before, paired; None where scores of single questions aren't at hand."""
    questions: int | None = None
    """Queries or pairs; None where the suite doesn't say."""
    main: bool = True
    """Whether it is the measure by which the data set is judged."""

    def content(self) -> dict[str, Any]:
        """For programs."""
        out: dict[str, Any] = {**self._asdict()}
        for name in ("before", "after", "difference"):
            if (estimate := out[name]) is not None:
                out[name] = estimate._asdict()
        return out


def markdown(rows: list[Row], compared: bool) -> list[str]:
    """The lines of a table, data sets in their order.

    Args:
        rows: what it has.
        compared: whether there are two encoders.
    """
    scores = ["before", "after", "difference"] if compared else ["score"]
    lines = [
        f"| data set | read as | measure | {' | '.join(scores)} |",
        "| --- | --- | --- |" + " ---: |" * len(scores),
    ]
    for row in rows:
        cells = [row.dataset, row.read_as, row.measure]
        if compared:
            cells += ["" if row.before is None else shown(row.before)]
        cells.append(shown(row.after))
        if compared:
            cells.append(_difference(row))
        lines.append(f"| {' | '.join(escaped(cell) for cell in cells)} |")
    return lines


def escaped(text: str) -> str:
    """Text as a cell of a Markdown table, also shown in terminals; names of files and folders are other people's.

    An underscore within a word marks nothing up, and stays.
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return _MARKUP.sub(r"\\\g<0>", line)


def shown(estimate: Estimate) -> str:
    """A score for people: 0.8204 (0.76 to 0.87)."""
    value, low, high = estimate
    return f"{value:.4f}" if low == high == value else f"{value:.4f} ({low:.2f} to {high:.2f})"


def signed(estimate: Estimate) -> str:
    """A difference for people: +0.0312 (+0.0104 to +0.0521)."""
    value, low, high = estimate
    return f"{value:+.4f} ({low:+.4f} to {high:+.4f})"


def _difference(row: Row) -> str:
    if row.difference is not None:
        return signed(row.difference)
    return "" if row.before is None or row.before is row.after else f"{row.after.value - row.before.value:+.4f}"


def no_interval(value: float) -> Estimate:
    """A score whose questions aren't at hand."""
    return Estimate(value, value, value)
