"""The answer to a table's question in a few sentences: which rows add to the encoder as it is, beyond luck.

A row adds (or takes away) where the 95 % interval of its lead over the row that it is held against is above (below) 0,
and at least as many documents were asked as a run's verdict takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from infocse_ray.report.leads import METRIC, lead_in
from infocse_ray.report.outcome import PLAIN, WHITENED
from infocse_ray.report.studies import START, Study
from infocse_ray.retrieval.verdict import label_of, tells


def of_whitening(study: Study, tables: dict[str, Any]) -> str:
    """What whitening alone does to the encoder as it is; nothing where that isn't known."""
    if WHITENED not in tables["variants"]:
        return ""
    changes = []
    for name, corpus in tables["corpora"].items():
        [start] = [row["metrics"] for row in corpus["tables"][study.name] if row["key"] == START.key]
        plain, whitened = (start[variant][METRIC]["mean"] for variant in (PLAIN, WHITENED))
        if plain is not None and whitened is not None:
            changes.append(f"from {plain:.4f} to {whitened:.4f} ({name})")
    return f"Whitening alone takes R@5 of the encoder as it is {_listed(changes)}." if changes else ""


def of_rows(study: Study, tables: dict[str, Any]) -> str:
    """Which rows add to those that they are held against, which take from them, how many failed; "" if none."""
    sentences = []
    labels = {row.key: row.label for row in study.rows}
    for over in dict.fromkeys(row.over for row in study.rows if row.over):
        leads = list(_leads(study, tables["corpora"], over))
        known = [lead for lead in leads if "low" in lead.figures]
        failed = sum(lead.failed for lead in leads)
        failures = [f"Failed: {failed} of {len(leads)}."] if failed else []
        if not known:
            sentences += failures
            continue
        told = [lead for lead in known if tells(lead_in(lead.figures))]
        ahead = [lead for lead in known if label_of(lead_in(lead.figures)) == "WIN"]
        below = [lead for lead in known if label_of(lead_in(lead.figures)) == "LOSS"]
        won, tried = ({lead.corpus for lead in some} for some in (ahead, told))
        silent = _listed([name for name in tables["corpora"] if name in tried - won])
        what = in_sentence(labels[over], tables)
        if ahead:
            sentences.append(f"Beyond the luck of the test documents, what added to {what}: {_by_row(ahead, True)}.")
            sentences += [f"Nothing did on {silent}."] if silent else []
        elif told:
            sentences.append(f"Beyond the luck of the test documents, nothing added to {what} on {silent}.")
        sentences += [f"Below it: {_by_row(below, False)}."] if below else []
        few = _listed(list(dict.fromkeys(lead.corpus for lead in known if lead not in told)))
        sentences += [f"Too few test documents to tell on {few}."] if few else []
        to_come = len(leads) - len(known) - failed
        sentences += failures
        sentences += [f"Not there yet: {to_come} of {len(leads)}."] if to_come else []
    return " ".join(sentences)


def in_sentence(label: str, tables: dict[str, Any]) -> str:
    """A row that others are held against, as it is called in a sentence."""
    return f"{label[0].lower()}{label[1:]}{', whitened' if WHITENED in tables['variants'] else ''}"


class _Of(NamedTuple):
    row: str
    corpus: str
    figures: dict[str, Any]
    """As `Leads.over` returns it."""
    failed: bool
    """Whether nothing is known since the cells of the row, or of that which it is held against, failed."""


def _leads(study: Study, corpora: dict[str, Any], over: str) -> Iterator[_Of]:
    """Every comparison with one row."""
    for number, row in enumerate(study.rows):
        for name, corpus in corpora.items():
            rows = corpus["tables"][study.name]
            if row.over == over and (lead := rows[number]["lead"]) is not None:
                cells = (rows[number], *(one for one in rows if one["key"] == over))
                yield _Of(row.label, name, lead, "low" not in lead and any(one["failures"] for one in cells))


def _by_row(leads: list[_Of], figures: bool) -> str:
    """SimCSE on bbc_news (+0.0120) and wikiqa (+0.0041); ICT on wikiqa (+0.0034)."""
    corpora: dict[str, list[str]] = {}
    for lead in leads:
        corpora.setdefault(lead.row, []).append(
            lead.corpus + (f" ({lead.figures['difference']:+.4f})" if figures else "")
        )
    return "; ".join(f"{row} on {_listed(names)}" for row, names in corpora.items())


def _listed(names: list[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
