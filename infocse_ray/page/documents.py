"""The corpus as it was read, and the pairs that were made of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infocse_ray.corpus.lengths import class_name
from infocse_ray.page.blocks import Block, Figure, Note, Section, listed
from infocse_ray.page.figure import MUTED, SERIES, drawing
from infocse_ray.page.record import Record, StageRecord
from infocse_ray.settings.text import plain
from infocse_ray.storage.parquet import open_parquet

_REJECTED = 20
"""Rejected rows that are shown."""
_LONGEST_ID = 200
"""Characters of a rejected row's id that are shown."""

_LENGTHS = {
    "sentences_a_document": ("Documents by length", "sentences", "documents"),
    "tokens_a_sentence": ("Sentences by length", "tokens", "sentences"),
}
_PAIRS = {"kept": "an edge joins them", "chained": "in one cluster without an edge", "dropped": "in other clusters"}
_HATCHES = ("", "///", "..")


def corpus_section(record: Record) -> Section:
    """Documents by split, lengths, rejected rows with reasons."""
    stage = record.stages.get("corpus")
    if stage is None or not stage.summary:
        why = "The corpus isn't read yet." if stage is None else "The corpus' record is gone from the storage."
        return Section("corpus", "Corpus", [Note(why)])
    summary = stage.summary
    splits = [split for split, count in summary["documents"].items() if count]
    rows = [[split, summary["documents"][split], summary["labelled"][split]] for split in splits]
    counts = f"{sum(summary['documents'].values()):,} documents of {summary['sentences']:,} sentences and "
    counts += f"{summary['tokens']:,} tokens; the longest has {summary['longest']:,} sentences."
    table = listed("Documents by split", ("split", "documents", "labelled examples"), rows)
    blocks: list[Block] = [Note(counts), table]
    lengths = summary.get("lengths")
    if lengths is None:
        blocks.append(Note("No lengths: an earlier version read this corpus and counted none."))
    else:
        cut = record.settings.get("encoder", {}).get("max_length")
        for name, (title, unit, counted) in _LENGTHS.items():
            if lengths.get(name):
                blocks.append(_lengths(title, unit, counted, lengths[name], cut if unit == "tokens" else None))
    return Section("corpus", "Corpus", [*blocks, *_rejected(stage)])


def _lengths(title: str, unit: str, counted: str, histogram: Mapping[str, int], cut: int | None) -> Figure:
    """Bars by classes of lengths; a line where the encoder cuts texts."""
    least = sorted(map(int, histogram))
    names, counts = [class_name(one) for one in least], [histogram[str(one)] for one in least]
    most = names[max(range(len(counts)), key=counts.__getitem__)]
    alt = f"{title}: {sum(counts):,} {counted}, most of them of {most} {unit}."
    with drawing(alt, 2.9) as (axes, drawn):
        axes.bar(range(len(counts)), counts, color=SERIES[0], width=0.86)
        axes.set_xticks(range(len(names)), [name.replace(" to ", "–") for name in names], rotation=45, ha="right")
        axes.grid(axis="x", visible=False)
        axes.set_xlabel(f"{unit}", color=MUTED)
        axes.set_ylabel(counted, color=MUTED)
        if cut is not None and least[0] < cut < least[-1]:
            place = sum(one < cut for one in least) - 0.5
            axes.axvline(place, color=MUTED, linestyle="--", linewidth=1.2)
            axes.annotate(
                f"about where\n{cut} tokens end", (place, max(counts)), (5, 0), textcoords="offset points", va="top"
            )
    rows = [[name, count] for name, count in zip(names, counts, strict=True)]
    return Figure(title, drawn.svg, listed(title, (unit, counted), rows, folded=True))


def _rejected(stage: StageRecord) -> list[Block]:
    """Reasons with counts, and some of the rows."""
    reasons: dict[str, int] = stage.summary["rejected"]
    if not reasons:
        return [Note("No row was set aside.")]
    by_count = sorted(reasons.items(), key=lambda one: -one[1])
    blocks: list[Block] = [listed("Rows set aside", ("reason", "rows"), by_count)]
    try:
        some = list(itertools.islice(_rejected_rows(stage), _REJECTED))
    except (OSError, ValueError) as error:
        return [*blocks, Note(f"The rows can't be read: {error}")]
    rows = [[row["file"], row["row"], _name(row["doc_id"]), row["reason"]] for row in some]
    title = f"The first {len(rows)} of them" if sum(reasons.values()) > len(rows) else "All of them"
    return [*blocks, listed(title, ("file", "row", "id", "reason"), rows, folded=True)]


def _name(doc_id: str | None) -> str | None:
    """An id as far as it is shown: where another column was taken for it, it may be a whole text."""
    return None if doc_id is None else plain(doc_id, _LONGEST_ID)


def _rejected_rows(stage: StageRecord) -> Iterator[dict[str, Any]]:
    for name in sorted((stage.folder / "rejected").files()):
        with open_parquet(stage.folder / "rejected" / name) as file:
            yield from file.read().to_pylist()


def pairs_section(record: Record) -> Section:
    """Clusters and pairs of every annotation, and the similarities of pairs that the explorer measured."""
    blocks: list[Block] = []
    rows, sizes = [], []
    for training in record.having("annotations"):
        if summary := record.stages[f"{training}/annotations"].summary:
            counts = [summary.get(name) for name in ("documents", "sentences", "clusters", "pairs", "copies")]
            rows.append([training.replace("_", " "), *counts])
            sizes += [[training.replace("_", " "), *one] for one in _sizes(summary.get("cluster_sizes", {}))]
    if rows:
        blocks.append(listed("Clusters", ("annotation", "documents", "sentences", "clusters", "pairs", "copies"), rows))
        blocks.append(listed("Clusters by size", ("annotation", "sentences", "clusters"), sizes, folded=True))
    else:
        blocks.append(Note("No annotation: this run clustered nothing, or hasn't yet."))
    histograms = (record.explorer or {}).get("histogram")
    if histograms:
        blocks += [_edges(t, histograms[t]) for t in _first_and_last(histograms)]
        blocks.append(Note("Documents with their sentences, clusters and edges: the cluster explorer", "explorer.html"))
    elif rows:
        blocks.append(
            Note("No similarities of pairs: they come with the cluster explorer, which this run has none of.")
        )
    return Section("pairs", "Clusters and pairs", blocks)


def _sizes(sizes: Mapping[str, int]) -> Iterator[list[Any]]:
    """Rows of a histogram whose classes are told by their largest size, which doubles."""
    for most in sorted(map(int, sizes)):
        yield [str(most) if most <= 2 else f"{most // 2 + 1:,} to {most:,}", sizes[str(most)]]


def _first_and_last(histograms: Mapping[str, Any]) -> list[str]:
    names = sorted(histograms, key=int)
    return list(dict.fromkeys([names[0], names[-1]]))


def _edges(iteration: str, histogram: Mapping[str, Sequence[float]]) -> Figure:
    """Pairs of sentences of a document by their cosine: with an edge, in a cluster without one, in other clusters."""
    edges = histogram["bin_edges"]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
    widths = [0.94 * (high - low) for low, high in itertools.pairwise(edges)]
    sums = {name: sum(histogram[name]) for name in _PAIRS}
    title = f"Pairs by similarity, iteration {iteration}"
    alt = f"{title}: {', '.join(f'{int(count):,} {name}' for name, count in sums.items())}."
    with drawing(alt, 3.2) as (axes, drawn):
        below = [0.0] * len(middles)
        for number, name in enumerate(_PAIRS):
            style: dict[str, Any] = (
                {"color": SERIES[number]} if not number else {"facecolor": "none", "edgecolor": SERIES[number]}
            )
            axes.bar(middles, histogram[name], widths, bottom=below, hatch=_HATCHES[number], label=name, **style)
            below = [low + count for low, count in zip(below, histogram[name], strict=True)]
        axes.set_xlabel("cosine of the sentences", color=MUTED)
        axes.set_ylabel("pairs", color=MUTED)
        axes.figure.legend(loc="outside upper right", ncols=3)
    rows = [
        [f"{low:.2f} to {high:.2f}", *(int(histogram[name][i]) for name in _PAIRS)]
        for i, (low, high) in enumerate(itertools.pairwise(edges))
    ]
    head = ("cosine", *(f"{name}: {said}" for name, said in _PAIRS.items()))
    return Figure(title, drawn.svg, listed(title, head, rows, folded=True))
