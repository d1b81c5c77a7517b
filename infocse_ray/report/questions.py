"""Every test question's rank under an encoder, in one order for all encoders.

A question is a document and the counterpart it must find (`doc_id` and, where the ranks have it, `key`). Test
questions are labelled by people, so that they fit the driver's memory whatever the size of the corpus; they are kept
as Arrow columns.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from infocse_ray.storage import Storage


def read_ranks(stage: Storage) -> pa.Table:
    """The ranks of an evaluate stage's folder, ordered by question.

    Returns:
        Columns `doc_id` (string), `key` (int64, if the stage has it), `rank` (int64, from 1).

    Raises:
        ValueError: no ranks are there (any more).
    """
    parts = []
    for name in sorted((stage / "ranks").files()):
        with (stage / "ranks" / name).parquet() as file:
            parts.append(file.read(columns=[c for c in ("doc_id", "key", "rank") if c in file.schema_arrow.names]))
    if not sum(len(part) for part in parts):
        raise ValueError(f"{stage / 'ranks'} has no ranks")
    table = pa.concat_tables(parts)
    return table.sort_by([(c, "ascending") for c in table.column_names if c != "rank"])


def recall_by_question(stages: list[Storage], cutoff: int) -> tuple[pa.Table, np.ndarray]:
    """The share of the stages (one a seed) in which a question's counterpart was among the first `cutoff`.

    Returns:
        The questions (columns `doc_id` and, if there, `key`) and their recall, float64 [questions].

    Raises:
        ValueError: a stage has no ranks, or asked other questions.
    """
    tables = [read_ranks(stage) for stage in stages]
    questions = _questions(tables[0])
    for stage, table in zip(stages, tables, strict=True):
        if not _questions(table).equals(questions):
            raise ValueError(f"{stage / 'ranks'} and {stages[0] / 'ranks'} are not of the same questions")
    hits = sum((table["rank"].to_numpy() <= cutoff).astype(np.int64) for table in tables)
    return questions, np.asarray(hits / len(tables))


def documents_of(questions: pa.Table) -> np.ndarray:
    """Which document each question is of: int32 [questions], the same number for the same `doc_id`."""
    return questions["doc_id"].combine_chunks().dictionary_encode().indices.to_numpy()


def _questions(table: pa.Table) -> pa.Table:
    return table.drop_columns(["rank"]).combine_chunks()
