"""Encoders judged on what isn't their own corpus, one alone or before and after: `infocse evaluate --suite`."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow.fs as pafs

from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.loop.named_encoders import load_named, save_shared
from infocse_ray.retrieval.sts import StsPairs, read_sts
from infocse_ray.runtime.cluster import connect, placement
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Train, fingerprint
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.stages.at_work import at_work
from infocse_ray.stages.repair import repairing
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage, open_filesystem, without_query
from infocse_ray.storage.redact import redacted, redacted_json
from infocse_ray.suites.beir import judge_beir, read_sets
from infocse_ray.suites.beir_layout import BeirSet
from infocse_ray.suites.judged import Judged
from infocse_ray.suites.mteb_tasks import find_tasks, judge_task
from infocse_ray.suites.pairs import judge_pairs
from infocse_ray.suites.rows import Row, escaped, markdown


class Judgement(NamedTuple):
    """What came of all suites."""

    rows: list[Row]
    lines: list[str]
    """The tables, for people."""
    folder: Storage
    """Has them as suites.json and suites.md."""


@repairing
def judge(settings: Evaluate) -> Judgement:
    """Judge and report.

    Raises:
        ValueError: a file, a package or a task's data is missing; nothing was computed.
    """
    files, folders = _sorted(settings)
    pairs = {name: read_sts(uri, "suite_path") for name, uri in _named(files).items()}
    sets = read_sets(folders, settings.qrels) if "beir" in settings.suite else []
    tasks = find_tasks(settings.tasks) if "mteb" in settings.suite else []
    loaded = load_named(settings)
    root = Storage.for_runs(settings.storage)
    with at_work(root, "evaluate"):
        return _judged(settings, root, loaded, pairs, sets, tasks)


def _judged(
    settings: Evaluate,
    root: Storage,
    loaded: dict[str, SentenceEncoder],
    pairs: dict[str, StsPairs],
    sets: list[BeirSet],
    tasks: list[Any],
) -> Judgement:
    """The same, of what was read."""
    connect()
    where = placement(Train(num_workers=settings.num_workers, use_gpu=settings.use_gpu))
    encoders = {whose: save_shared(root, encoder) for whose, encoder in loaded.items()}
    judged = Judged(settings, root, where, encoders)
    rows: list[Row] = []
    details: list[str] = []
    questions: dict[str, dict[str, str]] = {}
    for suite in settings.suite:
        if suite == "sts":
            for name, of_it in pairs.items():
                row, questions[f"sts/{name}"] = judge_pairs(judged, name, of_it)
                rows.append(row)
        elif suite == "beir":
            for data in sets:
                found, lines, questions[f"beir/{data.name}"] = judge_beir(judged, data)
                rows += found
                details += ["", *lines]
        else:
            for task in tasks:
                row, questions[f"mteb/{task.metadata.name}"] = judge_task(judged, task)
                rows.append(row)
    lines = [*_head(settings), "", *markdown([row for row in rows if row.main], "compare" in encoders), *details]
    folder = _write(judged, rows, lines, questions)
    say("\n" + "\n".join(lines) + "\n")
    say(f"figures: {folder / 'suites.json'}; the tables: {folder / 'suites.md'}")
    return Judgement(rows, lines, folder)


def _sorted(settings: Evaluate) -> tuple[list[str], list[str]]:
    """Files, for `sts`, and folders, for `beir`.

    Raises:
        ValueError: one is missing, is for no suite that was asked for, or nothing that is installed opens it.
    """
    files: list[str] = []
    folders: list[str] = []
    for uri in settings.suite_path:
        try:
            filesystem, path = open_filesystem(uri)
        except ValueError as error:
            raise ValueError(redacted(f"suite_path = {uri!r}: {error}")) from error
        kind = filesystem.get_file_info(path).type
        if kind == pafs.FileType.NotFound:
            raise ValueError(redacted(f"suite_path = {uri!r}: no such file or folder"))
        needed = "beir" if kind == pafs.FileType.Directory else "sts"
        if needed not in settings.suite:
            what = "a folder, which is for suite = beir" if needed == "beir" else "a file, which is for suite = sts"
            raise ValueError(redacted(f"suite_path = {uri!r}: is {what}; add that to suite, or leave it out"))
        (folders if needed == "beir" else files).append(uri)
    for suite, there, what in (("sts", files, "file of sentence pairs"), ("beir", folders, "folder in BEIR's layout")):
        if suite in settings.suite and not there:
            raise ValueError(f"suite = {','.join(settings.suite)}: suite_path names no {what}")
    return files, folders


def _named(files: list[str]) -> dict[str, str]:
    """Files by their names; by their whole paths where two have the same."""
    short = [without_query(uri).rpartition("/")[2] for uri in files]
    return {name if short.count(name) == 1 else redacted(uri): uri for name, uri in zip(short, files, strict=True)}


def _head(settings: Evaluate) -> list[str]:
    """Which encoders these are."""
    model = escaped(redacted(settings.model))
    if settings.compare is None:
        return [f"{model}, with 95 % intervals:"]
    return [
        f"Before: {escaped(redacted(settings.compare))}. After: {model}. Scores with 95 % intervals; differences, "
        "after less before, with those of a paired bootstrap:"
    ]


def _write(judged: Judged, rows: list[Row], lines: list[str], questions: dict[str, dict[str, str]]) -> Storage:
    """Write what came of it, for programs and for people."""
    settings = judged.settings
    # The folder's name, which is made of this, isn't to depend on a credential.
    content: dict[str, Any] = redacted_json(
        {
            "model": settings.model,
            "compare": settings.compare,
            "rows": [row.content() for row in rows],
            "scores_by_question": questions,
            "settings": settings.model_dump(mode="json", exclude={"corpus"}),
        }
    )

    def work(stage: Stage) -> dict[str, Any]:
        (stage.folder / "suites.json").write_json(content)
        (stage.folder / "suites.md").write_bytes(("\n".join(lines) + "\n").encode())
        return {}

    return judged.stage("suites", fingerprint("suites", content, lines), work).folder
