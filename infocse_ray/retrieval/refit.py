"""Whiten an encoder anew, on all workers together: it is done whenever the backbone has changed.

1. Moments of the sentences of a sample of documents, those with the smallest hashes: enough for a good map.
2. One map for each power to choose from; the chosen one is that with which validation documents, each without one of
   its sentences, best find that sentence (mean reciprocal rank). The sentences are embedded once for all powers.
3. Where documents are read whole, too, the map is fitted, with that power, on sentences and whole texts of a sample
   (`Mixture`). The power is chosen before: asked for sentences, a map that knows nothing else is at an advantage.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from infocse_ray.corpus.store import TokenStore, documents_of, drawn_sentences
from infocse_ray.corpus.tokens import NO_TOKENS, Tokens, concatenate
from infocse_ray.distributed.collectives import all_reduce_sum, of_first, rank, workers
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE, embed
from infocse_ray.encoder.mixture import Mixture
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.moments import Moments
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.encoder.whitening_fit import (
    POWERS,
    SENTENCES_A_DIMENSION,
    WHOLE_A_DIMENSION,
    fit_whitening,
    fit_whitenings,
)
from infocse_ray.errors import ConstantVectors
from infocse_ray.retrieval.documents import cut_at, one_text_each, whole_length
from infocse_ray.retrieval.held_out import HeldOut, held_out_for, key_limit, score_held_out
from infocse_ray.retrieval.scores import Scores

CHOOSING_DOCUMENTS = 1_000
"""Validation documents, at most, that a power is chosen by: some 4,000 questions."""


_LEAST_DOCUMENTS = 64
"""That the sentences of a map are of: those of one or two say nothing of the others."""

UNCHOSEN = 0.5
"""The power where none can be chosen: on all corpora of docs/results_by_sentences.md it is near the best."""


class WhiteningPlan(NamedTuple):
    """How encoders are whitened in a run."""

    power: float | None
    """None: the best of POWERS."""
    dimensions: int | None
    """Of the whitened vectors; None: all."""
    splits: list[str]
    """Whose sentences it is fitted on."""
    seed: int
    """Of the choice of the sentences that are taken out."""
    whole: bool = False
    """Whether it is fitted on whole texts, too."""

    def identity(self) -> list[Any]:
        """What names a result of it: of a plan without whole texts as before there were such."""
        return list(self) if self.whole else list(self)[:-1]


class Sample(NamedTuple):
    """Which sentences a map is fitted on, about 16 a dimension."""

    limit: int
    """Those of documents with a key below it."""
    share: float
    """Of these, so many, drawn by hash: less than 1 where documents are so long that few would have as many."""

    @classmethod
    def of(cls, store: TokenStore, splits: list[str], dimension: int) -> Sample:
        """The sample of a store, for vectors of so many dimensions."""
        # The store counts sentences over all splits; a part of its documents is taken to have its part of them.
        summary, documents = store.summary, store.documents(splits)
        part = documents / max(1, sum(summary["documents"].values()))
        there = max(1, round(part * summary["sentences"]))
        most = SENTENCES_A_DIMENSION * dimension
        enough = 2**63 if there <= most else 2**63 * most // there
        limit = max(enough, key_limit(documents, _LEAST_DOCUMENTS))
        return cls(limit, enough / limit)


def whole_sample(store: TokenStore, splits: list[str], dimension: int) -> Sample:
    """The documents that are sampled as whole texts: about one for each dimension."""
    return Sample(key_limit(store.documents(splits), WHOLE_A_DIMENSION * dimension), 1.0)


def sampled(
    store: TokenStore, splits: list[str], sample: Sample, shard: int, whole_for: SentenceEncoder | None = None
) -> Tokens:
    """The sentences of the sample that are of a shard's documents of these splits.

    With `whole_for` they are each document as one text, as that encoder's tokenizer has it.
    """
    limit = sample.limit
    parts = [NO_TOKENS]
    if shard in store.shards_below(limit):
        for table in store.read(shard, splits, ["doc_id", "key", "sentences"]):
            documents = documents_of(table.filter(pa.array(table["key"].to_numpy() < limit)))
            sentences = documents.sentences
            if whole_for is not None:
                parts.append(one_text_each(whole_for, sentences, documents.offsets))
            elif sample.share < 1.0:
                parts.append(sentences.take(drawn_sentences(documents, sample.share, seed=0)))
            else:
                parts.append(sentences)
    return concatenate(parts)


def moments_of(encoder: SentenceEncoder, sentences: Tokens) -> Moments:
    """The moments of the encoder's vectors before whitening; sentences that occur twice count twice.

    Args:
        encoder: in evaluation mode, without whitening.
        sentences: any number.
    """
    moments = Moments.none(encoder.dimension)
    for begin in range(0, len(sentences), SENTENCES_AT_ONCE):
        rows = np.arange(begin, min(begin + SENTENCES_AT_ONCE, len(sentences)))
        moments = moments.merged(Moments.of(embed(encoder, sentences.take(rows)).vectors))
    return moments


def moments_of_whole(encoder: SentenceEncoder, texts: Tokens) -> Moments:
    """As `moments_of`, of whole texts, each cut at `whole_length`."""
    with cut_at(encoder, whole_length(encoder)):
        return moments_of(encoder, texts)


def best_whitening(
    moments: Moments,
    plan: WhiteningPlan,
    vectors: torch.Tensor | None,
    held_out: HeldOut | None,
    whole: Moments | None = None,
) -> tuple[Whitening, dict[str, float]]:
    """The map of the plan's power, or of the one that scores best without labels.

    Args:
        moments: of all workers' sentences.
        plan: of the run.
        vectors: float32 [sentences, d] of this worker's part of `held_out`, before whitening; both are only read where
            a power is chosen. Every worker of the process group must call.
        held_out: what asks.
        whole: of all workers' whole texts, where the plan has them.

    Returns:
        The map, on the vectors' device, and the score of every power that it was chosen among; none where no document
        has sentences enough to be asked, and the power is UNCHOSEN.

    Raises:
        ValueError: there is nothing to fit it on.
    """
    fitted = moments if whole is None or not whole.count or not moments.count else Mixture(moments, whole)
    if plan.power is not None:
        return fit_whitening(fitted, plan.power, plan.dimensions), {}
    assert vectors is not None
    assert held_out is not None
    scores: dict[str, float] = {}
    if not int(all_reduce_sum(torch.tensor(len(held_out.true_keys), device=vectors.device))):
        return _everywhere(fit_whitening(fitted, UNCHOSEN, plan.dimensions).to(vectors.device)), scores
    maps = [_everywhere(one.to(vectors.device)) for one in fit_whitenings(moments, POWERS, plan.dimensions)]
    for one in maps:
        with torch.inference_mode():
            scores[f"{one.power:g}"] = score_held_out(one(vectors), held_out).metrics["mrr"]
    # max() returns the first of equals: the smallest power.
    best = max(maps, key=lambda one: scores[f"{one.power:g}"])
    if fitted is not moments:
        best = _everywhere(fit_whitening(fitted, best.power, plan.dimensions).to(vectors.device))
    return best, scores


def _everywhere(whitening: Whitening) -> Whitening:
    """The first worker's: another processor may find the same eigenvectors with other signs."""
    return Whitening(of_first(whitening.mean), of_first(whitening.matrix), whitening.power)


def _over_workers(own: Moments, device: torch.device) -> Moments:
    """Those of all workers; all of them must call."""
    count, first, second = (
        all_reduce_sum(torch.as_tensor(part, device=device)) for part in (own.count, own.first, own.second)
    )
    return Moments(int(count), first.cpu().numpy(), second.cpu().numpy())


class Refit(NamedTuple):
    """A worker's share of what whitening an encoder needs."""

    plan: WhiteningPlan
    sample: Tokens
    whole: Tokens | None
    """Whole texts; None if the map isn't fitted on any."""
    held_out: HeldOut | None
    """The held-out sentences that choose the power; None if it is given."""

    @classmethod
    def of(cls, plan: WhiteningPlan, store: TokenStore, encoder: SentenceEncoder, device: torch.device) -> Refit:
        """Read this worker's share: the shards whose number is its rank modulo the workers.

        Args:
            plan: of the run.
            store: of its corpus.
            encoder: whose dimension says how much is sampled, and whose tokenizer made the store.
            device: that workers can exchange from.
        """

        def share(of: Sample, whole_for: SentenceEncoder | None = None) -> Tokens:
            shards = range(rank(), store.shards, workers())
            own = [sampled(store, plan.splits, of, shard, whole_for) for shard in shards]
            return concatenate(own) if own else sampled(store, [], Sample(0, 1.0), 0)

        dimension = encoder.base_dimension
        sample = share(Sample.of(store, plan.splits, dimension))
        texts = share(whole_sample(store, plan.splits, dimension), encoder) if plan.whole else None
        held_out = None
        if plan.power is None:
            held_out = held_out_for(store, "valid", plan.seed, CHOOSING_DOCUMENTS, device)
        return cls(plan, sample, texts, held_out)

    def __call__(self, encoder: SentenceEncoder) -> Whitening:
        """The encoder's whitening, the same on every worker; all of them must call. See `fit`."""
        return self.fit(encoder)[0]

    def fit(self, encoder: SentenceEncoder) -> tuple[Whitening, torch.Tensor | None]:
        """The encoder's whitening, the same on every worker; all of them must call.

        Args:
            encoder: in evaluation mode, in the precision to use; it loses the whitening that it has.

        Returns:
            The map (the one that it had, where all its vectors are the same now), and the vectors of `held_out`
            before it, float32 [sentences, d].

        Raises:
            ConstantVectors: all its vectors are the same, and it had no whitening before.
            ValueError: there is nothing to fit it on.
        """
        before, encoder.whitening = encoder.whitening, None
        device = encoder.device
        moments = _over_workers(moments_of(encoder, self.sample), device)
        whole = None if self.whole is None else _over_workers(moments_of_whole(encoder, self.whole), device)
        vectors = None if self.held_out is None else self.held_out.embed(encoder)
        try:
            whitening, _ = best_whitening(moments, self.plan, vectors, self.held_out, whole)
        except ConstantVectors:
            if before is None:
                raise
            # A training that collapsed: whatever the map, all vectors are alike, find nothing, and aren't chosen.
            whitening = before.to(device)
        return (whitening if vectors is not None else _everywhere(whitening.to(device))), vectors

    def scores(self, encoder: SentenceEncoder, questions: object) -> Scores | None:
        """Whiten an encoder anew, and score it if it is validated by what chooses its power.

        The vectors of these sentences are there then, and only the map has to be put behind them. That is so where the
        validation documents are no more than those that choose.

        Args:
            encoder: in evaluation mode, in the precision to use; it gets the whitening.
            questions: this worker's share of the validation; every worker of the process group must call.

        Returns:
            The scores; None where others are asked, which are still to be embedded.
        """
        encoder.whitening, vectors = self.fit(encoder)
        if vectors is None or self.held_out is None or not isinstance(questions, HeldOut):
            return None
        ours, theirs = (
            (asked.sentences.offsets, asked.sentences.values, asked.offsets, asked.rows)
            for asked in (self.held_out, questions)
        )
        if not all(np.array_equal(mine, other) for mine, other in zip(ours, theirs, strict=True)):
            return None
        return score_held_out(encoder.whitening(vectors), questions)
