"""The suite `beir`: local data sets in BEIR's layout, searched by each encoder, by BM25, and by both together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.retrieval.bootstrap import paired_bootstrap
from infocse_ray.retrieval.correlation import Estimate
from infocse_ray.runtime.progress import say
from infocse_ray.runtime.tasks import in_one_task
from infocse_ray.settings import fingerprint
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.checksums import checked, read_checked
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet
from infocse_ray.suites import bm25
from infocse_ray.suites.beir_layout import BeirSet, beir_folders, read_beir
from infocse_ray.suites.judged import Judged
from infocse_ray.suites.measures import MAIN, MEASURES, SHOWN, measured, require_metrics, summarised, without_itself
from infocse_ray.suites.rows import Row, escaped, shown, signed
from infocse_ray.suites.search import BOTH, READINGS, SearchBlocks, best_of_all
from infocse_ray.suites.with_words import fused_found, read_found, write_found

_FORMAT = 3
"""Counted up when the same inputs begin to give another result."""
_BM25 = "BM25"
_WITH_WORDS = f"{BOTH} and {_BM25}"
_FOUND = "found.parquet"
"""What queries found by BM25, and by an encoder that reads documents both ways; of this the last row is made."""


def read_sets(paths: list[str], qrels: str) -> list[BeirSet]:
    """The data sets of folders, each looked through once.

    Raises:
        ValueError: what they need isn't installed, or one is no data set.
    """
    require_metrics()
    bm25.require_bm25()
    sets: list[BeirSet] = []
    for folder in [folder for path in paths for folder in beir_folders(path)]:
        data = read_beir(folder, qrels)
        left_out = f"; left out: {', '.join(data.notes)}" if data.notes else ""
        say(f"{data.name}: {data.documents:,} documents, {len(data.queries):,} queries{left_out}")
        sets.append(data)
    names = [data.name for data in sets]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"suite_path: two data sets are called {twice[0]}; rename a folder")
    return sets


class _System(NamedTuple):
    """What ranked documents, and how well."""

    whose: str
    """`model`, `compare`, or BM25."""
    read_as: str
    stage: Stage

    @property
    def metrics(self) -> dict[str, float]:
        return (self.stage.summary or {})["metrics"][self.read_as]

    def by_query(self, measure: str) -> np.ndarray:
        """float64 [queries], in the order of their ids."""
        with open_parquet(self.stage.folder / "queries.parquet") as file:
            table = file.read()
        mine = np.array(table["read_as"].to_pylist()) == self.read_as
        return table[measure].to_numpy()[mine]

    def estimate(self, measure: str) -> Estimate:
        return Estimate(*(self.metrics[f"{measure}{end}"] for end in ("", "_low", "_high")))


def judge_beir(judged: Judged, data: BeirSet) -> tuple[list[Row], list[str], dict[str, str]]:
    """Search a data set with every encoder.

    Returns:
        Rows of every measure, lines for people, and where the scores of single queries are, by who ranked.
    """
    language = judged.settings.corpus.language
    words = bm25.words_of(language)
    systems = [_System(_BM25, _BM25, by_words := _lexical(judged, data, words))]
    for whose, encoder in reversed(judged.encoders.items()):  # before, then after
        stage = _searched(judged, data, whose, encoder, language)
        systems += [_System(whose, name, stage) for name in READINGS]
        systems.append(_System(whose, _WITH_WORDS, _together(judged, data, stage, by_words)))
    names = (_BM25, *READINGS, _WITH_WORDS)
    rows = [_row(judged, data, systems, name, measure) for name in names for measure in MEASURES]
    files = {
        one.whose + (f" and {_BM25}" if one.read_as == _WITH_WORDS else ""): str(one.stage.folder / "queries.parquet")
        for one in systems
    }
    return rows, _table(judged, data, systems, words), files


def _lexical(judged: Judged, data: BeirSet, words: bm25.Words) -> Stage:
    def work(stage: Stage) -> dict[str, Any]:
        in_one_task(_search_words, data, words, stage.folder)
        return read_checked(stage.folder / "metrics.json")

    return judged.stage("bm25", fingerprint("bm25", _FORMAT, bm25.version(), data.fingerprint, words), work)


def _search_words(data: BeirSet, words: bm25.Words, folder: Storage) -> None:
    found = bm25.search(data, words)
    write_found(folder / _FOUND, found)
    _score(folder, data, {_BM25: found})


def _searched(judged: Judged, data: BeirSet, whose: str, encoder: EncoderFolder, language: str) -> Stage:
    def work(stage: Stage) -> dict[str, Any]:
        blocks = SearchBlocks(data, stage.folder / "best", language)
        title = f"searching {data.name} ({_time(judged, whose)})"
        done = judged.in_actors(encoder, len(data.blocks()), blocks, title, "documents", data.documents)
        in_one_task(_merge, data, stage.folder)
        (stage.folder / "best").delete()
        cut = sum(row["cut"] for row in done)
        return read_checked(stage.folder / "metrics.json") | {"cut": cut}

    identity = fingerprint(
        "beir", _FORMAT, data.fingerprint, encoder.fingerprint, judged.settings.precision, language, READINGS
    )
    return judged.stage("beir", identity, work)


def _merge(data: BeirSet, folder: Storage) -> None:
    found = {name: best_of_all(folder / "best", name, data.query_ids) for name in READINGS}
    write_found(folder / _FOUND, found[BOTH])
    _score(folder, data, found)


def _together(judged: Judged, data: BeirSet, by_vectors: Stage, by_words: Stage) -> Stage:
    def work(stage: Stage) -> dict[str, Any]:
        in_one_task(_fuse, data, [by_vectors.folder / _FOUND, by_words.folder / _FOUND], stage.folder)
        return read_checked(stage.folder / "metrics.json")

    identity = fingerprint("with_words", _FORMAT, by_vectors.fingerprint, by_words.fingerprint)
    return judged.stage("beir", identity, work)


def _fuse(data: BeirSet, files: list[Storage], folder: Storage) -> None:
    _score(folder, data, {_WITH_WORDS: fused_found(data.query_ids, [read_found(file) for file in files])})


def _score(folder: Storage, data: BeirSet, found: dict[str, dict[str, dict[str, float]]]) -> None:
    """Write the measures of every query, by how documents were read, and their means."""
    tables: list[pa.Table] = []
    metrics: dict[str, dict[str, float]] = {}
    for name, by_query in found.items():
        kept = {query: without_itself(query, documents, data.relevant[query]) for query, documents in by_query.items()}
        scores = measured(data.query_ids, kept, data.relevant)
        metrics[name] = summarised(scores)
        first = [next(iter(kept.get(query, {})), None) for query in data.query_ids]
        columns = {"query_id": data.query_ids, "read_as": [name] * len(data.query_ids)} | scores
        tables.append(pa.table(columns | {"first": pa.array(first, pa.string())}))
    write_parquet(folder / "queries.parquet", pa.concat_tables(tables), [len(table) for table in tables])
    (folder / "metrics.json").write_json(checked({"metrics": metrics}))


def _time(judged: Judged, whose: str) -> str:
    """What an encoder is called."""
    return "model" if "compare" not in judged.encoders else {"model": "after", "compare": "before"}[whose]


def _row(judged: Judged, data: BeirSet, systems: list[_System], read_as: str, measure: str) -> Row:
    of = {one.whose: one for one in systems if one.read_as == read_as}
    ours = of["model" if "model" in of else _BM25].estimate(measure)
    row = Row("beir", data.name, read_as, SHOWN[measure], ours, questions=len(data.queries), main=measure == MAIN)
    if "compare" not in judged.encoders:
        return row
    if _BM25 in of:  # no encoder has a part in it
        return row._replace(before=ours)
    before = of["compare"].estimate(measure)
    return row._replace(before=before, difference=_lead(of["model"], of["compare"], measure))


def _lead(ours: _System, theirs: _System, measure: str) -> Estimate:
    mine, other = ours.by_query(measure), theirs.by_query(measure)
    lead = paired_bootstrap(mine, other, np.arange(len(mine)))
    return Estimate(lead.difference, lead.low, lead.high)


def _table(judged: Judged, data: BeirSet, systems: list[_System], words: bm25.Words) -> list[str]:
    """Everything that was measured on the data set, BM25 first."""
    lines = [
        f"{escaped(data.name)}: {len(data.queries):,} queries, {data.documents:,} documents, {_cut(judged, systems)} "
        f"of them cut as passages; BM25 with {words.said}",
        "",
        f"| ranked by | {' | '.join(SHOWN[name] for name in MEASURES)} | {SHOWN[MAIN]} less BM25's |",
        "| --- |" + " ---: |" * (len(MEASURES) + 1),
    ]
    for one in systems:
        name = _BM25 if one.whose == _BM25 else f"{_time(judged, one.whose)}, {one.read_as}"
        less = "" if one.whose == _BM25 else signed(_lead(one, systems[0], MAIN))
        lines.append(f"| {' | '.join([name, *(shown(one.estimate(m)) for m in MEASURES), less])} |")
    return lines


def _cut(judged: Judged, systems: list[_System]) -> str:
    """How many passages were cut, by encoder where their folders say other lengths."""
    cuts = {one.whose: (one.stage.summary or {})["cut"] for one in systems if one.read_as in READINGS}
    if len(set(cuts.values())) == 1:
        return f"{next(iter(cuts.values())):,}"
    return " and ".join(f"{cut:,} ({_time(judged, whose)})" for whose, cut in cuts.items())
