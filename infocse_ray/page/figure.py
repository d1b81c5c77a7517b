"""Matplotlib's figures as SVG inside the page: their text stays text, their colours are the page's, light and dark.

Matplotlib draws with colours that stand for the page's CSS variables and are replaced in what it wrote. A figure is
drawn about as wide as a phone's screen, so that its text can be read there; wider pages show several side by side.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from markupsafe import Markup, escape

INK, MUTED, GRID = "#0a0b01", "#0a0b02", "#0a0b03"
SERIES = tuple(f"#0a0b1{number}" for number in range(6))
"""Colours of the series; markers, hatches and dashes tell them apart as well."""
MARKERS = "osD^vP"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (9, 3)), (0, (3, 1, 1, 1, 1, 1)))

_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--line"} | {c: f"--c{i + 1}" for i, c in enumerate(SERIES)}
_WIDTH = 4.9
"""Inches, of 72 of the SVG's units."""
_FONT = 11.5


class Drawn:
    """What a figure became, once its `with` block has ended."""

    svg: Markup


@contextmanager
def drawing(alt: str, height: float = 3.0) -> Iterator[tuple[Any, Drawn]]:
    """Matplotlib's `Axes` to draw on, and what they become when the block ends.

    Args:
        alt: what the plot shows, for who doesn't see it.
        height: in inches.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "infocse",
        "font.size": _FONT,
        "font.family": "DejaVu Sans",
        "text.color": INK,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "legend.labelcolor": INK,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
    }
    drawn = Drawn()
    with mpl.rc_context():
        mpl.rcdefaults()  # what a matplotlibrc or a notebook has set (TeX, a dark style) is for other plots
        mpl.rcParams.update(style)
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure.subplots(), drawn
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    drawn.svg = _inline(out.getvalue(), alt)


def _inline(text: str, alt: str) -> Markup:
    """Matplotlib's SVG file as an element of the page."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Ids are unique in a page, not only in a figure.
    mark = f"f{hashlib.blake2b((alt + text).encode(), digest_size=6).hexdigest()}-"
    text = re.sub(r'( id="|xlink:href="#|url\(#)', rf"\g<1>{mark}", text)
    text = re.sub(r"#0a0b[01]\d", lambda match: f"var({_VARIABLES[match[0]]})", text)
    text = re.sub(r"font: ([\d.]+)px[^;\"]*", r"font-size: \1px", text)
    head, _, rest = text.partition(">")
    head = re.sub(r' (width|height)="[^"]*pt"', "", head)
    return Markup(f'{head} role="img" aria-label="{escape(alt)}">{rest}')


def literal(text: str) -> str:
    """Matplotlib would read what is between dollar signs as a formula."""
    return text.replace("$", r"\$")


def label(text: str, most: int = 28) -> str:
    """As `literal`, cut if it is long: in its middle, as names of tables' cells and of trials differ at their ends."""
    half = most // 2
    return literal(text if len(text) <= most else f"{text[: most - half - 1]}…{text[-half:]}")
