"""The verdict, and what every encoder of a run scored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from infocse_ray.methods.recipes import how_chosen
from infocse_ray.page.blocks import Block, Figure, Note, Section, Table, listed
from infocse_ray.page.figure import MARKERS, MUTED, SERIES, drawing, label
from infocse_ray.page.record import Record

_NORMAL = 1.959964
"""A 95 % interval is so many standard errors to each side."""

_SPLITS = {"test": "test", "validation": "validation"}
_METRICS = ("recall@5", "recall@10", "recall@20", "mrr")


class Scored(NamedTuple):
    """An encoder of a run, by what it scored."""

    name: str
    validation: Mapping[str, float] | None
    test: Mapping[str, float] | None
    returned: bool = False
    """Whether it is the run's result."""

    def of(self, split: str) -> Mapping[str, float] | None:
        """Its scores on `validation` or `test`."""
        return self.validation if split == "validation" else self.test


def verdict_section(record: Record) -> Section:
    """The verdict as a table; the page's head has it in a line."""
    verdict = (record.metrics or {}).get("verdict")
    if verdict is None:
        why = record.why_no_metrics if record.metrics is None else "an earlier version made this run and kept none"
        return Section("verdict", "Verdict", [Note(f"No verdict{'' if record.finished else ' yet'}: {why}.")])
    rows = []
    for split in _SPLITS:
        if (one := verdict.get(split)) is not None:
            interval = f"{one['low']:+.4f} to {one['high']:+.4f}"
            if (among := one.get("chosen_among", 1)) > 1:  # earlier versions didn't say
                interval += f", of the best of {among:,}"
            asked = f"{one['questions']:,} of {one['documents']:,} documents"
            rows.append(
                [
                    split,
                    one["metric"],
                    f"{one['before']:.4f}",
                    f"{one['after']:.4f}",
                    f"{one['difference']:+.4f}",
                    interval,
                    asked,
                ]
            )
    head = ("questions of", "metric", "before", "after", "difference", "95 % interval", "questions")
    over = {"whitened": "the encoder as it came, whitened", "start": "the encoder as it came"}.get(verdict["over"], "")
    judged = f"Before is {over}. The {verdict['judged_on']} questions decide; a difference whose interval has 0 in it "
    judged += "may be chance."
    return Section("verdict", "Verdict", [listed("Before and after", head, rows), Note(judged), *_pilots(record)])


def _pilots(record: Record) -> list[Block]:
    """The short trainings that chose how the run was trained; none where its settings said."""
    recipe = (record.metrics or {}).get("recipe")
    if recipe is None:
        return []
    metric = (record.metrics or {})["settings"]["validate"]["metric"]
    rows: list[list[Any]] = [["the start", f"{recipe['start'][metric]:.4f}", 0, ""]]
    for name, pilot in recipe["pilots"].items():
        if (why := pilot.get("left_out")) is not None:
            rows.append([name, None, None, why])
        else:
            rows.append([name, f"{pilot['validation'][metric]:.4f}", pilot["steps"], ""])
    head = ("training", f"validation {metric}", "steps", "left out")
    return [Note(how_chosen(recipe)), listed("Short trainings", head, rows)]


def scored(record: Record) -> list[Scored]:
    """The run's encoders in the order they were made, as far as it got."""
    metrics = record.metrics
    if metrics is None:
        return list(_scored_so_far(record))
    initialised = record.settings.get("loop", {}).get("initialization", "none") != "none"
    made = [_entry(_BEGAN[name], metrics[name]) for name in _BEGAN if name in metrics]
    none_better = metrics.get("best_round") == 0 or (not initialised and metrics.get("best_iteration") == 0)
    if made and none_better:  # the start itself, which stands here already
        start = 0 if record.whitening_left_out else -1
        made[start] = made[start]._replace(returned=True)
    for one in metrics.get("rounds", ()):
        for name, said in (("zero_shot", "before fine-tuning"), ("fine_tuned", "fine-tuned")):
            best = name == "fine_tuned" and one["round"] == metrics["best_round"]
            made.append(_entry(f"round {one['round']}, {said}", one[name], best))
    for one in metrics.get("iterations", ()):
        if one["iteration"] or initialised or "start" not in metrics:
            name = f"iteration {one['iteration']}" if one["iteration"] else "initialised"
            made.append(_entry(name, one, one["iteration"] == metrics["best_iteration"]))
    return made


_BEGAN = {"start": "as it came", "whitened": "whitened only"}


def _entry(name: str, entry: Mapping[str, Any], returned: bool = False) -> Scored:
    return Scored(name, entry.get("validation"), entry.get("test"), returned)


def _scored_so_far(record: Record) -> Iterator[Scored]:
    """Of an unfinished run: what its stages have."""
    for name, said in _BEGAN.items():
        found = [record.stages.get(f"{name}/{split}") for split in ("valid", "test")]
        if any(found):
            validation, test = (None if one is None else one.summary.get("metrics") for one in found)
            yield Scored(said, validation, test)
    for training in record.trainings:
        test = record.stages.get(f"{training}/test")
        chosen = record.stages[f"{training}/train"].summary.get("chosen")
        yield Scored(training.replace("_", " "), chosen, test and test.summary.get("metrics"))


def scores_section(record: Record) -> Section:
    """Scores by encoder with their intervals: the run's metric and the MRR, then all as a table."""
    made = [one for one in scored(record) if one.validation or one.test]
    if not made:
        return Section("scores", "Scores", [Note("No encoder is scored yet.")])
    blocks: list[Block] = [scores_figure(made, metric) for metric in dict.fromkeys((record.metric, "mrr"))]
    blocks.append(_table(made))
    if any(one.returned for one in made):
        [best] = [one for one in made if one.returned][:1]
        blocks.append(Note(f"The run returns the encoder “{best.name}”, {_how_good(best, made, record.metric)}."))
    return Section("scores", "Scores by iteration", blocks)


def _how_good(returned: Scored, made: list[Scored], metric: str) -> str:
    """Of what a run returns, beside all that it validated."""
    validated = {one.name: one.validation[metric] for one in made if one.validation}
    best = max(validated, key=validated.__getitem__, default=returned.name)
    if returned.name not in validated or validated[best] == validated[returned.name]:
        return "which has the best validation score"
    return f"which was chosen among what it trained; “{best}” has a better validation score"


def scores_figure(made: list[Scored], metric: str, title: str | None = None) -> Figure:
    """Points with 95 % intervals: an encoder a row, a series a split."""
    name = metric_name(metric)
    splits = [split for split in _SPLITS if any(one.of(split) for one in made)]
    asked = " and ".join(splits)
    alt = f"{name} of {len(made)} encoders on {asked} questions, with 95 % intervals: "
    alt += "; ".join(f"{one.name} {_said(one, splits, metric)}" for one in made[:8]) + "."
    with drawing(alt, 1.35 + 0.42 * len(made)) as (axes, drawn):
        for number, split in enumerate(splits):
            shift = 0.16 * (number - (len(splits) - 1) / 2) * 2
            for row, one in enumerate(made):
                scores = one.of(split)
                if scores is None or metric not in scores:
                    continue
                value, low, high = _with_interval(scores, metric)
                axes.errorbar(
                    value,
                    row + shift,
                    xerr=[[max(value - low, 0.0)], [max(high - value, 0.0)]],
                    fmt=MARKERS[number],
                    color=SERIES[number],
                    markerfacecolor=SERIES[number] if number == 0 else "none",
                    capsize=3,
                )
            axes.plot(
                [],
                [],
                linestyle="",
                marker=MARKERS[number],
                color=SERIES[number],
                markerfacecolor=SERIES[number] if number == 0 else "none",
                label=_SPLITS[split],
            )
        axes.set_yticks(range(len(made)), [_tick(one) for one in made])
        axes.set_ylim(len(made) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(name, color=MUTED)
        axes.figure.legend(loc="outside upper right", ncols=2, handletextpad=0.2)
    rows = []
    for one in made:
        for split in splits:
            if (scores := one.of(split)) is not None and metric in scores:
                value, low, high = _with_interval(scores, metric)
                error = (high - low) / (2 * _NORMAL) if high > low or low < value else None
                rows.append([one.name, split, f"{value:.4f}", f"{low:.4f} to {high:.4f}", error, scores.get("queries")])
    head = ("encoder", "questions of", name, "95 % interval", "standard error", "questions")
    return Figure(title or f"{name} by encoder", drawn.svg, listed(f"{name} by encoder", head, rows, folded=True))


def _tick(one: Scored) -> str:
    """Its name beside a plot: of one of several runs in two lines, the run and the encoder."""
    lines = one.name.partition(": ")[::2]
    return "\n".join(label(line) for line in lines if line) + (" ★" if one.returned else "")


def _said(one: Scored, splits: list[str], metric: str) -> str:
    there = [(split, scores[metric]) for split in splits if (scores := one.of(split)) is not None and metric in scores]
    return ", ".join(f"{split} {value:.3f}" for split, value in there)


def metric_name(metric: str) -> str:
    """A metric as people write it."""
    return "MRR" if metric == "mrr" else metric.capitalize()


def _with_interval(scores: Mapping[str, float], metric: str) -> tuple[float, float, float]:
    """A score and the ends of its interval; the score itself where an early version kept none."""
    value = scores[metric]
    return value, scores.get(f"{metric}_low", value), scores.get(f"{metric}_high", value)


def _table(made: list[Scored]) -> Table:
    """All scores of all encoders."""
    splits = [split for split in _SPLITS if any(one.of(split) for one in made)]
    head = ["encoder", *(f"{split} {metric_name(metric)}" for split in splits for metric in _METRICS)]
    rows = []
    for one in made:
        cells = [(one.of(split) or {}).get(metric) for split in splits for metric in _METRICS]
        rows.append([one.name, *("" if cell is None else f"{cell:.4f}" for cell in cells)])
    return Table("All scores", head, rows)
