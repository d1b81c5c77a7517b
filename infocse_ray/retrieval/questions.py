"""Every question's rank under an encoder, in one order for all encoders, and two encoders compared by them.

A question is a document and what it must find (`doc_id` and, where the ranks have it, `key`). They fit the driver's
memory whatever the size of the corpus, for questions are labelled by people, or no more than
`validate.max_documents` ask; they are kept as Arrow columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from infocse_ray.retrieval.bootstrap import Lead, paired_bootstrap
from infocse_ray.retrieval.intervals import mean_of
from infocse_ray.retrieval.ranks import scores_by
from infocse_ray.settings import Metric
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet

TOP_KEYS = ("top_key", "second_key", "third_key")
"""Columns of the ranks: what was found first, second and third."""


def read_ranks(stage: Storage, top: bool = False) -> pa.Table:
    """The ranks of an evaluate stage's folder, ordered by question.

    Args:
        stage: the folder.
        top: whether to read what was found first, too.

    Returns:
        Columns `doc_id` (string), `key` (int64, if the stage has it), `rank` (int64, from 1) and, if wanted, TOP_KEYS
        (int64, 0 where there is none or an earlier version kept none).

    Raises:
        ValueError: no ranks are there (any more).
    """
    parts = []
    tops = TOP_KEYS if top else ()
    columns = ["doc_id", "key", "rank", *tops]
    for name in sorted((stage / "ranks").files()):
        with open_parquet(stage / "ranks" / name) as file:
            part = file.read(columns=[c for c in columns if c in file.schema_arrow.names])
            for name in tops:
                if name not in part.column_names:
                    part = part.append_column(name, pa.array(np.zeros(len(part), np.int64)))
            parts.append(part)
    if not sum(len(part) for part in parts):
        raise ValueError(f"{stage / 'ranks'} has no ranks")
    table = pa.concat_tables(parts)
    return table.sort_by([(name, "ascending") for name in _names(table)])


def scores_by_question(stages: list[Storage], metric: Metric) -> tuple[pa.Table, np.ndarray]:
    """The mean of each question's score over the stages (one a seed).

    Returns:
        The questions (columns `doc_id` and, if there, `key`) and their scores, float64 [questions].

    Raises:
        ValueError: a stage has no ranks, or asked other questions.
    """
    tables = [read_ranks(stage) for stage in stages]
    questions = tables[0].select(_names(tables[0])).combine_chunks()
    for stage, table in zip(stages, tables, strict=True):
        if not table.select(_names(table)).combine_chunks().equals(questions):
            raise ValueError(f"{stage / 'ranks'} and {stages[0] / 'ranks'} are not of the same questions")
    return questions, scores_by(metric, np.stack([table["rank"].to_numpy() for table in tables])).mean(0)


class Compared(NamedTuple):
    """Two encoders on the questions that both were asked."""

    ours: float
    """The score of one."""
    theirs: float
    lead: Lead
    """Of ours over theirs."""


def compare(ours: Storage, theirs: Storage, metric: Metric) -> Lead:
    """How far one encoder leads another on the same questions; as `compare_scores`."""
    return compare_scores(ours, theirs, metric).lead


def compare_scores(ours: Storage, theirs: Storage, metric: Metric, common: bool = False) -> Compared:
    """Two encoders on the questions that both were asked, with the paired bootstrap over documents.

    Args:
        ours: the folder of an evaluate stage.
        theirs: of another, of the same split and of what must be found.
        metric: what is compared.
        common: compare on the questions that both have, where tokenizers differ and may tell texts apart differently;
            else having others is an error.

    Raises:
        ValueError: a stage has no ranks, or they asked other questions.
    """
    asked = paired_ranks(ours, theirs, common)
    scores = scores_by(metric, np.stack([asked[name].to_numpy() for name in ("rank", "rank of theirs")]))
    return Compared(mean_of(scores[0]), mean_of(scores[1]), paired_bootstrap(scores[0], scores[1], documents_of(asked)))


def paired_ranks(ours: Storage, theirs: Storage, common: bool = False) -> pa.Table:
    """The ranks of two evaluate stages side by side, ordered by question.

    Args:
        ours: the folder of one.
        theirs: of the other.
        common: leave out questions that only one has; else having others is an error.

    Returns:
        The columns of `read_ranks`, TOP_KEYS among them, and of theirs `rank of theirs`, `top_key of theirs` and so on.

    Raises:
        ValueError: a stage has no ranks, or they asked other questions.
    """
    tables = [read_ranks(stage, top=True) for stage in (ours, theirs)]
    names = _names(tables[0])
    if not common and not tables[0].select(names).equals(tables[1].select(_names(tables[1]))):
        raise ValueError(f"{ours / 'ranks'} and {theirs / 'ranks'} are not of the same questions")
    both = tables[0].join(tables[1], keys=names, join_type="inner", right_suffix=" of theirs")
    if not len(both):
        raise ValueError(f"{ours / 'ranks'} and {theirs / 'ranks'} have no question in common")
    return both.sort_by([(name, "ascending") for name in names])


def documents_of(questions: pa.Table) -> np.ndarray:
    """Which document each question is of: int32 [questions], the same number for the same `doc_id`."""
    return questions["doc_id"].combine_chunks().dictionary_encode().indices.to_numpy()


def _names(table: pa.Table) -> list[str]:
    """The columns that name a question."""
    return [name for name in table.column_names if name in ("doc_id", "key")]
