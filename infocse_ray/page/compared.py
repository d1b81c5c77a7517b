"""Several runs on one page: scores side by side, and the settings that differ."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from infocse_ray.page.blocks import Block, Note, Section, listed
from infocse_ray.page.record import Record
from infocse_ray.page.scores import Scored, metric_name, scored, scores_figure
from infocse_ray.page.told import text_of
from infocse_ray.runtime.progress import duration
from infocse_ray.settings import Settings
from infocse_ray.settings.nested import flat
from infocse_ray.settings.unread import Unread, by_finetune, by_plusplus, by_pretrain

_UNTOLD = {"name", "storage"}
_UNREAD: dict[str, Callable[[Settings], Unread]] = {
    "pretrain": by_pretrain,
    "finetune": by_finetune,
    "plusplus": by_plusplus,
}


def compared_sections(records: Sequence[Record]) -> list[Section]:
    """Of several runs, in the order given."""
    return [_verdicts(records), _scores(records), _settings(records), _time(records)]


def _verdicts(records: Sequence[Record]) -> Section:
    rows = []
    for record in records:
        verdict = (record.metrics or {}).get("verdict", {})
        state = "not finished" if not record.finished else "finished" if record.metrics else record.why_no_metrics
        rows.append([record.name, record.job, state, verdict.get("label"), verdict.get("line")])
    head = ("run", "command", "state", "verdict", "in a line")
    return Section("verdicts", "Verdicts", [listed("Verdicts", head, rows)])


def _scores(records: Sequence[Record]) -> Section:
    """The encoder that each run returns, or as far as it got its last, and what each began with."""
    blocks: list[Block] = []
    if len({record.inputs.get("corpus") for record in records}) > 1:
        blocks.append(Note("These runs did not read the same files: their scores may be of different questions."))
    elif _other_questions(records):
        blocks.append(Note("These runs made other documents or splits of the same files: questions differ."))
    if len({_asked(record, on) for record in records if (on := _on(record)) is not None}) > 1:
        blocks.append(Note("Their validation questions differ, in what is asked, how much, or the seed that draws it."))
    if any(not record.finished for record in records):
        blocks.append(Note("Of a run that isn't finished the last encoder is shown that is scored."))
    made = [one for record in records for one in _of(record)]
    if made:
        metrics = dict.fromkeys([*(record.metric for record in records), "mrr"])
        blocks += [scores_figure(made, metric, f"{metric_name(metric)} by run") for metric in metrics]
    else:
        blocks.append(Note("No encoder of these runs is scored yet."))
    blocks.append(
        Note(
            "Intervals are of each encoder by itself. Two encoders that were asked the same questions are told apart "
            "better question by question: infocse evaluate --model A --compare B --corpus.source FILES."
        )
    )
    return Section("scores", "Scores side by side", blocks)


def _other_questions(records: Sequence[Record]) -> bool:
    """Whether the runs' documents, splits or counterparts are known to differ; their tokens may."""
    held = [{} if (corpus := record.stages.get("corpus")) is None else corpus.summary for record in records]
    # Stores of earlier versions don't say what is apart from tokens.
    name = "questions" if all("questions" in one or "content" not in one for one in held) else "content"
    return len({one.get(name) for one in held}) > 1


def _on(record: Record) -> str | None:
    """What a run's validation documents must find; None: that isn't known, or not yet."""
    if record.metrics is not None:
        return record.metrics.get("validate_on")
    if record.job in ("finetune", "plusplus"):
        return "counterpart"
    asked, corpus = record.settings.get("validate", {}).get("on", "auto"), record.stages.get("corpus")
    if asked != "auto":
        return asked
    labelled = None if corpus is None else corpus.summary.get("labelled")
    return None if labelled is None else "counterpart" if labelled["valid"] else "sentence"


def _asked(record: Record, on: str) -> tuple[Any, ...]:
    """What says which questions a run's validation asks of a corpus, where documents must find `on`."""
    validate = (record.metrics or {}).get("settings", record.settings).get("validate", {})  # as `minutes` settled it
    corpus = record.stages.get("corpus")
    counts = {} if corpus is None else corpus.summary
    seed = record.settings.get("seed") if on == "sentence" else None  # it draws which sentences are held out
    by = "labelled" if on == "counterpart" else "documents"
    documents = _bound(validate.get("max_documents"), counts.get(by, {}).get("valid"))
    if on != "counterpart":
        return seed, on, documents
    labels = sum(counts["labelled"].values()) if "labelled" in counts else None
    return seed, on, documents, validate.get("reading"), _bound(validate.get("max_candidates"), labels)


def _bound(most: int | None, there: int | None) -> int | None:
    """`most`, where it may leave out some of what there is; None: it can't."""
    return None if most is None or (there is not None and there <= most) else most


def _of(record: Record) -> list[Scored]:
    """What a run began with and what it returns, under its name."""
    there = [one for one in scored(record) if one.validation or one.test]
    began = [one for one in there if one.name in ("as it came", "whitened only")][-1:]
    returned = [one for one in there if one.returned] or there[-1:]
    kept = [one for one in began if one not in returned] + returned
    return [one._replace(name=f"{record.name}: {one.name}", returned=False) for one in kept]


def _unread(record: Record) -> Unread:
    """Settings, or whole sections, that the run's job doesn't read; none are known of another version's."""
    with contextlib.suppress(KeyError, ValueError):
        return _UNREAD[record.job](Settings.model_validate(record.settings))
    return {}


def _settings(records: Sequence[Record]) -> Section:
    trees = [dict(flat(record.settings)) for record in records]
    unread = [_unread(record) for record in records]
    rows: list[list[Any]] = []
    for name in dict.fromkeys(name for tree in trees for name in tree):
        values = ["" if name not in tree else text_of(tree[name]) for tree in trees]
        read = [name not in names and name.partition(".")[0] not in names for names in unread]
        if name not in _UNTOLD and len(set(itertools.compress(values, read))) > 1:
            rows.append([name, *(value if its else "not read" for value, its in zip(values, read, strict=True))])
    names = [record.name for record in records]
    blocks: list[Block] = [listed("Settings that differ", ("setting", *names), rows)] if rows else []
    versions = [(record.metrics or {}).get("versions", {}) for record in records]
    differing = [
        [package, *(one.get(package) for one in versions)]
        for package in sorted({package for one in versions for package in one})
        if len({one.get(package) for one in versions}) > 1
    ]
    if differing:
        blocks.append(listed("Versions that differ", ("package", *names), differing))
    return Section("settings", "Settings that differ", blocks or [Note("No setting and no version differs.")])


def _time(records: Sequence[Record]) -> Section:
    rows = []
    for record in records:
        own = {stage.fingerprint: stage.seconds for stage in record.stages.values()}
        trained = sum(stage.seconds for stage in record.stages.values() if stage.kind == "train")
        rows.append([record.name, duration(sum(own.values())), duration(trained)])
    note = Note("A stage that several runs share is counted in each of them.")
    return Section("time", "Time", [listed("Time in stages", ("run", "all stages", "training"), rows), note])
