"""Data sets in BEIR's layout: corpus.jsonl, queries.jsonl and qrels/<split>.tsv in a folder.

corpus.jsonl has `_id`, `text` and perhaps `title` a line, queries.jsonl `_id` and `text`; qrels have a query's id, a
document's id and how relevant that is, separated by tabs, below a line that names them. Thakur et al., BEIR, 2021.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from infocse_ray.corpus.read import READ_ERRORS, Piece, open_lines, parse_json_line, parse_tab_line
from infocse_ray.corpus.schema import stable_hash
from infocse_ray.corpus.streams import compression_of
from infocse_ray.runtime.progress import Bar
from infocse_ray.settings import fingerprint
from infocse_ray.storage.errors import explanation
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
_ENDINGS = ("", ".gz", ".xz", ".zst")
_RELEVANCE = 2**15
"""Beyond which trec_eval, which keeps a count for each relevance there is, runs out of memory, or worse."""
_BLOCK_BYTES, _MOST_BLOCKS = 2**20, 64


class Passage(NamedTuple):
    """A document of the corpus."""

    doc_id: str
    title: str
    text: str

    @property
    def whole(self) -> str:
        """Title and text as one, as BEIR encodes them; may be empty."""
        return f"{self.title} {self.text}".strip()


class BeirSet(NamedTuple):
    """A data set's questions, and where its documents are."""

    name: str
    corpus: str
    """URI of corpus.jsonl."""
    size: int
    """Its bytes."""
    documents: int
    query_ids: list[str]
    queries: list[str]
    """The texts, in the order of `query_ids`."""
    relevant: dict[str, dict[str, int]]
    """Query to documents to relevance, above 0 where the document is relevant; every query has one that is."""
    fingerprint: str
    """Of the content, wherever it lies."""
    notes: list[str]
    """What was left out, for people."""

    def blocks(self) -> list[tuple[int, int]]:
        """Ranges of bytes of the corpus that are read by themselves: some MiB, at most 64 of them."""
        if compression_of(self.corpus):
            return [(0, self.size)]
        step = max(_BLOCK_BYTES, -(-self.size // _MOST_BLOCKS))
        return [(begin, min(begin + step, self.size)) for begin in range(0, self.size, step)]

    def passages(self, block: tuple[int, int] | None = None) -> Iterator[Passage]:
        """The documents that begin in a block; of the whole corpus where none is named."""
        for passage, _ in _passages(self.corpus, *(block or (0, self.size))):
            if passage is not None:
                yield passage


def beir_folders(uri: str) -> list[Storage]:
    """The folder itself if it has corpus.jsonl, else those in it that have one, by name.

    Raises:
        ValueError: there is none.
    """
    folder = Storage.open(uri)
    with_one = {name.rpartition("/")[0] for name in folder.files() if _plain(name).rpartition("/")[2] == CORPUS}
    near = sorted(name for name in with_one if "/" not in name)
    if not near:
        raise ValueError(
            redacted(f"suite_path = {uri!r}: no {CORPUS} in it, nor in a folder in it; BEIR's layout is ")
            + f"{CORPUS}, {QUERIES} and {QRELS}/<split>.tsv"
        )
    return [folder] if "" in near else [folder / name for name in near]


def read_beir(folder: Storage, split: str) -> BeirSet:
    """Read the questions of a data set, and look through its corpus once.

    Args:
        folder: has the three.
        split: name of the file in qrels/, without its ending.

    Raises:
        ValueError: a file is missing or none of it can be used, or there is no question.
    """
    where = f"suite_path = {str(folder)!r}"
    there = folder.files()
    qrels = sorted(_plain(name) for name in there if name.startswith(f"{QRELS}/") and _plain(name).endswith(".tsv"))
    splits = [name.removeprefix(f"{QRELS}/").removesuffix(".tsv") for name in qrels]
    hint = f"; set qrels to {' or '.join(splits)}" if splits else ""
    judged = _judgements(_file(folder, there, f"{QRELS}/{split}.tsv", where, hint), where)
    texts, left_out = _queries(_file(folder, there, QUERIES, where), where)
    corpus = _file(folder, there, CORPUS, where)
    asked = {query: documents for query, documents in judged.items() if query in texts}
    wanted = {document for documents in asked.values() for document in documents}
    size = there[corpus.name].size
    found, counts, content = _look_through(corpus.uri, size, wanted, where)
    notes = _counted(
        ("lines of the corpus without an id or a text", counts["bad"]),
        ("lines of the corpus with an id that another has; the best of them counts", counts["again"]),
        ("lines of queries.jsonl without an id or a text", left_out["bad"]),
        ("lines of queries.jsonl with an id that another has; the first counts", left_out["again"]),
        ("judgements of unknown queries", sum(len(judged[query]) for query in judged.keys() - texts.keys())),
        ("judgements of unknown documents", sum(len(documents.keys() - found) for documents in asked.values())),
    )
    known = {query: {d: r for d, r in documents.items() if d in found} for query, documents in asked.items()}
    relevant = {query: documents for query, documents in known.items() if max(documents.values(), default=0) > 0}
    notes += _counted(("queries without a relevant document", len(asked) - len(relevant)))
    if not relevant:
        raise ValueError(
            f"{where}: no query of {QRELS}/{split}.tsv has a relevant document"
            + (f" ({'; '.join(notes)})" if notes else "")
        )
    query_ids = sorted(relevant)
    queries = [texts[query] for query in query_ids]
    identity = fingerprint("beir", content, query_ids, queries, [sorted(relevant[q].items()) for q in query_ids])
    return BeirSet(folder.name, corpus.uri, size, counts["documents"], query_ids, queries, relevant, identity, notes)


def _counted(*counts: tuple[str, int]) -> list[str]:
    return [f"{count:,} {what}" for what, count in counts if count]


def _plain(name: str) -> str:
    """A file's path without the ending that says how it is compressed."""
    return name.removesuffix(next((ending for ending in _ENDINGS[1:] if name.endswith(ending)), ""))


def _file(folder: Storage, there: Any, name: str, where: str, hint: str = "") -> Storage:
    """The file of this name, compressed or not.

    Raises:
        ValueError: it is missing.
    """
    for ending in _ENDINGS:
        if name + ending in there:
            return folder / (name + ending)
    raise ValueError(f"{where}: no {name} in it{hint}")


def _lines(uri: str, where: str, begin: int = 0, end: int = 2**62) -> Iterator[tuple[int, bytes]]:
    """Number, from 1, and content of the lines that begin in a range of bytes.

    Raises:
        ValueError: the file can't be read.
    """
    try:
        for line in open_lines(Piece(uri, "", 0, begin, end)):
            yield line.number, line.data
    except READ_ERRORS as error:
        shown = redacted(f"{where}: {uri.rpartition('/')[2]}")
        raise explanation(error, shown) or ValueError(redacted(f"{shown}: can't be read: {error}")) from error


def _judgements(file: Storage, where: str) -> dict[str, dict[str, int]]:
    """Query to document to relevance; of three columns, or four as TREC has them, whose second is no document's."""
    judged: dict[str, dict[str, int]] = {}
    for number, line in _lines(file.uri, where):
        cells, wrong = parse_tab_line(line)
        try:
            if cells is None:
                raise ValueError(wrong)
            query, *iteration, document, said = [cell.strip() for cell in cells]
            relevance = int(float(said))
            if relevance != float(said) or abs(relevance) >= _RELEVANCE or len(iteration) > 1:
                raise ValueError("no whole number, or none that trec_eval counts with")
        except (ValueError, IndexError, OverflowError):
            if number == 1:
                continue  # the line that names the columns
            raise ValueError(
                f"{where}: {file.name}, line {number}: give a query's id, a document's id and a whole number, "
                "separated by tabs"
            ) from None
        judged.setdefault(query, {})[document] = relevance
    return judged


def _queries(file: Storage, where: str) -> tuple[dict[str, str], Counter[str]]:
    """The texts by id; how many lines are left out: `bad` have none, of `again` the id was there before."""
    texts: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for _, line in _lines(file.uri, where):
        row, _ = parse_json_line(line)
        name, text = (row or {}).get("_id"), (row or {}).get("text")
        if not isinstance(text, str) or not text.strip() or not _usable(name, text):
            left_out["bad"] += 1
        elif (query := str(name).strip()) in texts:
            left_out["again"] += 1
        else:
            texts[query] = " ".join(text.split())
    return texts, left_out


def _passages(uri: str, begin: int, end: int) -> Iterator[tuple[Passage | None, bytes]]:
    """The documents that begin in a range of bytes, None for a line that is none, and the lines themselves."""
    for _, line in _lines(uri, "suite_path", begin, end):
        row, _ = parse_json_line(line)
        name, title, text = ((row or {}).get(key) for key in ("_id", "title", "text"))
        title, text = title or "", text or ""
        if (
            not isinstance(title, str)
            or not isinstance(text, str)
            or not (title + text).strip()
            or not _usable(name, title + text)
        ):
            yield None, line
        else:
            yield Passage(str(name).strip(), title.strip(), text.strip()), line


def _usable(name: Any, text: str) -> bool:
    """Whether there is an id, without what would end it in trec_eval, and all is text that UTF-8 has."""
    if name is None or "\0" in str(name) or not str(name).strip():
        return False
    try:
        f"{name}{text}".encode()
    except UnicodeEncodeError:  # a lone surrogate gets through JSON
        return False
    return True


def _look_through(uri: str, size: int, wanted: set[str], where: str) -> tuple[set[str], Counter[str], str]:
    """Which of the wanted documents there are, how many of all, and what names the content.

    Of `counts`, `bad` lines are no document, and `again` are documents whose id others have: each but one.
    """
    found: set[str] = set()
    counts: Counter[str] = Counter()
    ids = array("q")
    content = hashlib.blake2b(digest_size=16)
    bar = Bar(f"reading {where.removeprefix('suite_path = ')}", None if compression_of(uri) else size, "bytes")
    for passage, line in _passages(uri, 0, size):
        bar.add(len(line))
        content.update(line)
        counts["bad" if passage is None else "documents"] += 1
        if passage is not None:
            ids.append(stable_hash(passage.doc_id))
            if passage.doc_id in wanted:
                found.add(passage.doc_id)
    bar.close()
    counts["again"] = len(ids) - len(np.unique(np.frombuffer(ids, np.int64))) if ids else 0
    if not counts["documents"]:
        raise ValueError(f"{where}: {CORPUS} has no document; a line is a JSON object with _id and text")
    return found, counts, content.hexdigest()
