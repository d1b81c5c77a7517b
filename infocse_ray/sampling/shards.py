"""The shards that examples are made of: a token store's, alone or joined with the clusters of annotations.

Annotations hold no tokens: a row group of theirs is read beside the token store's that it was made of, and the keys of
the documents in both must agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from infocse_ray.annotate.annotations import OTHERS, annotated, clustered
from infocse_ray.corpus.store import Documents, documents_of, row_groups, shard_name
from infocse_ray.storage.checksums import damaged
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, read_groups

_COLUMNS = ["doc_id", "key", "sentences"]
_LABELS = ["counterparts", "counterpart_keys"]


class Shards(NamedTuple):
    """Documents to make examples of: a token store's, as they are or annotated."""

    folder: Storage
    """Holds the shards of the token store."""
    fingerprint: str
    shards: int
    lanes: int
    splits: list[str]
    """Whose documents are used; of annotated ones, those that were annotated."""
    labels: bool = False
    """Whether their counterparts are read too."""
    annotations: Storage | None = None
    """Holds the shards of the annotations; None: documents have no clusters."""
    drawn: Sequence[int] | None = None
    """The shards whose documents are used, ascending; None: all."""

    @property
    def numbers(self) -> Sequence[int]:
        """The shards whose documents are used, ascending."""
        return range(self.shards) if self.drawn is None else self.drawn

    def of_lane(self, lane: int) -> Sequence[int]:
        """Those of a lane."""
        if self.drawn is None:
            return range(lane, self.shards, self.lanes)
        return [shard for shard in self.drawn if shard % self.lanes == lane]

    def open(self, number: int) -> OpenShard:
        """Open a shard, to be read row group by row group.

        Raises:
            DamagedFile: a file isn't as it was written, or the annotations are not of this token store.
        """
        return OpenShard(self, number)


class OpenShard:
    """The files of one shard, open. Row groups are told by numbers of their own."""

    def __init__(self, source: Shards, number: int) -> None:
        self._columns = _COLUMNS + _LABELS if source.labels else _COLUMNS
        self._tokens = open_parquet(source.folder / shard_name(number))
        self._clusters = None
        try:
            self._used = row_groups(self._tokens, source.splits)
            if source.annotations is not None:
                self._written = source.annotations / shard_name(number)
                self._clusters = open_parquet(self._written)
                if self._clusters.num_row_groups != len(self._used):
                    raise damaged(self._written, OTHERS)
        except BaseException:
            self.close()
            raise

    def groups(self, splits: list[str] | None = None) -> list[int]:
        """The row groups whose documents are used, or, where they have no clusters, those of other splits."""
        if self._clusters is not None:
            assert splits is None
            return list(range(len(self._used)))
        return self._used if splits is None else row_groups(self._tokens, splits)

    def _place(self, group: int) -> int:
        """Where a row group is in the token store: annotations have none for documents that are not used."""
        return group if self._clusters is None else self._used[group]

    def documents(self, group: int) -> int:
        """How many documents a row group has; with clusters, how many of them were annotated."""
        file, place = (self._tokens, self._place(group)) if self._clusters is None else (self._clusters, group)
        return file.metadata.row_group(place).num_rows

    def read(self, group: int) -> Documents:
        """A row group as documents; with clusters, those of them that were annotated.

        Raises:
            DamagedFile: it isn't as it was written, or the clusters are of other documents.
        """
        return next(self.read_all([group]))

    def read_all(self, groups: list[int]) -> Iterator[Documents]:
        """Row groups one after the other, as `read` gives them; neighbours are fetched together."""
        places = [self._place(group) for group in groups]
        tokens = read_groups(self._tokens, places, self._columns)
        if self._clusters is None:
            return map(documents_of, tokens)
        both = zip(tokens, read_groups(self._clusters, groups), strict=True)
        return (clustered(documents_of(annotated(*one)), one[1], self._written) for one in both)

    def close(self) -> None:
        """Let go of the files."""
        self._tokens.close()
        if self._clusters is not None:
            self._clusters.close()

    def __enter__(self) -> OpenShard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
