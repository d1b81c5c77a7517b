"""What computes the backbone while a corpus is annotated: torch, or on CPUs OpenVINO, from a graph converted once.

1. `engine_of` settles which, from the settings, the corpus' size, and what is there.
2. `make_graph` converts the backbone; of products in 8 bits it takes as many as leave the edges of a sample.
3. Actors get an `Engine`, and embed with what it makes of the encoder.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch

from infocse_ray.annotate.documents import TrainingDocuments, joined
from infocse_ray.annotate.idc import top_k_edges
from infocse_ray.corpus.copies import without_copies
from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder import openvino
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import Precision, embed, for_inference, inference_dtype, length_buckets
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.runtime.libraries import check_installed, installed
from infocse_ray.settings import EngineName
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage

PAYS_FROM = 200_000
"""Sentences from which `auto` has the backbone converted. Converting takes a task of its own, some 15 s of
all cores; OpenVINO saves 0.6 ms of a core a sentence (docs/measurements.md): even at 50,000 on two cores."""

LEAST_AGREEMENT = 0.97
"""Of the top-K edges of the sample that are there in fp32, those that are there in 8 bits."""

_SAMPLE = 2_000
"""Sentences, in whole documents, whose edges are compared."""

_CALIBRATED_ON = 300
"""Sentences by which the ranges of activations are found."""

_CALIBRATION_TOKENS = 512
"""In a batch of these, padding included."""

_GRAPH = "backbone.graph"


class Engine(NamedTuple):
    """What computes the backbone."""

    name: EngineName = "torch"
    graph: Storage | None = None
    """The converted backbone; None: torch."""

    def ready(self, encoder: SentenceEncoder, precision: Precision, device: torch.device) -> SentenceEncoder:
        """The encoder, as it was loaded, for embedding.

        Raises:
            DamagedFile: the graph isn't as it was written.
        """
        if self.graph is None:
            return for_inference(encoder, precision, device)
        check_installed(openvino.PACKAGES[False], openvino.EXTRA, f"annotate.engine = {self.name} on this machine")
        return openvino.with_backbone(encoder, self.graph, inference_dtype(precision, device) == torch.bfloat16)


TORCH = Engine()


class Chosen(NamedTuple):
    """An engine, and why it is that."""

    name: EngineName
    why: str

    def line(self) -> str:
        """For people."""
        return f"annotates with {self.name}: {self.why}"


def check_engine(asked: EngineName | Literal["auto"], use_gpu: bool) -> None:
    """Refuse an engine that is asked for and can't be had.

    Raises:
        ValueError: it is for CPUs, or isn't installed.
    """
    if asked in ("auto", "torch"):
        return
    if use_gpu:
        raise ValueError(
            f"annotate.engine = {asked}: OpenVINO is for CPUs, and annotating has GPUs; set it to auto, or "
            "annotate.use_gpu to false"
        )
    check_installed(openvino.PACKAGES[asked == "openvino_int8"], openvino.EXTRA, f"annotate.engine = {asked}")


def engine_of(asked: EngineName | Literal["auto"], sentences: int, use_gpu: bool) -> Chosen:
    """Settle the engine: by what is asked for, the corpus, and what is installed, and nothing that changes by the way.

    Args:
        asked: `annotate.engine`.
        sentences: that are annotated.
        use_gpu: whether actors have GPUs.

    Raises:
        ValueError: it is asked for and can't be had.
    """
    check_engine(asked, use_gpu)
    if asked != "auto":
        return Chosen(asked, "as annotate.engine says")
    if use_gpu:
        return Chosen("torch", "OpenVINO is for CPUs")
    if sentences < PAYS_FROM:
        return Chosen("torch", f"converting pays from about {PAYS_FROM:,} sentences, and {sentences:,} are annotated")
    if not installed(openvino.PACKAGES[False]):
        return Chosen("torch", "OpenVINO, which is faster, isn't installed (pip install 'infocse-ray[openvino]')")
    return Chosen("openvino", f"{sentences:,} sentences are annotated")


def graph_in(folder: Storage) -> Storage:
    """The file of the graph in its stage's folder."""
    return folder / _GRAPH


def make_graph(
    folder: Storage,
    encoder: EncoderFolder,
    name: EngineName,
    precision: Precision,
    documents: TrainingDocuments,
    k: int,
) -> None:
    """Convert the backbone, and say in `graph.json` what came of it: `bytes`, and of 8 bits `agreement`, `only_square`.

    Args:
        folder: of the stage.
        encoder: what is converted.
        name: of the engine.
        precision: of embedding.
        documents: that are to be annotated.
        k: edges a sentence keeps.
    """
    original, file, record = encoder.load(), graph_in(folder), {}
    model = openvino.converted(original)
    if name == "openvino":
        record["bytes"] = openvino.write_backbone(model, file)
    else:
        sample, cpu = _sample(documents, original.room()), torch.device("cpu")
        exact = edges_of(for_inference(original, "fp32", cpu), sample, k)
        batches = _batches(original, sample.sentences)
        for only_square in (False, True):
            record["bytes"] = openvino.write_backbone(openvino.quantised(model, batches, only_square), file)
            small = Engine(name, file).ready(original, precision, cpu)
            record |= {"only_square": only_square, "agreement": agreement(exact, edges_of(small, sample, k))}
            if agrees(record["agreement"]):
                break
    (folder / "graph.json").write_json(checked(record))


def _batches(encoder: SentenceEncoder, sentences: Tokens) -> list[list[np.ndarray]]:
    """Some of the sentences, as batches."""
    rows = np.linspace(0, len(sentences) - 1, min(_CALIBRATED_ON, len(sentences))).astype(np.int64)
    some = sentences.take(rows)
    return [
        [tensor.numpy() for tensor in encoder.pad(some.take(batch))]
        for batch in length_buckets(encoder.lengths(some), _CALIBRATION_TOKENS)
    ]


def agrees(share: float | None) -> bool:
    """Whether so many edges agree that it may annotate; None: there is none in the sample."""
    return share is None or share >= LEAST_AGREEMENT


def check_agreement(share: float | None) -> None:
    """Refuse products in 8 bits that make other edges.

    Args:
        share: of the edges that agree; None: there is none in the sample.

    Raises:
        ValueError: too few agree.
    """
    if share is not None and not agrees(share):
        raise ValueError(
            f"annotate.engine = openvino_int8: with products in 8 bits {share:.1%} of the edges of a sample are those "
            f"of fp32, and at least {LEAST_AGREEMENT:.0%} should be; set it to openvino"
        )


def _sample(documents: TrainingDocuments, room: int) -> Documents:
    """The first documents, which are random ones, as the store is ordered by a hash."""
    parts: list[Documents] = []
    for shard in range(documents.store.shards):
        parts += documents.read(shard)
        if sum(len(part.sentences) for part in parts) >= _SAMPLE:
            break
    nodes = without_copies(joined(parts), room)[0]
    last = max(1, int(np.searchsorted(nodes.offsets, _SAMPLE, side="right")) - 1)
    offsets = nodes.offsets[: last + 1]
    return nodes._replace(
        keys=nodes.keys[:last], offsets=offsets, sentences=nodes.sentences.take(np.arange(offsets[-1]))
    )


def edges_of(encoder: SentenceEncoder, documents: Documents, k: int) -> np.ndarray:
    """The top-K edges inside the documents (Eq. 3), int64 [e], each a number made of its ends, ascending."""
    sentences: Tokens = documents.sentences
    edges = top_k_edges(embed(encoder, sentences).vectors, documents.offsets, k)
    return np.sort(edges.source * len(sentences) + edges.target)


def agreement(one: np.ndarray, other: np.ndarray) -> float | None:
    """The share of the edges of one that the other has (see `edges_of`); None where it has none."""
    return float(np.isin(one, other).mean()) if len(one) else None
