"""The tables as Markdown: the answer first, then a table for each corpus that has begun, what is missing and why, the
paper's numbers.

Scores are mean ± sd with the best of a column in bold, leads with their interval and in bold where they are a WIN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from infocse_ray.report import answer
from infocse_ray.report.leads import lead_in
from infocse_ray.report.outcome import PLAIN, WHITENED
from infocse_ray.report.paper import COLUMNS
from infocse_ray.report.studies import FEW_SHOT, ITERATIONS_STUDIED, LABEL_SHARE, PLUS_PLUS, Study
from infocse_ray.retrieval.bootstrap import Lead
from infocse_ray.retrieval.verdict import FEWEST, label_of, tells

_SHOWN = {"recall@10": "R@10", "recall@20": "R@20", "mrr": "MRR"}
"""Besides R@5, of the variant that is compared."""


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
    first = studies[0]
    told = (answer.of_whitening(first, tables), answer.of_rows(first, tables))
    out = [f"# {escape(tables['name'])}", " ".join(escape(sentence) for sentence in told if sentence), _how(tables)]
    for study in studies:
        notes: list[str] = []
        out += [f"## {study.title}", "" if study is first else escape(answer.of_rows(study, tables))]
        out.append(_caption(study, tables))
        begun = [name for name, corpus in tables["corpora"].items() if any(map(_begun, corpus["tables"][study.name]))]
        out += [_table(study, name, tables, notes) for name in begun]
        to_do = ", ".join(escape(name) for name in tables["corpora"] if name not in begun)
        out += [f"To do: {to_do}."] if to_do else []
        out += ["\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1))] if notes else []
        if study.versus:
            comparisons = [
                (n, one) for n, corpus in tables["corpora"].items() for one in corpus["comparisons"][study.name]
            ]
            out.append("\n".join(_comparison(name, one) for name, one in comparisons))
        out.append(f"![{study.title}]({study.name}.png)")
    out += _paper(studies, tables)
    return "\n\n".join(part for part in out if part) + "\n"


def _how(tables: dict[str, Any]) -> str:
    config, cells = tables["config"], tables["cells"].values()
    finished = sum(cell["state"] == "finished" for cell in cells)
    seeds, rates = config["seeds"], config["learning_rates"]
    text = (
        f"{finished} of {len(cells)} cells (runs) are finished. Each test document must find its counterpart, "
        "the text that belongs to it, such as its headline; scores are "
        f"{'mean ± sample standard deviation over the' if len(seeds) > 1 else 'of'} {_seeds(map(str, seeds))}, "
        "the best of a column is bold. A lead is in "
        "R@5, or where it says so in MRR, with the 95 % interval of a paired bootstrap over the test documents, "
        f"{'and the seeds that both rows have; of one of these' if len(seeds) > 1 else 'of one seed:'} training’s own "
        "noise is not in it; one above 0 is "
        f"bold, which luck alone makes of about one in 40; of fewer than {FEWEST} documents none is. The iteration"
    )
    if len(rates) > 1:
        listed = ", ".join(f"{rate:g}" for rate in rates)
        text += f", and with seed {seeds[0]} the learning rate among {listed},"
    return f"{text} with the best validation score {'are' if len(rates) > 1 else 'is'} shown; the test never chooses."


def _caption(study: Study, tables: dict[str, Any]) -> str:
    config, budget = tables["config"], tables["budget"]
    number = config["iterations"]
    its = f"each of its {number} iterations" if number > 1 else "its iteration"
    start = f"{budget['infocse']:,} tokens in its initialisation and as many in"
    texts = {
        "zero_shot": f"Every trained row encoded {config['tokens']:,} tokens in training: a baseline in one stage, "
        f"InfoCSE {start} {its}, or without initialisation {budget['infocse_none']:,} in "
        "each.",
        "clustering": f"Both encoded {config['tokens']:,} tokens in training.",
        "iterations": f"One run of {ITERATIONS_STUDIED} iterations, none left out whatever validation says: {start} "
        "each. Rows show iterations by number, not by validation.",
        "initialization": f"Every row encoded {config['tokens']:,} tokens in training: {start} {its}; "
        f"without initialisation {budget['infocse_none']:,} in each iteration. CP is CONPONO, SC SimCSE.",
        "annotator": f"Both encoded {config['tokens']:,} tokens in training; first_encoder annotates for the first "
        "iteration only.",
        "options": f"Every row encoded {config['tokens']:,} tokens in training.",
        "cost": f"SimCSE encoded {config['tokens']:,} tokens in training, InfoCSE {budget['infocse_none']:,} in each "
        "iteration. Seconds are of annotating and training; all iterations show the one that validation chose.",
    }
    few = (
        f"Every trained row encoded {config['tokens']:,} tokens in training without labels, as in the other tables; "
        "all were then fine-tuned until validation stopped growing, which is in their steps and tokens."
    )
    if study.kind == FEW_SHOT:
        text = few
    elif study.name == PLUS_PLUS:
        text = (
            f"{few} InfoCSE++ did both up to {config['rounds']} times, with its initialisation once; shown is the "
            "round that validation chose."
        )
    elif study.name == LABEL_SHARE:
        text = (
            f"{few} In turns up to {config['rounds']} times, shown is the round that validation chose; with "
            "`label_share` that share of a batch's examples is labelled."
        )
    else:
        text = texts[study.name]
    return f"{text} A stage ends with the step that reaches its budget. {_annotating(study, tables)}"


def _annotating(study: Study, tables: dict[str, Any]) -> str:
    """The tokens of annotation's forward passes, which are in no budget."""
    known = [
        tokens
        for corpus in tables["corpora"].values()
        for row in corpus["tables"][study.name]
        for tokens in row["annotation_tokens"].values()
    ]
    many = _span(known)
    return f"Annotation's own forward passes are not in it{f': {many} tokens a run' if many else ''}."


def _table(study: Study, corpus: str, tables: dict[str, Any], notes: list[str]) -> str:
    """A study's rows on one corpus; adds to the notes below the study's tables."""
    rows, variants = tables["corpora"][corpus]["tables"][study.name], tables["variants"]
    main = variants[-1]
    columns = [(variant, "recall@5") for variant in variants] + [(main, metric) for metric in _SHOWN]
    best = {c: max((m for row in rows if (m := _mean(row, *c)) is not None), default=None) for c in columns}
    fives = [f"{variant} R@5" for variant in variants] if main == WHITENED else ["R@5"]
    sts = [one for row in rows for variant in variants if (one := row["sts"][variant]["mean"]) is not None]
    heads = [escape(corpus), *fives, f"over {_over(study, tables)}", *_SHOWN.values(), "MRR over it"]
    heads += [*(["STS"] * bool(sts)), "steps", "tokens", "learning rate", *(["power"] * (main == WHITENED)), "seconds"]
    lines = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1)]
    number, by_key = _numbered(notes), {row["key"]: row for row in rows}
    for row in rows:
        row_notes = _notes(row, by_key.get(row["over"]), corpus, len(tables["config"]["seeds"]))
        marks = "".join(f" [{number(note)}]" for note in row_notes)
        for label, shown in _shown_as(row, variants):
            cells = [_score(row, v, "recall@5", best) if v in shown else "" for v in variants]
            cells += [_lead(row["lead"]), *(_score(row, shown[-1], metric, best) for metric in _SHOWN)]
            cells += [_lead(row["lead_in_mrr"]), *([_shown(row["sts"][shown[-1]]) or ""] * bool(sts))]
            cells += [_span(row["steps"].values()), _span(row["tokens"].values()), _rate(row)]
            cells += [_powers(row) if WHITENED in shown else ""] * (main == WHITENED)
            cells.append(_span(row["seconds"].values()) if any(row["tokens"].values()) else "")
            lines.append(f"| {escape(label)}{marks} | {' | '.join(cells)} |")
            marks = ""  # once is enough
    return "\n".join(lines)


def _begun(row: dict[str, Any]) -> bool:
    """Whether there is anything to show of a row on a corpus."""
    return bool(row["tokens"] or row["failures"])


def _shown_as(row: dict[str, Any], variants: list[str]) -> list[tuple[str, list[str]]]:
    """Labels and variants: the encoder as it is, and whitened, are two lines, which the others are read against."""
    if row["over"] or len(variants) == 1:
        return [(row["label"], variants)]
    return [(row["label"], [PLAIN]), (f"{row['label']}, whitened", [WHITENED])]


def _over(study: Study, tables: dict[str, Any]) -> str:
    """What rows are held against, for the head of a column."""
    overs = [over for over in dict.fromkeys(row.over for row in study.rows) if over]
    if len(overs) == 1:
        return answer.in_sentence(next(row.label for row in study.rows if row.key == overs[0]), tables)
    return "the encoder as it is, with the same labels (that without any)"


def _lead(lead: dict[str, Any] | None) -> str:
    if lead is None or "low" not in lead:
        return ""
    shown = f"{lead['difference']:+.4f} ({lead['low']:+.4f} to {lead['high']:+.4f})"
    return f"**{shown}**" if label_of(lead_in(lead)) == "WIN" else shown


def _rate(row: dict[str, Any]) -> str:
    rate = row["learning_rate"]["chosen"]
    return "" if rate is None else f"{rate:g}"


def _powers(row: dict[str, Any]) -> str:
    """The whitening's, each once."""
    powers = sorted({one["power"] for one in row["whitening"].values() if one is not None})
    return ", ".join(f"{power:g}" for power in powers)


def _span(counts: Iterable[float | None]) -> str:
    """Counts over seeds: the one there is, or the lowest and the highest."""
    known = [round(count) for count in counts if count is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _numbered(notes: list[str]) -> Callable[[str], int]:
    def number(note: str) -> int:
        if note not in notes:
            notes.append(note)
        return notes.index(note) + 1

    return number


def _mean(row: dict[str, Any], variant: str, metric: str) -> float | None:
    return row["metrics"][variant][metric]["mean"]


def _score(row: dict[str, Any], variant: str, metric: str, best: dict[tuple[str, str], float | None]) -> str:
    score = row["metrics"][variant][metric]
    if (shown := _shown(score)) is None:
        return "skipped" if row["skipped"] else "failed" if row["failures"] else "to do"
    return f"**{shown}**" if score["mean"] == best.get((variant, metric)) else shown


def _shown(score: dict[str, Any]) -> str | None:
    """Mean ± sd; None where there is none."""
    if score["mean"] is None:
        return None
    return f"{score['mean']:.4f}" + ("" if score["sd"] is None else f" ± {score['sd']:.4f}")


def _notes(row: dict[str, Any], over: dict[str, Any] | None, corpus: str, seeds: int) -> list[str]:
    """What is missing, and why, in the comparison of a row with another on a corpus."""
    where = f"{escape(row['label'])}, {escape(corpus)}"
    if row["skipped"]:
        return [f"{escape(row['label'])}: skipped: {escape(row['skipped'])}"]
    reasons: dict[str, list[str]] = {}
    for seed, reason in row["failures"].items():
        reasons.setdefault(reason, []).append(seed)
    notes = [f"{where}, {_seeds(failed)}: failed: {escape(reason)}" for reason, failed in reasons.items()]
    rate = row["learning_rate"]
    if rate["chosen"] is not None and (left_out := [tried for tried, score in rate["tried"].items() if score is None]):
        notes.append(f"{where}: the learning rate {', '.join(left_out)} failed and wasn't chosen among")
    if row["to_do"] and len(row["to_do"]) < seeds:
        notes.append(f"{where}, {_seeds(map(str, row['to_do']))}: not run yet")
    if over is not None and over["iteration"] and row["iteration"] and "missing" in row["lead"]:
        notes.append(f"{where}: no comparison: {escape(row['lead']['missing'])}")
    return notes


def _seeds(seeds: Iterable[str]) -> str:
    listed = list(seeds)
    return f"seed{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def _comparison(corpus: str, comparison: dict[str, Any]) -> str:
    """A lead over a row other than the one a row is held against."""
    ours = escape(comparison["of"])
    if "missing" in comparison:
        return f"- {escape(corpus)}: no comparison of {ours}: {escape(comparison['missing'])}."
    lead, in_mrr = lead_in(comparison), lead_in(comparison["in_mrr"])
    strongest = ", the strongest row of another method," if comparison["strongest"] else ""
    return (
        f"- {escape(corpus)}: {ours} less {escape(comparison['over'])}{strongest} is {lead.difference:+.4f} in R@5 "
        f"(95 % interval {lead.low:+.4f} to {lead.high:+.4f}; {lead.documents:,} test documents, {lead.questions:,} "
        f"questions, {_seeds(map(str, comparison['seeds']))}): {_told_apart(lead, ours)}; {in_mrr.difference:+.4f} in "
        f"MRR ({in_mrr.low:+.4f} to {in_mrr.high:+.4f}): {_told_apart(in_mrr, ours)}."
    )


def _told_apart(lead: Lead, ours: str) -> str:
    if not tells(lead):
        return "too few documents to tell them apart"
    said = {"WIN": f"{ours} leads", "LOSS": f"{ours} is behind"}
    return said.get(label_of(lead), "there is no telling them apart")


def _paper(studies: list[Study], tables: dict[str, Any]) -> list[str]:
    """The paper's own numbers for the corpora that are like its own."""
    paper = tables["paper"]
    if not paper:
        return []
    like = {c: [n for n, corpus in tables["corpora"].items() if corpus["like"] == c] for c in COLUMNS}
    columns = [c for c in COLUMNS if like[c]]
    out = [
        "## For reference: the paper's own R@5",
        "From arXiv 2202.13802, Tables 1 to 3. **They were not measured here**: other corpora, BERT-base, another "
        "budget, one seed, no whitening. Compare orders and gaps, not values.",
    ]
    for study in studies:
        if study.name not in paper:
            continue
        heads = [f"{COLUMNS[c]} (like {escape(', '.join(like[c]))})" for c in columns]
        lines = [f"| {study.title} | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
        labels = {row.key: row.label for row in study.rows}
        for key, values in paper[study.name].items():
            lines.append(f"| {escape(labels[key])} | {' | '.join(f'{values[c][0]:.4f}' for c in columns)} |")
        out.append("\n".join(lines))
    return out
