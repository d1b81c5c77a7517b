"""The tables as Markdown: mean ± sd with the best of a column in bold, what is missing and why, the paper's numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from infocse_ray.report.bootstrap import Lead
from infocse_ray.report.paper import COLUMNS
from infocse_ray.report.studies import FEW_SHOT, ITERATIONS_STUDIED, PLUS_PLUS, Study

_FEW_STEPS = 50
_SHOWN = {"recall@5": "R@5", "recall@10": "R@10", "recall@20": "R@20"}


def escape(text: object) -> str:
    """Text as it stands in Markdown: one line, no markup, no end of a table's cell."""
    line = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]<>#|~$])", r"\\\1", line).replace("&", "&amp;")


def render(studies: list[Study], tables: dict[str, Any]) -> str:
    """The content of `tables.md`.

    Args:
        studies: with the rows to show.
        tables: what `summarise` returns.
    """
    seeds = tables["config"]["seeds"]
    out = [f"# {escape(tables['name'])}", _how(tables)]
    for study in studies:
        notes: list[str] = []
        out += [f"## {study.title}", _caption(study, tables), _table(study, tables, len(seeds), notes)]
        out.append(_few_steps(study, tables))
        out += ["\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1))] if notes else []
        if study.versus:
            leads = [(name, lead) for name, corpus in tables["corpora"].items() for lead in corpus["leads"][study.name]]
            out.append("\n".join(_lead(name, lead) for name, lead in leads))
        out.append(f"![{study.title}]({study.name}.png)")
    out += _paper(studies, tables)
    return "\n\n".join(part for part in out if part) + "\n"


def _how(tables: dict[str, Any]) -> str:
    config, cells = tables["config"], tables["cells"].values()
    finished = sum(cell["state"] == "finished" for cell in cells)
    seeds = ", ".join(map(str, config["seeds"]))
    return (
        f"{finished} of {len(cells)} cells are finished. Each test document must find its counterpart; scores are "
        f"recall@5, 10 and 20, mean ± sample standard deviation over the seeds {seeds}; the best of a column is bold. "
        "A row shows the trained encoder of the iteration with the best validation score; `start` is the encoder "
        "untouched; the test never chooses."
    )


def _caption(study: Study, tables: dict[str, Any]) -> str:
    config, budget = tables["config"], tables["budget"]
    start = f"{budget['infocse']:,} tokens in its initialisation and as many in each of its"
    texts = {
        "zero_shot": f"Every trained row encoded {config['tokens']:,} tokens in training: a baseline in one stage, "
        f"InfoCSE {start} {config['iterations']} iterations.",
        "clustering": f"Both encoded {config['tokens']:,} tokens in training.",
        "iterations": f"One run of {ITERATIONS_STUDIED} iterations, none left out whatever validation says: {start} "
        "iterations. Rows show iterations by number, not by validation.",
        "initialization": f"Every row encoded {config['tokens']:,} tokens in training: {start} {config['iterations']} "
        f"iterations; without initialisation {budget['infocse_none']:,} in each iteration. CP is CONPONO, SC SimCSE.",
        "annotator": f"Both encoded {config['tokens']:,} tokens in training; first_encoder annotates for the first "
        "iteration only.",
        "options": f"Every row encoded {config['tokens']:,} tokens in training.",
    }
    few = (
        f"Every trained row encoded {config['tokens']:,} tokens in training without labels, as in the other tables; "
        "all were then fine-tuned until validation stopped growing; steps and tokens of that are in tables.json."
    )
    if study.kind == FEW_SHOT:
        text = few
    elif study.name == PLUS_PLUS:
        text = (
            f"{few} InfoCSE++ did both up to {config['rounds']} times, with its initialisation once; shown is the "
            "round that validation chose."
        )
    else:
        text = texts[study.name]
    return f"{text} A stage ends with the step that reaches its budget. {_annotating(study, tables)}"


def _annotating(study: Study, tables: dict[str, Any]) -> str:
    """What annotation's forward passes come to, which no budget has."""
    known = [
        tokens
        for corpus in tables["corpora"].values()
        for row in corpus["tables"][study.name]
        for tokens in row["annotation_tokens"].values()
        if tokens is not None
    ]
    if not known:
        return "Annotation's own forward passes are not in it."
    low, high = min(known), max(known)
    many = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"Annotation's own forward passes are not in it: {many} tokens a run."


def _table(study: Study, tables: dict[str, Any], seeds: int, notes: list[str]) -> str:
    corpora = tables["corpora"]
    columns = [(name, metric) for name in corpora for metric in _SHOWN]
    best = {
        (name, metric): max(
            (mean for row in corpora[name]["tables"][study.name] if (mean := _mean(row, metric)) is not None),
            default=None,
        )
        for name, metric in columns
    }
    lines = [
        "| | " + " | ".join(f"{escape(name)} {_SHOWN[metric]}" for name, metric in columns) + " |",
        "| --- |" + " --- |" * len(columns),
    ]
    noted = _numbered(notes)
    for number, row in enumerate(study.rows):
        cells = []
        for name in corpora:
            found = corpora[name]["tables"][study.name][number]
            marks = "".join(f" [{noted(note)}]" for note in _notes(found, name, seeds))
            for metric in _SHOWN:
                mean = _mean(found, metric)
                shown = _state(found) if mean is None else _score(found["metrics"][metric])
                bold = mean is not None and mean == best[name, metric]
                cells.append((f"**{shown}**" if bold else shown) + marks)
                marks = ""  # with the first score of a corpus is enough
        lines.append(f"| {escape(row.label)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _few_steps(study: Study, tables: dict[str, Any]) -> str:
    """The rows for which the budget is so few steps that it says little of the method; none: nothing."""
    if study.kind == FEW_SHOT or study.name == PLUS_PLUS:
        return ""  # the labels are few, not the steps
    found = []
    for name, corpus in tables["corpora"].items():
        for row in corpus["tables"][study.name]:
            steps = [many for many in row["steps"].values() if many is not None]
            if steps and min(steps) < _FEW_STEPS:
                many = f"{min(steps)}" if min(steps) == max(steps) else f"{min(steps)} to {max(steps)}"
                where = f"{escape(row['label'])}, {escape(name)}"
                found.append(f"{where}: the budget in tokens is {many} steps of this method's batch")
    return f"Few steps: {'; '.join(found)}." if found else ""


def _numbered(notes: list[str]) -> Callable[[str], int]:
    def number(note: str) -> int:
        if note not in notes:
            notes.append(note)
        return notes.index(note) + 1

    return number


def _mean(row: dict[str, Any], metric: str) -> float | None:
    return row["metrics"][metric]["mean"]


def _score(found: dict[str, Any]) -> str:
    return f"{found['mean']:.4f}" + ("" if found["sd"] is None else f" ± {found['sd']:.4f}")


def _state(row: dict[str, Any]) -> str:
    return "skipped" if row["skipped"] else "failed" if row["failures"] else "to do"


def _notes(row: dict[str, Any], corpus: str, seeds: int) -> list[str]:
    """What is missing of a row on a corpus, and why, and whether training made it worse."""
    where = f"{escape(row['label'])}, {escape(corpus)}"
    if row["skipped"]:
        return [f"{escape(row['label'])}: skipped: {escape(row['skipped'])}"]
    reasons: dict[str, list[str]] = {}
    for seed, reason in row["failures"].items():
        reasons.setdefault(reason, []).append(seed)
    notes = [f"{where}, {_seeds(failed)}: failed: {escape(reason)}" for reason, failed in reasons.items()]
    if row["to_do"] and len(row["to_do"]) < seeds:
        notes.append(f"{where}, {_seeds([str(seed) for seed in row['to_do']])}: not run yet")
    if below := row["below_start"]:
        scores, starts = (", ".join(f"{one[of]:.4f}" for one in below.values()) for of in ("score", "start"))
        metric = next(iter(below.values()))["metric"]
        notes.append(
            f"{where}, {_seeds(list(below))}: its validation {metric}, {scores}, is below that of the encoder its "
            f"training began with, {starts}"
        )
    return notes


def _seeds(seeds: list[str]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"


def _lead(corpus: str, found: dict[str, Any]) -> str:
    ours = escape(found["of"])
    if "missing" in found:
        return f"- {escape(corpus)}: no comparison of {ours}: {escape(found['missing'])}."
    lead = Lead(**{name: found[name] for name in Lead._fields})
    if lead.low > 0:
        verdict = f"{ours} leads, over the choice of test documents"
    elif lead.high < 0:
        verdict = f"{ours} is behind, over the choice of test documents"
    else:
        verdict = "there is no telling them apart, over the choice of test documents"
    several = len(found["seeds"]) > 1
    noise = "seeds averaged" if several else "one seed: training's own noise is not in it"
    seeds = _seeds([str(seed) for seed in found["seeds"]])
    return (
        f"- {escape(corpus)}: {ours} less {escape(found['over'])}"
        f"{', the strongest other row,' if found['strongest'] else ''} is {lead.difference:+.4f} "
        f"in R@5 (95 % interval {lead.low:+.4f} to {lead.high:+.4f}; {100 * lead.no_lead:.2f} % of "
        f"{lead.resamples:,} paired bootstrap resamples of the {lead.documents:,} test documents, with "
        f"{lead.questions:,} questions, show no lead): {verdict} ({seeds}; {noise})."
    )


def _paper(studies: list[Study], tables: dict[str, Any]) -> list[str]:
    """The paper's own numbers for the corpora that are like its own."""
    paper = tables["paper"]
    if not paper:
        return []
    like = {c: [n for n, corpus in tables["corpora"].items() if corpus["like"] == c] for c in COLUMNS}
    columns = [c for c in COLUMNS if like[c]]
    out = [
        "## For reference: the paper's own numbers",
        "From arXiv 2202.13802, Tables 1 to 3. **They were not measured here**: other corpora, BERT-base, another "
        "budget, one seed. Compare orders and gaps, not values.",
    ]
    for study in studies:
        if study.name not in paper:
            continue
        heads = [f"{COLUMNS[c]} (like {escape(', '.join(like[c]))}) {m}" for c in columns for m in _SHOWN.values()]
        lines = [
            f"The paper, {study.title.lower()}:",
            "",
            "| | " + " | ".join(heads) + " |",
            "| --- |" + " --- |" * len(heads),
        ]
        labels = {row.key: row.label for row in study.rows}
        for key, found in paper[study.name].items():
            scores = [f"{score:.4f}" if score else "" for c in columns for score in (*found[c], 0, 0)[: len(_SHOWN)]]
            lines.append(f"| {escape(labels[key])} | " + " | ".join(scores) + " |")
        out.append("\n".join(lines))
    return out
