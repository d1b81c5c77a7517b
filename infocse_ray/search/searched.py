"""A corpus searched from the command line, or by a page that is served, or for a file: the work of `infocse search`."""

from __future__ import annotations

from collections.abc import Iterator

from infocse_ray.runtime.progress import say
from infocse_ray.search.hit import Hit
from infocse_ray.search.index import Index
from infocse_ray.search.many import RESULTS, Document, Query, lines_of, read_documents, read_queries
from infocse_ray.search.metadata import as_shown
from infocse_ray.search.server import serve
from infocse_ray.search.sides import DEPTH, Placed, like_sides, search_sides
from infocse_ray.settings.search import Search
from infocse_ray.settings.text import plain
from infocse_ray.storage.folder import Storage

_TITLE, _TEXT = 100, 240


def search(settings: Search) -> None:
    """Print results, write them, or serve the page until Ctrl-C.

    Raises:
        ValueError: an index can't be opened, or the address can't be served on, or a file not read, or written.
    """
    if settings.output is not None:
        _search_for_a_file(settings, settings.output)
        return
    indexes = _open(settings)
    if settings.serve:
        serve(indexes, settings)
        return
    how = settings.top, settings.exact, settings.where
    if settings.like is not None:
        found = like_sides(indexes, settings.like, *how)
        say(f"similar to {plain(indexes[-1].title_of(settings.like), _TITLE)}  ({plain(settings.like, _TITLE)})")
    else:
        assert settings.query is not None
        found = search_sides(indexes, settings.query, *how)
    if not any(found):
        say(_nothing(settings))
        return
    if line := _columns(indexes[0]):
        say(line)
    for index, results in zip(indexes, found, strict=True):
        if len(indexes) > 1:
            say(f"\n{'before' if index is indexes[0] else 'after'}: {plain(index.name, _TITLE)}")
        for line in _lines(results, len(indexes) > 1):
            say(line)


def _search_for_a_file(settings: Search, where: str) -> None:
    # Both are tried before the index is opened, which may copy vectors.
    queries, documents = _asked(settings)
    output = Storage.for_runs(where, "output")
    [index] = _open(settings)
    how = settings.top, settings.exact, settings.where
    if settings.like is not None:
        results = [index.like(settings.like, *how)]
    elif documents:
        results = index.like_documents([document.text for document in documents], *how)
    else:
        results = index.search([query.text or "" for query in queries], *how)
    if not any(results):
        say(_nothing(settings))
    (output / RESULTS).write_bytes(b"".join(lines_of(queries, results)))
    unit = "documents" if documents else "queries"
    say(f"{sum(map(len, results)):,} results of {len(queries):,} {unit}: {output / RESULTS}")


def _asked(settings: Search) -> tuple[list[Query], list[Document]]:
    """What is asked, each with what names it in the results, and the documents that ask, where they do."""
    if settings.documents is not None:
        documents = read_documents(settings.documents)
        return [Query(document.doc_id, None) for document in documents], documents
    if settings.queries is not None:
        return read_queries(settings.queries), []
    return [Query("1", settings.query) if settings.like is None else Query(settings.like, None)], []


def _nothing(settings: Search) -> str:
    return f"nothing was found where {settings.where}" if settings.where else "nothing was found"


def _open(settings: Search) -> list[Index]:
    """The index, behind the one before where there is one, of which what is asked for can be asked.

    Raises:
        ValueError: an index can't be opened, or has nothing that the condition is about.
    """
    indexes = _opened(settings)
    if settings.where is not None:
        for index in indexes:
            index.check(settings.where)
    return indexes


def _opened(settings: Search) -> list[Index]:
    words, best = settings.words, settings.best_sentence
    # Then it is encoders that are looked at, or vectors.
    if any(each is not None for each in (settings.compare_index, settings.like, settings.documents)):
        words, best = (0.0 if each == "auto" else each for each in (words, best))
    if settings.compare_index is None:
        return [Index(settings.index, settings.over, settings.model, words=words, best_sentence=best)]
    after = Index(settings.index, settings.over, settings.model, words=words, best_sentence=best)
    before = Index(
        settings.compare_index,
        settings.over,
        settings.compare,
        setting="compare_index",
        words=words,
        best_sentence=best,
    )
    if before.corpus != after.corpus:
        say("note: the two indexes are not of the same files and corpus settings; results are matched by their ids")
    return [before, after]


def _columns(index: Index) -> str:
    """What the numbers before a result are, where they aren't its similarity alone."""
    of_sentence = [f"of the best sentence, which counts {index.best_sentence:g}"] if index.best_sentence else []
    of_words = [f"BM25 of words, which counts {index.words:g}"] if index.words else []
    return ", ".join(["rank, similarity of vectors", *of_sentence, *of_words]) if of_sentence or of_words else ""


def _lines(results: list[Placed], compared: bool) -> Iterator[str]:
    for hit, other in results:
        number = "" if hit.number is None else f", sentence {hit.number + 1}"
        place = f"  [{_moved(hit.rank, other)}]" if compared else ""
        named = f"{plain(hit.title, _TITLE)}  ({plain(hit.doc_id, _TITLE)}{number})"
        best = "" if hit.best_sentence is None else f"  {hit.best_sentence:.3f}"
        words = "" if hit.words is None else f"  {hit.words:6.2f}"
        yield f"{hit.rank:3}  {hit.similarity:.3f}{best}{words}  {named}{place}"
        yield f"            {plain(_shown(hit), _TEXT)}"
        if its := as_shown(hit.metadata):
            yield f"            {plain(' · '.join(f'{name}: {value}' for name, value in its.items()), _TEXT)}"


def _shown(hit: Hit) -> str:
    """The sentence that fits best; an ellipsis in front says that it isn't where the text begins."""
    if hit.passage is None:
        return hit.text
    return hit.passage if hit.text.startswith(hit.passage) else f"… {hit.passage}"


def _moved(rank: int, other: int | None) -> str:
    if other is None:
        return f"beyond {DEPTH} in the other"
    return "the same rank in the other" if other == rank else f"{other} in the other"
