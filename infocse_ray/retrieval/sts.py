"""General ability: how an encoder's cosines of sentence pairs agree with people's judgement of their similarity.

Spearman's rank correlation of the two, as of the STS benchmark (Cer et al., SemEval 2017 task 1): adapting an encoder
to one corpus should not cost much of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch

from infocse_ray.corpus.read import (
    NOT_UTF8,
    READ_ERRORS,
    Piece,
    csv_records,
    json_rows,
    open_lines,
    parse_tab_line,
    plain_name,
    reader_of,
)
from infocse_ray.encoder.embed import SENTENCES_AT_ONCE
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.texts import TextEncoder
from infocse_ray.retrieval.correlation import spearman
from infocse_ray.settings import fingerprint
from infocse_ray.settings.text import is_utf8
from infocse_ray.storage.errors import explanation
from infocse_ray.storage.folder import open_filesystem
from infocse_ray.storage.redact import redacted

FEWEST = 10
"""Pairs without which a correlation is chance."""

COLUMNS = ("sentence1", "sentence2", "score")
_OF_BENCHMARK = {"sentence1": 5, "sentence2": 6, "score": 4}
"""Columns of the STS benchmark's files: genre, file, year, id, score, sentence1, sentence2, and at times licences."""


class StsPairs(NamedTuple):
    """Pairs of sentences with their similarity."""

    first: list[str]
    second: list[str]
    scores: np.ndarray
    """float64 [pairs], on any scale, larger for more similar."""

    @property
    def fingerprint(self) -> str:
        """Of the content, wherever it lies."""
        return fingerprint("sts", self.first, self.second, self.scores.tolist())


def read_sts(uri: str, setting: str = "validate.sts") -> StsPairs:
    """Read a file of sentence pairs.

    Args:
        uri: Parquet, JSON Lines, a JSON array or CSV with columns sentence1, sentence2 and score; else tab separated
            without quoting: with a line that names such columns, or with these three in this order, or as the STS
            benchmark's files. Also .gz, .xz, .zst, but for Parquet.
        setting: what error messages call what named the file.

    Raises:
        ValueError: one line: it isn't there, a row isn't such a pair, or there are too few pairs to tell anything.
        StorageUnavailable: the object store failed beyond all retries.
    """
    where = redacted(f"{setting} = {uri!r}")
    pairs = StsPairs([], [], np.zeros(0))
    scores: list[float] = []
    try:
        for number, row in _rows(uri):
            first, second, score = (row.get(name) for name in COLUMNS)
            if any(not isinstance(text, str) or not text.strip() for text in (first, second)):
                raise ValueError(f"row {number} has no text in sentence1 or sentence2")
            scores.append(_number(score, number))
            pairs.first.append(str(first))
            pairs.second.append(str(second))
    except FileNotFoundError:
        raise ValueError(
            f"{where}: no such file; name one with columns {', '.join(COLUMNS)}, or leave it out"
        ) from None
    except READ_ERRORS as error:
        raise explanation(error, where) or ValueError(redacted(f"{where}: can't be read: {error}")) from error
    except ValueError as error:
        raise ValueError(redacted(f"{where}: {error}")) from None
    if len(scores) < FEWEST:
        raise ValueError(f"{where}: {len(scores)} pairs are too few to correlate anything; give at least {FEWEST}")
    if len(set(scores)) == 1:
        raise ValueError(f"{where}: all {len(scores):,} pairs have the score {scores[0]:g}; give ones that differ")
    return pairs._replace(scores=np.array(scores))


def sts_cosines(encoder: SentenceEncoder, pairs: StsPairs) -> np.ndarray:
    """float64 [pairs]: the cosine of each pair's two vectors.

    Args:
        encoder: in evaluation mode, in the precision to use.
        pairs: what `read_sts` found.
    """
    reader = TextEncoder(encoder)
    parts = [np.zeros(0)]
    for begin in range(0, len(pairs.first), SENTENCES_AT_ONCE):
        some = slice(begin, begin + SENTENCES_AT_ONCE)
        first, second = reader.vectors(pairs.first[some]), reader.vectors(pairs.second[some])
        parts.append(torch.cosine_similarity(first, second).double().cpu().numpy())
    return np.concatenate(parts)


def sts_spearman(encoder: SentenceEncoder, pairs: StsPairs) -> float:
    """Spearman's rank correlation of cosines and scores, from -1 to 1; 0 where all cosines are the same.

    Args:
        encoder: in evaluation mode, in the precision to use.
        pairs: what `read_sts` found.
    """
    return float(spearman(sts_cosines(encoder, pairs), pairs.scores))


def _rows(uri: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows, numbered from 1, each with the columns that it has."""
    kind = reader_of(uri)
    if kind == "parquet":
        filesystem, path = open_filesystem(uri)
        with pq.ParquetFile(filesystem.open_input_file(path)) as file:
            _check(file.schema_arrow.names)
            for number, row in enumerate(file.read(columns=list(COLUMNS)).to_pylist(), 1):
                yield number, row
        return
    piece = Piece(uri, kind, 0, 0, 2**62)
    if kind == "jsonl":
        for number, line in enumerate(json_rows(piece), 1):
            if line.values is None:
                raise ValueError(f"row {number} is {line.reason}")
            if number == 1:
                _check(list(line.values))
            yield number, line.values
        return
    lines = enumerate((line.data for line in open_lines(piece)), 1)
    head = next((line.data.lower() for line in open_lines(piece)), b"")
    by_commas = b"\t" not in head and all(name.encode() in head for name in COLUMNS)
    if by_commas and not plain_name(uri).endswith(".tsv"):
        yield from _csv_rows(piece)
        return
    places: dict[str, int] = {}
    for number, line in lines:
        cells, wrong = parse_tab_line(line)
        if cells is None:
            raise ValueError(f"row {number} is {wrong}")
        if not places:
            named = [cell.strip().lower() for cell in cells]
            places = _places(named)
            if set(COLUMNS) <= set(named):
                continue
        if len(cells) <= max(places.values()):
            raise ValueError(f"row {number} has {len(cells)} tab-separated columns, not {max(places.values()) + 1}")
        yield number, {name: cells[place] for name, place in places.items()}


def _csv_rows(piece: Piece) -> Iterator[tuple[int, dict[str, Any]]]:
    """Those of a file whose header separates the columns by commas or semicolons, as pandas writes it."""
    for number, record in enumerate(csv_records(piece), 1):
        if record.cells is None:
            raise ValueError(f"row {number} has not as many cells as the header")
        row = {name.lower(): cell for name, cell in record.cells.items()}
        if not all(map(is_utf8, row.values())):
            raise ValueError(f"row {number} is {NOT_UTF8}")
        if number == 1:
            _check(list(row))
        yield number, row


def _check(names: list[str]) -> None:
    if missing := [name for name in COLUMNS if name not in names]:
        raise ValueError(f"no column {missing[0]!r}; there is {', '.join(names)}; it needs {', '.join(COLUMNS)}")


def _places(first: list[str]) -> dict[str, int]:
    """Where a tab-separated file has which column, by its first line."""
    if set(COLUMNS) <= set(first):
        return {name: first.index(name) for name in COLUMNS}
    if len(first) == len(COLUMNS):
        return {name: place for place, name in enumerate(COLUMNS)}
    if len(first) > max(_OF_BENCHMARK.values()):
        return _OF_BENCHMARK
    raise ValueError(
        f"row 1 has {len(first)} tab-separated columns; give {', '.join(COLUMNS)}, or the STS benchmark's own columns, "
        "or a header that names these where commas separate them"
    )


def _number(score: Any, number: int) -> float:
    try:
        value = float(score)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"row {number}: its score {str(score)[:40]!r} is no number")
    return value
