"""Whether a row is ahead of another by more than the luck of the test documents: the paired bootstrap on their ranks.

A row's score of a question is its average over the seeds that both rows have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from infocse_ray.loop.manifest import folder_in
from infocse_ray.retrieval.bootstrap import Lead, paired_bootstrap
from infocse_ray.retrieval.questions import documents_of, recall_by_question
from infocse_ray.storage.folder import Storage

METRIC, _CUTOFF = "recall@5", 5

_Folders = tuple[str, ...]


class Leads:
    """The comparisons of one command: the same two encoders, shown in several tables or again, are compared once."""

    def __init__(self, root: Storage) -> None:
        """Remember where runs are.

        Args:
            root: the storage of the runs, which the ranks' folders are relative to.
        """
        self._root = root
        self._recalls: dict[_Folders, tuple[pa.Table, np.ndarray]] = {}
        self._leads: dict[tuple[_Folders, _Folders], Lead] = {}

    def over(self, ours: dict[str, Any], theirs: dict[str, Any], variant: str, note: str = "") -> dict[str, Any]:
        """A row's lead in recall@5 over another.

        Args:
            ours: a row of a table on one corpus, as `summarise_row` returns it.
            theirs: another on the same corpus.
            variant: of both rows' encoders.
            note: on the other row, for whoever reads why there is no comparison.

        Returns:
            `of` and `over` (the rows' labels), `seeds` (that both have) and the fields of `bootstrap.Lead`; or `of`,
            `over` and `missing`, why there is no such comparison (yet).
        """
        out = {"of": ours["label"], "over": theirs["label"]}
        named = f"{ours['label']} and {theirs['label']}{note}"
        if not ours["ranks"][variant] or not theirs["ranks"][variant]:
            return out | {"missing": f"no scores yet of {named}"}
        seeds = [seed for seed in ours["ranks"][variant] if seed in theirs["ranks"][variant]]
        if not seeds:
            return out | {"missing": f"{named} have no seed in common yet"}
        mine, yours = (tuple(row["ranks"][variant][seed] for seed in seeds) for row in (ours, theirs))
        try:
            lead = self._lead(mine, yours, named)
        except (ValueError, TypeError, OSError) as error:  # the runs' folders may be gone; the tables stay
            return out | {"missing": f"the ranks can't be read: {str(error).strip()}"}
        return out | {"seeds": [int(seed) for seed in seeds]} | lead._asdict()

    def _lead(self, ours: _Folders, theirs: _Folders, named: str) -> Lead:
        if (ours, theirs) not in self._leads:
            (asked, mine), (too, yours) = self._recall(ours), self._recall(theirs)
            if not asked.equals(too):
                raise ValueError(f"{named} were not asked the same questions")
            self._leads[ours, theirs] = paired_bootstrap(mine, yours, documents_of(asked))
        return self._leads[ours, theirs]

    def _recall(self, folders: Sequence[str]) -> tuple[pa.Table, np.ndarray]:
        key = tuple(folders)
        if key not in self._recalls:
            self._recalls[key] = recall_by_question([folder_in(self._root, folder) for folder in key], _CUTOFF)
        return self._recalls[key]


def strongest_other(rows: list[dict[str, Any]], ours: dict[str, Any], variant: str) -> dict[str, Any] | None:
    """The row of another family that scores best; None: none has a score."""
    others = [
        row for row in rows if row["family"] != ours["family"] and row["metrics"][variant][METRIC]["mean"] is not None
    ]
    return max(others, key=lambda row: row["metrics"][variant][METRIC]["mean"], default=None)
