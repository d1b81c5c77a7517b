"""The documents that an annotate stage reads: the run's own rows, and the same sentences as the encoder reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from infocse_ray.annotate.share import Share, in_all
from infocse_ray.corpus.store import Documents, TokenStore, documents_of
from infocse_ray.corpus.tokens import concatenate, offsets_of

COLUMNS = ["doc_id", "key", "split", "sentences"]
"""Of the token store, that annotating reads."""

_SENTENCES_TOGETHER = 2_048


class TrainingDocuments(NamedTuple):
    """The documents of some splits of a token store, beside whose row groups the annotations lie."""

    store: TokenStore
    splits: list[str]
    encoder_store: TokenStore | None = None
    """The same corpus as the encoder's own tokenizer has it, where that is another than the run's."""
    draws: Sequence[Share] = ()
    """These documents are in all of them; without any they are all."""

    @property
    def shards(self) -> Sequence[int]:
        """The shards, ascending."""
        every: Sequence[int] = range(self.store.shards)
        drawn = [set(share.shards(self.store)) for share in self.draws]
        return sorted(set.intersection(*drawn)) if drawn else every

    @property
    def count(self) -> int:
        """How many there are; where only some are drawn, about so many."""
        return round(self.store.documents(self.splits) * self.part)

    @property
    def sentences(self) -> float:
        """About how many sentences: the store counts them over all splits, and a split is taken to have its part."""
        every = self.store.documents(self.splits) / max(1, sum(self.store.summary["documents"].values()))
        return every * self.store.summary["sentences"] * self.part

    @property
    def tokens(self) -> float:
        """About how many of the run's own tokens, likewise."""
        summary = self.store.summary
        return self.sentences / max(1, summary["sentences"]) * summary["tokens"]

    @property
    def part(self) -> float:
        """About which part of the store's documents they are."""
        return in_all(self.draws) * len(self.shards) / self.store.shards

    def tables(self, shard: int, store: TokenStore | None = None) -> Iterator[pa.Table]:
        """The row groups of a shard, of the encoder's store or the run's; one may have no documents."""
        for table in (store or self.store).read(shard, self.splits, COLUMNS):
            keys = table["key"].to_numpy()
            kept = [share.has(keys) for share in self.draws if not share.whole_shards]
            yield table.filter(pa.array(np.logical_and.reduce(kept))) if kept else table

    def own(self, shard: int) -> list[Documents]:
        """The row groups of a shard, in the run's own tokens."""
        return [documents_of(table) for table in self.tables(shard)]

    def read(self, shard: int) -> list[Documents]:
        """The row groups of a shard, as the encoder reads them.

        Raises:
            ValueError: the two stores don't have the same documents with as many sentences.
        """
        own = self.own(shard)
        if self.encoder_store is None:
            return own
        read = [documents_of(table) for table in self.tables(shard, self.encoder_store)]
        if len(own) != len(read) or not all(_agree(a, b) for a, b in zip(own, read, strict=True)):
            raise ValueError(_disagreement(self.encoder_store, self.store, f"the documents of shard {shard}"))
        return read

    def own_tokens(self, longest: int) -> int | None:
        """How many of the run's own tokens `longest` of the encoder's are; None: it reads others."""
        return longest if self.encoder_store is None else None

    def check(self) -> None:
        """See, from what the two stores counted, that they hold one corpus.

        Raises:
            ValueError: they don't.
        """
        if self.encoder_store is not None:
            for count in ("shards", "documents", "sentences"):
                if self.encoder_store.summary[count] != self.store.summary[count]:
                    raise ValueError(_disagreement(self.encoder_store, self.store, f"the number of {count}"))

    def groups(self) -> list[list[int]]:
        """Shards that are annotated together: as many neighbours as make some 2,000 sentences, lest much be padding.

        A function of the store and the shards alone: annotations must not depend on the number of actors.
        """
        shards, part = self.shards, min((share.documents for share in self.draws), default=1.0)
        size = max(1, int(_SENTENCES_TOGETHER * self.store.shards // max(1, self.store.summary["sentences"] * part)))
        return [list(shards[first : first + size]) for first in range(0, len(shards), size)]


def _agree(own: Documents, read: Documents) -> bool:
    return own.doc_ids.equals(read.doc_ids) and np.array_equal(own.offsets, read.offsets)


def _disagreement(read: TokenStore, own: TokenStore, what: str) -> str:
    return (
        f"annotate.first_encoder: {read.folder} and {own.folder} should hold one corpus and differ in {what}; delete "
        "both, so that they are made again"
    )


def joined(parts: list[Documents]) -> Documents:
    """Documents of all parts, all annotated or none, one after the other; ids are the first part's and mean nothing."""
    offsets = offsets_of(np.concatenate([np.diff(part.offsets) for part in parts]))
    keys = np.concatenate([part.keys for part in parts])
    sentences = concatenate([part.sentences for part in parts])
    clusters = [part.clusters for part in parts if part.clusters is not None]
    together = np.concatenate(clusters) if clusters else None
    return parts[0]._replace(keys=keys, offsets=offsets, sentences=sentences, clusters=together)
