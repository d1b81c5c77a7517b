"""A run's explorer: `explorer.json` and, of it, `explorer.html`.

It is no stage, for nothing is made of it: two files beside `metrics.json`, written whole, and made again where the
annotations or the documents asked for are others than those they were made of.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from infocse_ray.annotate.actor import in_actors, told
from infocse_ray.encoder.tokenizer import load_tokenizer, tokenizer_json
from infocse_ray.explorer.annotations import AnnotatedRun, Annotation, annotated_run
from infocse_ray.explorer.clustered import ClusterAgain
from infocse_ray.explorer.drawn import Drawn, draw, find
from infocse_ray.explorer.histogram import histogram
from infocse_ray.explorer.page import embedded, render
from infocse_ray.loop.manifest import read_manifest
from infocse_ray.retrieval.examples import decoded
from infocse_ray.runtime.cluster import Placement, connect, placement, quiet_data
from infocse_ray.runtime.failures import one_line
from infocse_ray.runtime.progress import Bar, say
from infocse_ray.settings import Annotate, Explorer, Settings, fingerprint
from infocse_ray.settings.explorer import ExploreRun
from infocse_ray.storage.folder import HTML, Storage
from infocse_ray.storage.redact import redacted_json

DATA, PAGE = "explorer.json", "explorer.html"

_FORMAT = 1
_MOST_BYTES = 4_500_000
"""Of documents in the page, which is to stay under 5 MB."""
_MOST_CHARACTERS = 1_000
"""Of a sentence."""


def explore_after(settings: Settings) -> Storage | None:
    """Make a run's explorer when the run has ended, unless it is there; that it fails is a warning, no error.

    Args:
        settings: of the run, which is finished.

    Returns:
        The page, if there is one.
    """
    try:
        _forget_others(Storage.open(settings.storage) / settings.name)
        if not settings.explorer.documents and not settings.explorer.ids:
            return None
        run = annotated_run(Storage.open(settings.storage), settings.name)
        return _explore(run, settings.explorer, settings.explorer)
    except Exception as error:
        say(
            f"warning: the run is finished, its cluster explorer isn't: {one_line(error)}; `infocse explorer "
            f"{settings.name} --storage {settings.storage}` makes it"
        )
        return None


def explore(asked: ExploreRun) -> None:
    """Make the explorer of a finished run again, with the documents asked for: the work of `infocse explorer`.

    Raises:
        ValueError: there is no such run, or it isn't finished, or has no clusters; or a document isn't there.
    """
    run = annotated_run(Storage.of_runs(asked.storage), asked.name)
    own = run.settings.explorer
    documents = own.documents if asked.documents is None else asked.documents
    wanted = Explorer(documents=documents, ids=[*own.ids, *asked.ids])
    if not documents and not wanted.ids:  # before the page that is there is given up
        raise ValueError("documents = 0: leaves nothing to show; name documents with ids, or let some be drawn")
    if _explore(run, wanted, own, asked.ids) is None:
        raise ValueError(f"name = {asked.name!r}: there is nothing to show of that run")


def _forget_others(folder: Storage) -> None:
    """Remove a page of annotations that aren't the run's, also where none is made in its place."""
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        shown = {one["annotations"] for one in (folder / DATA).read_json()["iterations"]}
        if shown - {stage["fingerprint"] for stage in read_manifest(folder)["stages"].values()}:
            _forget(folder)


def _forget(folder: Storage) -> None:
    """Remove the page of what an earlier run of the name clustered, which says nothing of this one."""
    for name in (PAGE, DATA):
        (folder / name).delete()


def _explore(
    run: AnnotatedRun, asked: Explorer, own: Explorer, required: Sequence[str] | None = None
) -> Storage | None:
    """Make the page; None where there is nothing to show.

    Args:
        run: whose.
        asked: for what it has.
        own: what the run's settings ask for.
        required: ids that must be there; None: none must, nor is the page made again where it is there.
    """
    if not run.annotations:
        method = run.settings.train.method
        why = "this run annotated nothing" if method == "idc" else f"train.method = {method} makes no clusters"
        say(f"no cluster explorer: {why}")
        _forget(run.folder)
        return None
    page = run.folder / PAGE
    made_of = fingerprint("explorer", _FORMAT, [one.stage.fingerprint for one in run.annotations])
    if required is None and page.exists() and _serves(run.folder / DATA, made_of, asked):
        say(f"the cluster explorer is there: {page}")
        return page
    drawn = _documents(run, asked, required or ())
    if not drawn:
        say("no cluster explorer: there is no document to show")
        _forget(run.folder)
        return None
    content = {
        "format": _FORMAT,
        "made_of": made_of,
        "asked": asked.model_dump(mode="json"),
        "of_run": own.model_dump(mode="json"),
        "name": run.settings.name,
        "clustering": run.settings.annotate.clustering,
        "rule": _rule(run.settings.annotate) + _shown(run),
        **_content(run, drawn),
    }
    content = redacted_json(content)
    (run.folder / DATA).write_bytes(embedded(content).encode())
    page.write_bytes(render(content), content_type=HTML)
    say(f"the clusters of {len(content['documents']):,} documents, to look at in a browser: {page}")
    return page


def _serves(file: Storage, made_of: str, asked: Explorer) -> bool:
    """Whether an explorer has what a run asks for, or what the user asked for by the command since the run did."""
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
        there = file.read_json()
        had = there["asked"]
        serves = had["documents"] == asked.documents and {*asked.ids} <= {*had["ids"]}
        return there["made_of"] == made_of and (serves or there.get("of_run") == asked.model_dump(mode="json"))
    return False


def _documents(run: AnnotatedRun, asked: Explorer, required: Sequence[str]) -> list[Drawn]:
    """Those that are named, then those that the seed draws.

    Raises:
        ValueError: one that is `required` isn't there.
    """
    named, missing = find(run.documents, asked.ids)
    clustered = "clustered" if not run.documents.draws else "clustered in every iteration (annotate.share)"
    none = f"no document that was {clustered} has such an id"
    if run.documents.draws:
        none += "; with annotate.share = 1 all are"
    if refused := [one for one in missing if one in required]:
        splits = f"ids are those of the corpus, in splits {', '.join(run.documents.splits)}"
        raise ValueError(f"ids = {', '.join(map(repr, refused))}: {none}; {splits}")
    if missing:
        say(f"warning: explorer.ids = {', '.join(map(repr, missing))}: {none}")
    keys = {one.key for one in named}
    return named + [one for one in draw(run.documents, asked.documents, run.settings.seed) if one.key not in keys]


class _Found(NamedTuple):
    """What an iteration made of the documents."""

    rows: dict[int, dict[str, Any]]
    """By the document's key: see `ClusterAgain`."""
    pairs: np.ndarray
    """int64 [3, bins], of all documents; see `count_pairs_by_cosine`."""


def _content(run: AnnotatedRun, drawn: list[Drawn]) -> dict[str, Any]:
    """Iterations, documents and the histogram."""
    connect()
    quiet_data()
    tokenizer = Tokenizer.from_str(tokenizer_json(load_tokenizer(run.tokenizer.local(), str(run.tokenizer.folder))))
    found = {one.iteration: _found(run, one, drawn) for one in run.annotations}
    documents, size = [], 0
    for one in drawn:
        texts = [
            text[:_MOST_CHARACTERS] + (" …" if len(text) > _MOST_CHARACTERS else "")
            for text in decoded(tokenizer, one.sentences)
        ]
        seen = {iteration: dict(each.rows[one.key]) for iteration, each in found.items()}
        for row in seen.values():
            del row["key"], row["pairs"]
        document = {
            "id": one.doc_id,
            "named": one.named,
            "sentences": texts,
            "sentences_in_all": one.sentences_in_all,
            "iterations": {str(iteration): row for iteration, row in seen.items()},
        }
        size += len(embedded(document).encode())
        if size > _MOST_BYTES:
            say(f"the cluster explorer has the first {len(documents)} of {len(drawn)} documents: it stays under 5 MB")
            break
        documents.append(document)
    return {
        "iterations": [{"iteration": one.iteration, "annotations": one.stage.fingerprint} for one in run.annotations],
        "documents": documents,
        "histogram": {str(iteration): histogram(each.pairs) for iteration, each in found.items()},
    }


def _found(run: AnnotatedRun, annotation: Annotation, drawn: list[Drawn]) -> _Found:
    """Cluster the documents again, as in an iteration."""
    shards, keys = {one.shard for one in drawn}, [one.key for one in drawn]
    groups = [group for group in annotation.documents.groups() if not shards.isdisjoint(group)]
    settings = run.settings.annotate
    work = ClusterAgain(annotation.documents, keys, settings, annotation.stage)
    where, precision = _placement(settings), run.settings.encoder.precision
    # Of all documents: what one process annotated one looks at, with as many threads, lest vectors' last bits differ.
    tokens = told(annotation.documents.tokens, settings.num_workers)
    rows: dict[int, dict[str, Any]] = {}
    bar = Bar(f"explorer: iteration {annotation.iteration}", len(keys), "documents")
    for row in in_actors(
        groups, annotation.encoder, precision, where, work, bar.title, engine=annotation.engine, tokens=tokens
    ):
        rows[row["key"]] = row
        bar.add(1)
    bar.close()
    return _Found(rows, np.sum([row["pairs"] for row in rows.values()], axis=0))


def _shown(run: AnnotatedRun) -> str:
    """In words, which documents are shown, where it isn't any of the corpus."""
    if not run.documents.draws:
        return ""
    part = run.documents.part
    return f" Each iteration annotated a share of the corpus; the documents shown are of the {part:.1%} that all did."


def _placement(settings: Annotate) -> Placement:
    """Workers as the run had them; on a cluster that has no such, as it is: a page may be made again elsewhere."""
    try:
        return placement(settings)
    except ValueError:
        return placement(Annotate(num_workers="auto", use_gpu="auto"))


def _rule(settings: Annotate) -> str:
    """In words, what makes a cluster."""
    if settings.clustering == "kmeans":
        return (
            f"Sentences of a document that are nearest to the same one of {settings.kmeans_clusters} centroids are a "
            "cluster (k-means); there are no edges."
        )
    nearest = "the sentence most similar to it" if settings.k == 1 else f"the {settings.k} sentences most similar to it"
    return (
        f"An edge joins a sentence and {nearest} in its document. The number is their similarity. "
        "What edges connect is a cluster. A dashed edge is new in this iteration."
    )
