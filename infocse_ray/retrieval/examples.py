"""Questions whose rank changed most between two encoders, as text, for people.

Texts come from the token store, as the tokenizer decodes them: what an uncased tokenizer threw away is gone. They are
whoever's, so nothing that a terminal would obey is left in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer, decoders

from infocse_ray.corpus.schema import SPLITS, stable_hash
from infocse_ray.corpus.store import TokenStore, counterparts_of, documents_of, row_groups
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.corpus.tokens import Tokens, flat
from infocse_ray.retrieval.questions import TOP_KEYS, paired_ranks
from infocse_ray.retrieval.validation import On
from infocse_ray.settings.text import plain
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet

_SHOWN_DOCUMENT, _SHOWN_TEXT = 160, 110
"""Characters of a document, and of what is found, in the log."""

_KEPT_DOCUMENT, _KEPT_TEXT = 600, 300
"""Characters of them that are kept for a page."""

_SPACED = re.compile(r"(?<=\w) ?([-_.]) (?=\w)|(?<=\w) (['’]) (?=(?:s|t|d|m|re|ll|ve)\b)|(?<=[(\[]) | (?=[)\]])")
"""Spaces that word pieces, put together, have too many of."""


class Texts(NamedTuple):
    """Where the texts of an evaluation are."""

    store: TokenStore
    tokenizer: CorpusTokenizer
    split: str
    """Whose documents asked."""
    on: On
    """What kind of text they had to find."""


class Example(NamedTuple):
    """A question and what two encoders made of it."""

    doc_id: str
    document: str
    """Text of the document that asks."""
    true: str
    """Text that it must find."""
    ranks: tuple[int, int]
    """Ranks of that text, before and after."""
    tops: tuple[list[str], list[str]]
    """Texts ranked first, second and third, before and after; fewer where an earlier version kept fewer."""

    def content(self) -> dict[str, Any]:
        """For programs: texts in one line, of a document its beginning, without what a terminal would obey."""
        return {
            "doc_id": plain(self.doc_id, _KEPT_TEXT),
            "document": plain(self.document, _KEPT_DOCUMENT),
            "true": plain(self.true, _KEPT_TEXT),
            "ranks": list(self.ranks),
            "tops": [[{"text": plain(t, _KEPT_TEXT), "true": t == self.true} for t in top] for top in self.tops],
        }

    def lines(self, names: tuple[str, str] = ("before", "now")) -> list[str]:
        """For people, without what a terminal would obey."""
        shown = [f"{plain(self.doc_id, _SHOWN_TEXT)}: {plain(self.document, _SHOWN_DOCUMENT)}"]
        shown.append(f"  must find: {plain(self.true, _SHOWN_TEXT)}")
        for name, rank, top in zip(names, self.ranks, self.tops, strict=True):
            first = top[0] if top else "?"
            shown.append(f"  {name}, rank {rank:,}; found first: {plain(first, _SHOWN_TEXT)}")
        return shown


def examples(
    before: Storage, after: Storage, texts: Texts, texts_after: Texts | None = None, count: int = 3
) -> list[Example]:
    """The questions whose ranks differ by the largest factor, for better or worse, each of another document.

    Args:
        before: the folder of an evaluate stage.
        after: of another, that asked the same.
        texts: where those of `before` are.
        texts_after: where those of `after` are; with a tokenizer of its own an encoder has a store of its own, and
            what both were asked is looked at. Default: the same.
        count: how many at most.

    Raises:
        ValueError: a stage has no ranks, or they asked other questions.
    """
    chosen = _most_changed(paired_ranks(before, after, texts_after is not None), count)
    theirs = tuple(f"{name} of theirs" for name in TOP_KEYS)
    known = [
        _look_up(where, [row["doc_id"] for row in chosen], _found_first(chosen, tops) | _answers(where, chosen))
        for where, tops in ((texts, TOP_KEYS), (texts_after or texts, theirs))
    ]
    (documents, answers), (_, answers_after) = known
    made = []
    for row in chosen:
        sentences = documents.get(row["doc_id"], [])
        asking, true = sentences, answers.get(row["key"], "?")
        if texts.on == "sentence":
            asking = [text for number, text in enumerate(sentences) if number != row["key"]]
            true = dict(enumerate(sentences)).get(row["key"], "?")
        elif texts.on == "halves":
            asking = sentences[::2]
        tops = [answers.get(row[top], "?") for top in TOP_KEYS if row[top]]
        tops_after = [answers_after.get(row[top], "?") for top in theirs if row[top]]
        ranks = row["rank"], row["rank of theirs"]
        made.append(Example(row["doc_id"], " ".join(asking), true, ranks, (tops, tops_after)))
    return made


def _found_first(rows: list[dict], tops: Iterable[str]) -> set[int]:
    return {row[top] for row in rows for top in tops if row[top]}


class Moves(NamedTuple):
    """How many questions changed their rank between two encoders."""

    up: int
    down: int
    same: int


def moves(before: Storage, after: Storage) -> Moves:
    """Count questions that rank better, worse and the same; the arguments are those of `examples`.

    Raises:
        ValueError: a stage has no ranks, or they asked other questions.
    """
    table = paired_ranks(before, after)
    gain = table["rank"].to_numpy() - table["rank of theirs"].to_numpy()
    return Moves(int((gain > 0).sum()), int((gain < 0).sum()), int((gain == 0).sum()))


def _most_changed(table: pa.Table, count: int) -> list[dict]:
    """Rows of `paired_ranks`."""
    change = np.abs(np.log(table["rank"].to_numpy() / table["rank of theirs"].to_numpy()))
    order = np.argsort(-change, kind="stable")
    of_documents: dict[str, dict] = {}
    for place in order[change[order] > 0].tolist():
        if len(of_documents) == count:
            break
        row = {name: table[name][place].as_py() for name in table.column_names}
        of_documents.setdefault(row["doc_id"], row)
    return list(of_documents.values())


def _answers(where: Texts, rows: list[dict]) -> set[int]:
    """Keys of what must be found, where questions are named by these."""
    return set() if where.on == "sentence" else {row["key"] for row in rows}


def _look_up(where: Texts, doc_ids: list[str], keys: set[int]) -> tuple[dict[str, list[str]], dict[int, str]]:
    """Sentences of documents by id, and texts of answers by key, as far as the store has them."""
    ready = where.tokenizer.ready()
    tokenizer = ready.tokenizer
    documents: dict[str, list[str]] = {}
    answers: dict[int, str] = {}
    wanted_ids, wanted = np.array([stable_hash(doc_id) for doc_id in doc_ids]), np.array(sorted(keys), np.int64)
    for table in _tables(where, wanted):
        some = documents_of(table.filter(pa.array(np.isin(table["key"].to_numpy(), wanted_ids))))
        for row, doc_id in enumerate(some.doc_ids.to_pylist()):
            inside = np.arange(some.offsets[row], some.offsets[row + 1])
            documents[doc_id] = decoded(tokenizer, some.sentences.take(inside))
        for key, texts in _found(where.on, table, wanted):
            text = " ".join(decoded(tokenizer, texts))
            answers.setdefault(key, ready.without_prompt(text) if where.on == "counterpart" else text)
        if len(documents) == len(doc_ids) and len(answers) == len(keys):
            break
    return documents, answers


def _tables(where: Texts, keys: np.ndarray) -> Iterator[pa.Table]:
    """The row groups that may have any of the answers, and so what asks: that has one of them itself."""
    splits = SPLITS if where.on == "counterpart" else (where.split,)
    for shard in range(where.store.shards):
        with open_parquet(where.store.shard(shard)) as file:
            for group in row_groups(file, splits):
                # Of all shards little more than the keys is read.
                there = file.read_row_group(group, columns=["key", "counterpart_keys"])
                answers = {
                    "counterpart": flat(there["counterpart_keys"])[0].to_numpy(),
                    "sentence": keys,
                }.get(where.on, there["key"].to_numpy())
                if np.isin(answers, keys).any():
                    yield file.read_row_group(group)


def _found(on: On, table: pa.Table, wanted: np.ndarray) -> Iterator[tuple[int, Tokens]]:
    """Candidates of the given keys that a table has."""
    if on == "counterpart":
        labels = counterparts_of(table)
        for row in np.flatnonzero(np.isin(labels.keys, wanted)):
            yield int(labels.keys[row]), labels.tokens.take(np.array([row]))
        return
    documents = documents_of(table)
    if on != "sentence":
        begin, step = (1, 2) if on == "halves" else (0, 1)
        for row in np.flatnonzero(np.isin(documents.keys, wanted)):
            inside = np.arange(documents.offsets[row] + begin, documents.offsets[row + 1], step)
            yield int(documents.keys[row]), documents.sentences.take(inside)
        return
    hashes = documents.sentences.hashes()
    for row in np.flatnonzero(np.isin(hashes, wanted)):
        yield int(hashes[row]), documents.sentences.take(np.array([row]))


def decoded(tokenizer: Tokenizer, tokens: Tokens) -> list[str]:
    """The text of each row, with the token for what is unknown where it stands: without it nothing may be left."""
    ids: Iterable[np.ndarray] = np.split(tokens.values, tokens.offsets[1:-1])
    texts = [tokenizer.decode(row.tolist(), skip_special_tokens=False) for row in ids] if len(tokens) else []
    pieces = isinstance(tokenizer.decoder, decoders.WordPiece)
    return [_SPACED.sub(lambda match: match[1] or match[2] or "", text) for text in texts] if pieces else texts
