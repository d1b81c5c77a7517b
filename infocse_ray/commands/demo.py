"""Adapt all-MiniLM-L6-v2 to the documentation of the Python packages on this machine, and see what it learns.

Each document is a docstring that must find its own summary line, which was taken out of it. The encoder
never trains on a summary line. Nothing is downloaded. Two InfoCSE iterations in some twelve minutes; a slow machine
trains less, so that it takes hardly longer.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from infocse_ray.commands.job import run_job
from infocse_ray.demo.docstrings import write_docstrings
from infocse_ray.demo.encoder import bundled_encoder
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Settings
from infocse_ray.storage.redact import redacted

MINUTES, MINUTES_PER_1000 = 9.0, 4.0
"""What all of it takes at most on 2 cores with native bf16: for any corpus, and for each thousand documents of it."""


def main(argv: Sequence[str] | None = None, prog: str = "infocse demo") -> int:
    """Build the corpus, adapt the encoder to it, show what changed; the exit status."""
    parser = argparse.ArgumentParser(
        prog=prog, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=800, help="size of the corpus (default: %(default)s)")
    parser.add_argument(
        "--minutes",
        type=float,
        help="about how long it may take: it trains as much as fits, 48 steps in each of two iterations at most "
        f"(default: {MINUTES:g}, and {MINUTES_PER_1000:g} for each thousand documents)",
    )
    parser.add_argument("--storage", help="keep the run in this folder (default: a new temporary one)")
    options = parser.parse_args(argv)

    def refuse(message: str) -> NoReturn:
        print(f"{prog}: error: {message} (see --help)", file=sys.stderr)
        raise SystemExit(2)

    if options.documents < 200:
        refuse(f"--documents = {options.documents}: training needs at least 200")
    minutes = options.minutes
    if minutes is None:
        minutes = round(MINUTES + MINUTES_PER_1000 * options.documents / 1000, 1)
    if not 0 < minutes < float("inf"):
        refuse(f"--minutes = {minutes:g}: should be a number above 0, 10 say")
    if "://" in (options.storage or ""):
        refuse(f"--storage = {redacted(options.storage)}: is a URI; give a folder of this machine")
    begun = time.monotonic()
    place = options.storage or tempfile.gettempdir()
    try:
        folder = Path(options.storage or tempfile.mkdtemp(prefix="infocse-demo-")).expanduser().absolute()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # before a minute's reading, of which nothing could be kept
        say(f"This takes about {minutes:.0f} minutes, less on a fast machine (--minutes); work is in {folder}")
        say("reading the docstrings of the installed packages ...")
        corpus = folder / f"docstrings-{options.documents}.jsonl"
        if not corpus.exists():
            write_docstrings(corpus, max_documents=options.documents, processes=min(os.cpu_count() or 1, 4))
    except OSError as error:
        refuse(f"--storage = {place}: {error.strerror}; give a folder that can be written to")
    given = ["--config", "demo", "--storage", str(folder), "--corpus.source", str(corpus), "--minutes", str(minutes)]

    def demo(settings: Settings) -> None:
        from infocse_ray.loop.infocse import pretrain
        from infocse_ray.page.end import end_with_pages

        metrics = pretrain(settings)
        show_table(metrics)
        say(f"\n{(time.monotonic() - begun) / 60:.1f} minutes. The adapted encoder: {folder / settings.name / 'model'}")
        end_with_pages(settings)

    try:
        given += ["--encoder.model", str(bundled_encoder())]
    except ValueError as error:
        refuse(str(error))
    again = "the same command" + ("" if options.storage else f" with --storage {folder}")
    run_job(Settings, given, prog, __doc__ or "", demo, again=again)
    return 0


def show_table(metrics: dict[str, Any]) -> None:
    """Recall and MRR of finding each held-out summary line, encoder by encoder."""
    from infocse_ray.retrieval.ranks import shown

    scores = {"before": metrics["start"]["test"], "whitened, without training": metrics["whitened"]["test"]}
    scores |= {f"after iteration {e['iteration']}": e["test"] for e in metrics["iterations"] if e["iteration"]}
    asked = scores["before"]
    say(
        f"\nFinding the summary line of each of {asked['queries']:,} docstrings among {asked['candidates']:,} "
        "(95 % intervals):\n"
    )
    say("| encoder | R@5 | R@10 | R@20 | MRR |\n| --- | --- | --- | --- | --- |")
    for name, scored in scores.items():
        say(f"| {name} | " + " | ".join(shown(scored, k) for k in ("recall@5", "recall@10", "recall@20", "mrr")) + " |")
