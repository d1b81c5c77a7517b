"""The annotate stage, by each of its engines, against SentenceTransformer.encode and exported graphs."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.annotate.engine import LEAST_AGREEMENT, TORCH, Engine, graph_in, make_graph
from infocse_ray.annotate.idc import cluster
from infocse_ray.annotate.pipeline import Written
from infocse_ray.annotate.shards import AnnotateShards
from infocse_ray.annotate.stage import annotate
from infocse_ray.benchmarks.backends import Encode
from infocse_ray.benchmarks.corpora import LANES, MAX_LENGTH, encoder_in, load_baseline, make_store, read_documents
from infocse_ray.benchmarks.measure import default_device, in_fresh_process, local_ray, now
from infocse_ray.benchmarks.report import notes, spread, table
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.store import TokenStore, documents_of, shard_name
from infocse_ray.encoder import openvino
from infocse_ray.encoder.graph import traced
from infocse_ray.export.formats import FORMATS, GraphEncoder
from infocse_ray.runtime.cluster import Placement, placement
from infocse_ray.runtime.libraries import installed
from infocse_ray.settings import Annotate, EngineName
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.checksums import read_checked
from infocse_ray.storage.folder import Storage

DEFAULT = ("fp32", 32)
CANDIDATES = [(dtype, batch) for dtype in ("fp32", "bf16") for batch in (32, 128, 512)]
GRAPH_BATCH = 128
"""Sentences in a batch of an exported graph."""
SAMPLE = 1_000
"""Sentences on which the best of CANDIDATES is found."""


def prepare_once(work: str, model: str, documents: list[list[str]]) -> tuple[TokenStore, int]:
    """The prepare stage in a Ray of its own, and how many workers that one has to annotate."""
    with local_ray():
        return make_store(work, model, documents), placement(Annotate()).workers


def engines_there() -> list[EngineName]:
    """Those that are installed, on the CPU; on a GPU torch alone."""
    if default_device().type != "cpu":
        return ["torch"]
    names: list[EngineName] = ["torch"]
    if installed(openvino.PACKAGES[False]):
        names.append("openvino")
    if installed(openvino.PACKAGES[True]):
        names.append("openvino_int8")
    return names


def convert_once(work: str, model: str, store: TokenStore, name: EngineName) -> dict[str, Any]:
    """The engine's graph, in a folder of its own; what came of it, and the `seconds`."""
    folder, begun = Storage.open(work) / name, time.perf_counter()
    make_graph(folder, encoder_in(model), name, "auto", TrainingDocuments(store, list(SPLITS)), 1)
    return read_checked(folder / "graph.json") | {"seconds": time.perf_counter() - begun}


def annotate_once(
    work: str, model: str, store: TokenStore, where: Placement | None = None, name: EngineName = "torch"
) -> dict[str, float]:
    """The whole annotate stage, timed from outside and by when each shard's file was finished.

    Args:
        work: a folder, where an engine's graph is that isn't torch.
        model: the encoder's folder.
        store: the corpus.
        where: of the actors; None: as by default.
        name: of the engine.
    """
    engine = TORCH if name == "torch" else Engine(name, graph_in(Storage.open(work) / name))
    with local_ray(), tempfile.TemporaryDirectory(dir=work) as out:
        where = where or placement(Annotate())
        stage = Stage("annotate", "benchmark", Storage.open(out))
        begun = time.time()
        encoder = encoder_in(model)
        summary = annotate(
            stage, store, list(SPLITS), encoder, Annotate(), 0, "auto", where, "annotating", engine=engine
        )
        seconds = time.time() - begun
        first, steady, sentences = pace(store, out, where.workers)
    return {
        "whole": sentences / seconds,
        "steady": steady,
        "first": first - begun,
        "start": seconds - sentences / steady,
        "workers": where.workers,
        "padding": 1 - summary["tokens"] / summary["padded_tokens"],
    }


def groups_of(store: TokenStore, workers: int) -> list[list[int]]:
    """The groups of shards that workers annotate.

    Raises:
        ValueError: too few for a steady state.
    """
    groups = TrainingDocuments(store, list(SPLITS)).groups()
    if len(groups) <= workers:
        raise ValueError(f"--sentences: too few for {workers} workers to go on after their first 2,000; take more")
    return groups


def pace(store: TokenStore, out: str, workers: int) -> tuple[float, float, int]:
    """When each worker had finished a group of shards, sentences a second from then on, and sentences in all."""
    sizes = [sum(len(documents_of(t).sentences) for t in store.read(i, SPLITS)) for i in range(store.shards)]
    ended = [(Path(out) / shard_name(i)).stat().st_mtime for i in range(store.shards)]
    # The shards of a group are finished together.
    ends = sorted((max(ended[i] for i in group), sum(sizes[i] for i in group)) for group in groups_of(store, workers))
    first, last = ends[workers - 1][0], ends[-1][0]
    return first, sum(size for _, size in ends[workers:]) / (last - first), sum(sizes)


def encode_once(model: str, sentences: list[str], dtype: str, batch: int) -> float:
    """Sentences a second of SentenceTransformer.encode, loading and a first small call left out."""
    baseline = load_baseline(model, dtype)
    baseline.encode(sentences[:64], batch_size=batch)
    begun = time.perf_counter()
    baseline.encode(sentences, batch_size=batch)
    return len(sentences) / (time.perf_counter() - begun)


def write_graphs(work: str, model: str) -> list[str]:
    """The encoder exported in every form that is installed, and what these are called."""
    folder = Path(work) / "exported"
    encoder, names = encoder_in(model).load(), []
    forms = {name: form for name, form in FORMATS.items() if installed(form.PACKAGES)}
    program = traced(encoder) if forms else None
    for name, form in forms.items():
        for int8 in (False, True):
            assert program is not None
            form.write(program, folder, int8)
            names.append(f"{name}{' int8' if int8 else ''}")
    return names


def encode_graph_once(work: str, model: str, sentences: list[str], name: str) -> float:
    """Sentences a second of an exported graph, by `Encode`, all cores in one process."""
    format_name, _, int8 = name.partition(" ")
    form = FORMATS[format_name]  # pyright: ignore[reportArgumentType]
    encoder = encoder_in(model).load()
    graph = GraphEncoder(encoder, form.Session(Path(work) / "exported" / form.file_name(bool(int8)), os.cpu_count()))
    Encode(encoder, graph, sentences[:64], GRAPH_BATCH)()
    encode = Encode(encoder, graph, sentences, GRAPH_BATCH)
    begun = time.perf_counter()
    encode()
    return len(sentences) / (time.perf_counter() - begun)


def best_of(model: str, sentences: list[str]) -> tuple[str, int]:
    """The type of weights and the batch size that SentenceTransformer.encode is fastest with."""
    return max(CANDIDATES, key=lambda candidate: encode_once(model, sentences, *candidate))


def tokenise_once(model: str, sentences: list[str]) -> float:
    """Seconds of SentenceTransformer.encode that are tokenising."""
    baseline = load_baseline(model, "fp32")
    ordered = sorted(sentences, key=len)
    begun = time.perf_counter()
    for start in range(0, len(ordered), 128):
        baseline.preprocess(ordered[start : start + 128])
    return time.perf_counter() - begun


def split_once(work: str, model: str, store: TokenStore) -> dict[str, float]:
    """Seconds of each part of what an actor does with its shards, in this process on one thread."""
    torch.set_num_threads(1)
    annotator, spent = Annotator(encoder_in(model), "auto", default_device()), defaultdict(float)
    began = 0.0

    def before(*_: object) -> None:
        nonlocal began
        began = now()

    def after(*_: object) -> None:
        spent["encoder"] += now() - began

    def clustering(vectors: torch.Tensor, offsets: np.ndarray) -> np.ndarray:
        begun = now()
        clusters = cluster(vectors, offsets, 1)
        spent["IDC"] += now() - begun
        return clusters

    annotator.encoder.register_forward_pre_hook(before)
    annotator.encoder.register_forward_hook(after)
    documents = TrainingDocuments(store, list(SPLITS))
    stage = AnnotateShards(documents, Storage.open(work) / "split", clustering)
    for shards in documents.groups():
        t0, inside = now(), spent["encoder"] + spent["IDC"]
        group = stage.read(annotator, shards)
        assert not isinstance(group, Written)
        t1 = now()
        group = stage.embed(annotator, group)
        t2 = now()
        stage.write(group)
        spent["reading, equal sentences"] += t1 - t0
        spent["tokens: sorting, padding"] += t2 - t1 - (spent["encoder"] + spent["IDC"] - inside)
        spent["writing"] += now() - t2
    return dict(spent)


def run(arguments: argparse.Namespace) -> None:
    """Measure and print."""
    documents = read_documents(arguments, arguments.sentences)
    if len(documents) < LANES:
        raise ValueError(f"--sentences {arguments.sentences}: {len(documents)} documents; take at least {LANES}")
    sentences = [sentence for document in documents for sentence in document]
    with tempfile.TemporaryDirectory() as work:
        store, workers = in_fresh_process(prepare_once, work, arguments.model, documents)
        groups_of(store, workers)
        best = in_fresh_process(best_of, arguments.model, sentences[:SAMPLE])
        tokenising = in_fresh_process(tokenise_once, arguments.model, sentences)
        rates: dict[tuple[str, int], list[float]] = {candidate: [] for candidate in (DEFAULT, best)}
        engines = in_fresh_process(engines_there)
        made: dict[EngineName, dict[str, Any]] = {
            name: in_fresh_process(convert_once, work, arguments.model, store, name) for name in engines[1:]
        }
        exported = in_fresh_process(write_graphs, work, arguments.model) if len(engines) > 1 else []
        graphs: dict[str, list[float]] = {name: [] for name in exported}
        ours: dict[EngineName, list[dict[str, float]]] = {name: [] for name in engines}
        for _ in range(arguments.repeats):
            for candidate, times in rates.items():
                times.append(in_fresh_process(encode_once, arguments.model, sentences, *candidate))
            for name, times in graphs.items():
                times.append(in_fresh_process(encode_graph_once, work, arguments.model, sentences, name))
            for name, runs in ours.items():
                runs.append(in_fresh_process(annotate_once, work, arguments.model, store, None, name))
        split = in_fresh_process(split_once, work, arguments.model, store)
    rows = [
        ("SentenceTransformer.encode, default (fp32, batch 32)", rates[DEFAULT]),
        (f"SentenceTransformer.encode, best ({best[0]}, batch {best[1]})", rates[best]),
        *((f"the exported graph alone, {name} (batch {GRAPH_BATCH})", times) for name, times in graphs.items()),
    ]
    fastest = max(statistics.median(times) for _, times in rows)
    for name, runs in ours.items():
        rows.append((f"annotate by {name}, whole stage with the start of its actors", [run["whole"] for run in runs]))
        rows.append((f"annotate by {name}, steady state", [run["steady"] for run in runs]))
    reference = [*(statistics.median(rates[candidate]) for candidate in (DEFAULT, best)), fastest]
    table(
        ("", "sentences/s, median", "runs", "x default", "x best of torch", "x best of all but annotate"),
        [
            (name, f"{(m := statistics.median(times)):,.0f}", spread(times), *(f"{m / r:.2f}" for r in reference))
            for name, times in rows
        ],
    )
    parts = sorted(split.items(), key=lambda part: -part[1])
    share = [(name, f"{s:.2f}", f"{100 * s / sum(split.values()):.1f} %") for name, s in parts]
    table(("part of annotate, on one thread", "seconds", "share"), share)
    distinct = len(set(sentences)) / len(sentences)
    first, start = (
        {name: statistics.median(run[what] for run in runs) for name, runs in ours.items()}
        for what in ("first", "start")
    )
    notes(
        f"{len(sentences):,} sentences ({100 * distinct:.1f} % distinct) of {len(documents):,} documents, cut at "
        f"{MAX_LENGTH} tokens, K = 1, {store.shards} shards; {ours['torch'][0]['workers']:.0f} annotate workers, "
        f"padding {100 * ours['torch'][0]['padding']:.1f} %.",
        "The whole stage is the call of `annotate` on a running Ray, with its actors' imports and loading; each actor "
        f"had finished its first group of shards after {_each(first)} s (median). The steady state is what came after: "
        f"beyond what all sentences take at that pace, the whole stage took {_each(start)} s to start and end.",
        *_said_of_graphs(made),
        f"encode, like a graph alone, has all cores in one process, after loading and one small call; the best of "
        f"{len(CANDIDATES)} settings was found on {SAMPLE:,} sentences. It tokenises, which takes {tokenising:.1f} s "
        f"of it; here that was done once by the prepare stage ({store.summary['seconds']:.1f} s, Ray's tasks and "
        "shuffle included) and is not in the figures of annotate.",
    )


def _each(values: Mapping[Any, float]) -> str:
    return ", ".join(f"{value:.1f} ({name})" for name, value in values.items())


def _said_of_graphs(made: dict[EngineName, dict[str, Any]]) -> list[str]:
    lines = []
    if made:
        seconds = _each({name: record["seconds"] for name, record in made.items()})
        lines.append(f"Converting took once {seconds} s, loading included, and is in no figure.")
    if (small := made.get("openvino_int8")) is not None and small["agreement"] is not None:
        lines.append(
            f"openvino_int8: {small['agreement']:.1%} of the top-K edges of a sample are those of fp32"
            + (", of square matrices alone" if small["only_square"] else "")
            + f"; annotating takes it from {LEAST_AGREEMENT:.0%}."
        )
    return lines
