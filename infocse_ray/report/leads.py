"""Whether a row is ahead of another by more than luck: the paired bootstrap on their ranks.

A row's score of a question is its average over the seeds that both rows have; with several of these the luck of the
seeds counts beside that of the test documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from infocse_ray.errors import DamagedFile
from infocse_ray.loop.manifest import folder_in
from infocse_ray.retrieval.bootstrap import Lead, paired_bootstrap
from infocse_ray.retrieval.questions import documents_of, scores_by_question
from infocse_ray.settings import Metric
from infocse_ray.storage.folder import Storage

METRIC: Metric = "recall@5"
"""What rows are told apart by; MRR stands beside it."""

_AGAIN = "remove that run, and its record in cells/, to have it made again"
"""A cell that is finished never runs again by itself."""

_Folders = tuple[str, ...]


class Leads:
    """The comparisons of one command: the same two encoders, shown in several tables or again, are compared once."""

    def __init__(self, root: Storage) -> None:
        """Remember where runs are.

        Args:
            root: the storage of the runs, which the ranks' folders are relative to.
        """
        self._root = root
        self._scores: dict[tuple[str, Metric], tuple[pa.Table, np.ndarray]] = {}
        self._leads: dict[tuple[_Folders, _Folders, Metric], Lead] = {}

    def over(
        self, ours: dict[str, Any], theirs: dict[str, Any], variant: str, note: str = "", metric: Metric = METRIC
    ) -> dict[str, Any]:
        """A row's lead over another.

        Args:
            ours: a row of a table on one corpus, as `summarise_row` returns it.
            theirs: another on the same corpus.
            variant: of both rows' encoders.
            note: on the other row, for whoever reads why there is no comparison.
            metric: in what it leads.

        Returns:
            `of` and `over` (the rows' labels), `seeds` (that both have) and the fields of `bootstrap.Lead`; or `of`,
            `over` and `missing`, why there is no such comparison (yet).
        """
        out = {"of": ours["label"], "over": theirs["label"]}
        named = f"{ours['label']} and {theirs['label']}{note}"
        if not ours["ranks"][variant] or not theirs["ranks"][variant]:
            return out | {"missing": f"no scores yet of {named.removesuffix(',')}"}
        seeds = [seed for seed in ours["ranks"][variant] if seed in theirs["ranks"][variant]]
        if not seeds:
            return out | {"missing": f"{named} have no seed in common yet"}
        mine, yours = (tuple(row["ranks"][variant][seed] for seed in seeds) for row in (ours, theirs))
        if None in (*mine, *yours):
            return out | {"missing": f"the ranks can't be read: their run doesn't say where they are; {_AGAIN}"}
        try:
            lead = self._lead(mine, yours, metric, named)
        except DamagedFile as error:
            damage = str(error).partition(";")[0]
            return out | {"missing": f"the ranks can't be read: {damage}; {_AGAIN}"}
        except (ValueError, OSError) as error:  # the runs' folders may be gone; the tables stay
            return out | {"missing": f"the ranks can't be read: {str(error).strip()}"}
        return out | {"seeds": [int(seed) for seed in seeds]} | lead._asdict()

    def _lead(self, ours: _Folders, theirs: _Folders, metric: Metric, named: str) -> Lead:
        if (ours, theirs, metric) not in self._leads:
            scored = [self._score(folder, metric) for folder in (*ours, *theirs)]
            asked = scored[0][0]
            if not all(questions.equals(asked) for questions, _ in scored):
                raise ValueError(f"{named} were not asked the same questions")
            by_seed = np.stack([scores for _, scores in scored])
            mine, yours = by_seed[: len(ours)], by_seed[len(ours) :]
            lead = paired_bootstrap(mine.mean(0), yours.mean(0), documents_of(asked))
            self._leads[ours, theirs, metric] = lead.of_seeds((mine - yours).mean(1))
        return self._leads[ours, theirs, metric]

    def _score(self, folder: str, metric: Metric) -> tuple[pa.Table, np.ndarray]:
        """The questions of an evaluate stage, and their scores, float64 [questions]."""
        if (folder, metric) not in self._scores:
            self._scores[folder, metric] = scores_by_question([folder_in(self._root, folder)], metric)
        return self._scores[folder, metric]


def lead_in(figures: dict[str, Any]) -> Lead:
    """The lead in what `Leads.over` returned, where that has one."""
    return Lead(**{name: figures[name] for name in Lead._fields})


def strongest_other(rows: list[dict[str, Any]], ours: dict[str, Any], variant: str) -> dict[str, Any] | None:
    """The row of another family that scores best; None: none has a score."""
    others = [
        row for row in rows if row["family"] != ours["family"] and row["metrics"][variant][METRIC]["mean"] is not None
    ]
    return max(others, key=lambda row: row["metrics"][variant][METRIC]["mean"], default=None)
