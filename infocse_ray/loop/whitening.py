"""The whitening of the encoder that a run starts from, fitted in one pass over a sample of the corpus.

1. Actors with the encoder write the moments of the sampled sentences of each group of shards, those of whole texts
   where documents are read whole, too, and the vectors of the validation sentences that a power is chosen by.
2. One task merges the moments, whose sum depends neither on the actors nor on their order, and fits the map.
3. The driver saves the encoder with it. Later encoders are whitened by the workers that train them.
"""

from __future__ import annotations

import functools
import time
from typing import Any, NamedTuple

import numpy as np
import torch

from infocse_ray.annotate.actor import in_actors, is_small
from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.annotate.kmeans import load_array, save_array
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokens import Tokens, concatenate
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import Precision
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.moments import Moments
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.encoder.whitening_fit import SENTENCES_A_DIMENSION, WHOLE_A_DIMENSION
from infocse_ray.loop.identity import whitening_identity
from infocse_ray.loop.speed import speed_of
from infocse_ray.retrieval.documents import cut_at, whole_length
from infocse_ray.retrieval.held_out import held_out_for, key_limit
from infocse_ray.retrieval.refit import (
    CHOOSING_DOCUMENTS,
    Sample,
    WhiteningPlan,
    best_whitening,
    moments_of,
    moments_of_whole,
    sampled,
    whole_sample,
)
from infocse_ray.retrieval.whitening_curves import whitening_curves
from infocse_ray.runtime.cluster import Placement, quiet_data
from infocse_ray.runtime.kept_process import of_one
from infocse_ray.runtime.progress import Bar, say
from infocse_ray.runtime.tasks import in_one_task
from infocse_ray.settings import Settings, fingerprint
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.checksums import checked, read_checked, read_sealed, sealed
from infocse_ray.storage.folder import Storage


def whitening_plan(settings: Settings, encoder: SentenceEncoder, splits: list[str]) -> WhiteningPlan | None:
    """How encoders are whitened in a run; None: they aren't.

    Args:
        settings: of the run.
        encoder: that it starts from.
        splits: whose sentences are trained on.

    Raises:
        ValueError: the encoder's vectors are not of length 1, or have fewer dimensions than asked for.
    """
    section = settings.encoder
    if settings.train.whitened and encoder.whitening is None and (section.whiten == "off" or not encoder.normalize):
        raise ValueError(
            "train.whitened = true: there is no whitening; set encoder.whiten to auto and train.similarity to cosine"
        )
    if section.dimensions is not None and section.dimensions > encoder.base_dimension:
        raise ValueError(
            f"encoder.dimensions = {section.dimensions}: the encoder's vectors have {encoder.base_dimension}; set it "
            "to that or less"
        )
    if section.whiten == "off":
        return None
    if not encoder.normalize:
        asked = {"whiten": section.whiten if section.whiten != "auto" else None, "dimensions": section.dimensions}
        for name, value in asked.items():
            if value is None:
                continue
            raise ValueError(
                f"encoder.{name} = {value:g}: whitened vectors are compared by cosine; set train.similarity to cosine, "
                "or leave it out"
            )
        return None
    power = None if section.whiten == "auto" else float(section.whiten)
    return WhiteningPlan(power, section.dimensions, splits, settings.seed, settings.validate.reading != "sentences")


def trained_dimension(settings: Settings, encoder: SentenceEncoder) -> int:
    """Of the vectors that the loss compares."""
    if not settings.train.whitened:
        return encoder.base_dimension
    refitted = settings.encoder.whiten != "off"
    return settings.encoder.dimensions or (encoder.base_dimension if refitted else encoder.dimension)


class _FitPieces(NamedTuple):
    """Writes what the fit needs of a group of shards."""

    plan: WhiteningPlan
    store: TokenStore
    folder: Storage

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        """Write the group's pieces unless they are there; return how many shards it is of, and what embedding took."""
        moments, whole, vectors = (
            self.folder / "parts" / f"{kind}-{shards[0]:06d}" for kind in ("moments", "whole", "vectors")
        )
        encoder, begun, tokens = annotator.encoder, time.monotonic(), 0
        if self.plan.power is None and not vectors.exists():
            asking = held_out_for(self.store, "valid", self.plan.seed, CHOOSING_DOCUMENTS, shards=shards)
            save_array(vectors, asking.embed(encoder).cpu().numpy())
            tokens += _tokens(encoder, asking.sentences)
        if not moments.exists():
            sample = Sample.of(self.store, self.plan.splits, encoder.dimension)
            sentences = concatenate([sampled(self.store, self.plan.splits, sample, shard) for shard in shards])
            moments.write_bytes(sealed(moments_of(encoder, sentences).to_bytes()))
            tokens += _tokens(encoder, sentences)
        if self.plan.whole and not whole.exists():
            sample = whole_sample(self.store, self.plan.splits, encoder.dimension)
            texts = concatenate([sampled(self.store, self.plan.splits, sample, shard, encoder) for shard in shards])
            whole.write_bytes(sealed(moments_of_whole(encoder, texts).to_bytes()))
            with cut_at(encoder, whole_length(encoder)):
                tokens += _tokens(encoder, texts)
        return [{"shards": len(shards), "tokens": tokens, "seconds": time.monotonic() - begun if tokens else 0.0}]


def _tokens(encoder: SentenceEncoder, sentences: Tokens) -> int:
    """Tokens that it reads of them."""
    return int(encoder.lengths(sentences).sum())


def _fit(plan: WhiteningPlan, store: TokenStore, folder: Storage) -> None:
    """Fit the map on the pieces and write it: `mean.npy`, `matrix.npy`, and `whitening.json` with the rest.

    Its `curves` are for people (see `whitening_curves`).
    """
    parts = folder / "parts"
    names = sorted(parts.files())

    def merged(kind: str) -> Moments:
        read = (Moments.from_bytes(read_sealed(parts / name)) for name in names if name.startswith(kind))
        return functools.reduce(Moments.merged, read)

    moments, whole = merged("moments"), merged("whole") if plan.whole else None
    held_out = vectors = None
    if plan.power is None:
        held_out = held_out_for(store, "valid", plan.seed, CHOOSING_DOCUMENTS)
        parts_read = [load_array(parts / name) for name in names if name.startswith("vectors")]
        vectors = torch.from_numpy(np.concatenate(parts_read))
    whitening, scores = best_whitening(moments, plan, vectors, held_out, whole)
    save_array(folder / "mean.npy", whitening.mean.numpy())
    save_array(folder / "matrix.npy", whitening.matrix.numpy())
    curves = whitening_curves(moments, whitening.power, plan.dimensions, vectors, held_out)
    record = {"power": whitening.power, "scores": scores, "sentences": moments.count, "curves": curves}
    record |= {} if whole is None else {"whole": whole.count}
    (folder / "whitening.json").write_json(checked(record))


def whiten_start(
    root: Storage,
    folder: Storage,
    store: TokenStore,
    encoder: SentenceEncoder,
    saved: EncoderFolder,
    plan: WhiteningPlan,
    precision: Precision,
    placement: Placement,
) -> tuple[Stage, EncoderFolder]:
    """The encoder that a run starts from, whitened.

    Args:
        root: the storage that runs share.
        folder: where the stage goes.
        store: the corpus.
        encoder: what is whitened, on this machine.
        saved: the same, where actors find it.
        plan: of the run.
        precision: of embedding.
        placement: of the actors.

    Returns:
        The stage, whose summary has `power`, the `sentences` it was fitted on and, where the plan has them, how many
        `whole` texts, the vectors' `dimension`, where the power was chosen the `scores` (MRR) of all, and the `speed`
        of embedding (see `Speed`) where it was seen; and the whitened encoder.

    Raises:
        ValueError: there is nothing to fit it on.
    """
    plain = saved.without_whitening()
    share = Sample.of(store, plan.splits, encoder.base_dimension).share
    identity = whitening_identity(store.fingerprint, plain.fingerprint, plan, precision, share)

    def work(stage: Stage) -> dict[str, Any]:
        quiet_data()
        groups = _groups(store, plan, encoder.base_dimension)
        bar = Bar("whitening", sum(map(len, groups)), "shards")
        begun, tokens, busy = time.monotonic(), 0, 0.0
        pieces, sample = _FitPieces(plan, store, stage.folder), _tokens_of_sample(store, plan, encoder.base_dimension)
        for row in in_actors(groups, plain, precision, placement, pieces, title="whitening", tokens=sample):
            bar.add(row["shards"])
            tokens, busy = tokens + row["tokens"], busy + row["seconds"]
        bar.close()
        small = is_small(sample, plain, placement)
        actors = 1 if small else min(placement.workers, len(groups))
        times = of_one(placement) if small else 1.0
        speed = speed_of(tokens, busy, actors, time.monotonic() - begun, times) if tokens else None
        in_one_task(_fit, plan, store, stage.folder, where=placement, title="whitening")
        record = read_checked(stage.folder / "whitening.json")
        mean, matrix = (torch.from_numpy(load_array(stage.folder / f"{name}.npy")) for name in ("mean", "matrix"))
        had, encoder.whitening = encoder.whitening, Whitening(mean, matrix, record["power"])
        EncoderFolder.save(encoder, stage.folder / "model", like=saved.folder)
        encoder.whitening = had
        (stage.folder / "parts").delete()
        kept = {name: record[name] for name in ("power", "scores", "sentences", "whole") if name in record}
        return kept | {"dimension": matrix.shape[1], "speed": None if speed is None else list(speed)}

    stage = run_stage(root, folder, "whitening", identity, work)
    summary = stage.summary or {}
    texts = f" and {summary['whole']:,} whole documents" if "whole" in summary else ""
    fitted = f"fitted on {summary['sentences']:,} sentences{texts}"
    say(f"whitened: power {summary['power']:g}, {fitted} ({stage.seconds:.0f} s)")
    if plan.power is None and not summary["scores"]:
        say(
            "  warning: no power can be chosen, as no validation document has a sentence to take out and find; set "
            "encoder.whiten to a number"
        )
    return stage, EncoderFolder(stage.folder / "model", fingerprint("encoder", identity), saved.max_length)


def _tokens_of_sample(store: TokenStore, plan: WhiteningPlan, dimension: int) -> float:
    """About how many tokens are embedded for the fit, and to choose a power."""
    summary = store.summary
    documents = max(1, sum(summary["documents"].values()))
    a_sentence, a_document = (summary["tokens"] / max(1, count) for count in (summary["sentences"], documents))
    tokens = min(SENTENCES_A_DIMENSION * dimension * a_sentence, summary["tokens"])
    whole = WHOLE_A_DIMENSION * dimension if plan.whole else 0
    asking = CHOOSING_DOCUMENTS if plan.power is None else 0
    return tokens + sum(min(count, documents) * a_document for count in (whole, asking))


def _groups(store: TokenStore, plan: WhiteningPlan, dimension: int) -> list[list[int]]:
    """The groups of shards that have sentences of the sample, or to choose a power by: the first, as both go by key."""
    limit = Sample.of(store, plan.splits, dimension).limit
    if plan.whole:
        limit = max(limit, whole_sample(store, plan.splits, dimension).limit)
    if plan.power is None:
        limit = max(limit, key_limit(store.summary["documents"]["valid"], CHOOSING_DOCUMENTS))
    groups = TrainingDocuments(store, plan.splits).groups()
    return [group for group in groups if group[0] in store.shards_below(limit)]
