"""Peak memory of driver and actors as the corpus grows."""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import threading
from collections import Counter
from pathlib import Path

import psutil

from infocse_ray.annotate import actor as actor_module
from infocse_ray.annotate.stage import annotate
from infocse_ray.benchmarks.corpora import encoder_in, make_store
from infocse_ray.benchmarks.measure import in_fresh_process, local_ray
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.corpus import prepare as prepare_module
from infocse_ray.corpus import shuffle as shuffle_module
from infocse_ray.corpus import source as source_module
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.runtime.cluster import placement
from infocse_ray.settings import Annotate
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage

TEXT = "the sea a ship of storm and judge in court bread oven star moon over planet old new great small"
PART_BYTES = 2**18
RUN_BYTES, MOST_RUNS = 2**19, 64
KINDS = ("start", "driver", "actor", "tasks")


class Sampler(threading.Thread):
    """Looks ten times a second at how much memory this process and Ray's workers below it have."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peaks: Counter[str] = Counter()
        self.stop = threading.Event()

    def run(self) -> None:
        """Look until told to stop."""
        me = psutil.Process()
        while not self.stop.wait(0.1):
            self._see("driver", me)
            for process in me.children(recursive=True):
                with contextlib.suppress(psutil.Error, IndexError):
                    title = process.cmdline()[0]
                    if title.startswith("ray::"):
                        self._see("actor" if title.startswith("ray::MapWorker") else "tasks", process)

    def _see(self, kind: str, process: psutil.Process) -> None:
        self.peaks[kind] = max(self.peaks[kind], _private(process))


def _private(process: psutil.Process) -> int:
    """Resident bytes without shared pages: the object store is one for all processes and has a bound of its own."""
    memory = process.memory_info()
    return memory.rss - memory.shared


def memory_once(model: str, documents: int) -> dict[str, float]:
    """Prepare and annotate a synthetic corpus with a small random encoder, watched."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    # A corpus that fills shards, pieces and runs of the usual size takes hours; a larger one has more of them, not
    # larger ones.
    prepare_module._SHARD_TEXT_BYTES = source_module._PIECE_BYTES = PART_BYTES
    actor_module._SMALL_ON_CPU = actor_module._SMALL_ON_GPU = 0.0  # so small an encoder would need no actors
    shuffle_module._RUN_BYTES, shuffle_module._MOST_RUNS = RUN_BYTES, MOST_RUNS
    draw, words = random.Random(0), TEXT.split()
    body = ([" ".join(draw.choices(words, k=12)) for _ in range(draw.randint(5, 30))] for _ in range(documents))
    with tempfile.TemporaryDirectory() as work:
        tokenizer = AutoTokenizer.from_pretrained(model)
        small = str(Path(work) / "encoder")
        shape = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
        )
        BertModel(shape).save_pretrained(small)
        tokenizer.save_pretrained(small)
        with local_ray():
            start = _private(psutil.Process())
            sampler = Sampler()
            sampler.start()
            store = make_store(work, small, body, lanes=4)
            stage = Stage("annotate", "benchmark", Storage.open(work) / "annotations")
            where = placement(Annotate())
            annotate(stage, store, list(SPLITS), encoder_in(small), Annotate(), 0, "auto", where, "annotating")
            sampler.stop.set()
            sampler.join()
    return {"sentences": store.summary["sentences"], "start": start, **sampler.peaks}


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    sizes = (arguments.documents, 10 * arguments.documents)
    runs = [in_fresh_process(memory_once, arguments.model, size) for size in sizes]
    rows = [
        (f"{size:,}", f"{run['sentences']:,}", *(f"{run[k] / 2**20:,.0f} MiB" for k in KINDS))
        for size, run in zip(sizes, runs, strict=True)
    ]
    rows.append(("", "growth", *(f"x {runs[1][k] / runs[0][k]:.2f}" for k in KINDS)))
    table(("documents", "sentences", "driver before", "driver", "largest annotate actor", "largest other worker"), rows)
    notes(
        "Peaks of resident memory, sampled ten times a second over the prepare and annotate stages, without shared "
        "pages such as those of the object store, which has a bound of its own. Synthetic documents of 5 to 30 "
        "sentences; a random BERT of 2 layers, 64 wide. Files are read in pieces, and shards are, of about "
        f"{PART_BYTES // 2**10} KiB, the shuffle's runs of {RUN_BYTES // 2**10} KiB of rows, of which a task reads "
        f"{MOST_RUNS} at most, so that the larger corpus has ten times as many."
    )
