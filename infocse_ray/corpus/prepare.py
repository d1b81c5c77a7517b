"""The corpus stage: read, check, split and tokenise every row once, into the token store.

1. Tasks read pieces of files and tokenise their rows; bad rows go on with a reason instead of tokens. Labels in files
   of their own are first made a table in the object store, which these tasks look up.
2. A shuffle through storage (see `shuffle`) brings together the rows of a shard (a range of the hash of the id),
   duplicates among them.
3. Tasks drop duplicates of a shard, order it by hash, and write it and its rejected rows, among them the labels of
   documents that are not there.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import ray
from ray import ObjectRef

from infocse_ray.corpus.documents import batches_of, label_rows, tokenise_rows, tokenised_schema
from infocse_ray.corpus.labels import LabelTable
from infocse_ray.corpus.lengths import length_histogram
from infocse_ray.corpus.read import NOT_UTF8, Piece, count_lines
from infocse_ray.corpus.registry import KINDS
from infocse_ray.corpus.schema import (
    ROW_GROUP_DOCUMENTS,
    SPLITS,
    rejected_schema,
    store_schema,
    token_type,
    vocabulary_of,
)
from infocse_ray.corpus.shuffle import Shuffle
from infocse_ray.corpus.source import Source, refuse_changed
from infocse_ray.corpus.store import TokenStore, content_of, documents_of, questions_of, shard_name
from infocse_ray.corpus.streams import advice
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.runtime.interrupts import run_interruptible
from infocse_ray.runtime.placement import Placement, await_places
from infocse_ray.runtime.progress import Board
from infocse_ray.settings import Corpus, fingerprint
from infocse_ray.stages.metrics import count_prepared
from infocse_ray.stages.shared import check_shared
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet
from infocse_ray.storage.redact import redacted

_FORMAT = 4
_LENGTHS = ("sentences_a_document", "tokens_a_sentence")
_LABEL_LINES = "label lines"
_SORTING = "sorting"
"""Folder of the shuffle."""
_REJECTED = "rejected"
"""Folder of the rows that were set aside."""
_LINES = "lines"
"""Folder of empty files that say by their names how many lines the pieces of cut files have; gone at the end."""
_SHARD_TEXT_BYTES, _MOST_SHARD_TEXT_BYTES = 64 * 2**20, 2**30
_MANY_SHARDS = 8192
_FEWEST_AUTO_LANES, _MOST_AUTO_LANES, _LANE_TEXT_BYTES = 4, 64, 2**20
_BATCH_CHARACTERS = 4 * 2**20


def prepare(root: Storage, corpus: Corpus, source: Source, tokenizer: CorpusTokenizer) -> TokenStore:
    """Tokenise the corpus into `<root>/corpora/<fingerprint>`, or find that this was done.

    Args:
        root: the storage that runs share.
        corpus: the corpus settings.
        source: its files, as `find_source` returns them.
        tokenizer: of the encoder that reads it.

    Raises:
        UnreadableFile: a whole file can't be read.
        SourceChanged: a file changed, or went, while the corpus was read.
        ValueError: no document is left.
    """
    identity = fingerprint("prepare", _FORMAT, source.fingerprint, source.columns, reading(corpus), *tokenizer.named)
    stage = run_stage(
        root,
        root / "corpora" / identity,
        "prepare",
        identity,
        functools.partial(_prepare, corpus=corpus, source=source, tokenizer=tokenizer),
        piecewise=True,  # all are written again, with the same bytes: other runs may be reading them
    )
    store = TokenStore.of(stage)
    if not store.documents(SPLITS):
        raise ValueError(redacted(f"corpus.source = {corpus.source!r}: no document is left") + _why(corpus, store))
    return store


def reading(corpus: Corpus) -> dict[str, Any]:
    """What of the settings decides what is read of the files; metadata is no part of a document."""
    beside = {"source", "labels", "unlabelled", "encoding", "metadata"}
    return corpus.model_dump(mode="json", exclude=beside)


def _why(corpus: Corpus, store: TokenStore) -> str:
    """Why there is no document, and what to do about what set most rows aside."""
    reasons = store.summary["rejected"]
    if not reasons:
        return ": there are no rows; give files that have some"
    ways = {
        "text is not a string": "corpus.text is for texts; name another column, or one of lists of sentences with "
        "corpus.sentences",
        "sentences are not a list of strings": "corpus.sentences is for lists; name a column of texts with corpus.text",
        f"fewer than {corpus.min_sentences} sentences": "a document has to have several; texts are split by the rules "
        f"of corpus.language = {corpus.language!r}",
        NOT_UTF8: advice(corpus.encoding),
    }
    way = ways.get(NOT_UTF8 if NOT_UTF8 in reasons else max(reasons, key=lambda reason: reasons[reason]))
    return f"; rows set aside: {json.dumps(reasons)}" + (f"; {way}" if way else "")


def lanes_for(source: Source, lanes: int | Literal["auto"]) -> int:
    """Lanes of the store; `auto`: one for each MiB of text, at least 4, at most 64."""
    if lanes != "auto":
        return lanes
    return min(_MOST_AUTO_LANES, max(_FEWEST_AUTO_LANES, source.text_bytes // _LANE_TEXT_BYTES))


def shards_for(source: Source, lanes: int) -> int:
    """Shards of the store: every lane has as many, of about 64 MiB of text.

    Where that would make more than 8,192, shards are larger, up to 1 GiB: the driver knows each of them by a row, and a
    worker has a few of them in memory.
    """
    text = min(_MOST_SHARD_TEXT_BYTES, max(_SHARD_TEXT_BYTES, source.text_bytes // _MANY_SHARDS))
    return lanes * max(1, -(-source.text_bytes // (lanes * text)))


def _prepare(stage: Stage, corpus: Corpus, source: Source, tokenizer: CorpusTokenizer) -> dict[str, Any]:
    lanes = lanes_for(source, corpus.lanes)
    shards = shards_for(source, lanes)
    ready = tokenizer.ready()
    token = token_type(vocabulary_of(ready.tokenizer))
    await_places(Placement(1, False, 1), "preparing")
    totals: dict[str, Any] = {
        "shards": shards,
        "lanes": lanes,
        "token_type": str(token),
        "sentences": 0,
        "tokens": 0,
        "unknown": 0,
        "longest": 0,
    }
    documents, labelled, of_labels, rejected = Counter(), Counter(), Counter(), Counter()
    lengths = {name: Counter() for name in _LENGTHS}
    content = 0
    questions: int | None = 0
    with Board("preparing", unit="rows") as board:
        labels = label_table(corpus, source)
        pieces = source.pieces + [Piece("", _LABEL_LINES, -1, 0, 0)] * len(labels)
        shuffle = Shuffle(stage.folder / _SORTING, pieces, shards, tokenised_schema(token))
        lines = shuffle.folder / _LINES
        read = functools.partial(
            tokenise_pieces,
            columns=source.columns,
            corpus=corpus,
            labels=labels,
            tokenizer=tokenizer,
            shards=shards,
            board=board.handle,
            lines=lines,
        )
        for row in shuffle.run(read, ShardWriter(stage.folder, lines, ready.unknown), board.tell):
            count_prepared(stage.folder, row)
            totals["sentences"] += row["sentences"]
            totals["tokens"] += row["tokens"]
            totals["unknown"] += row.get("unknown", 0)  # what an earlier version began doesn't say
            totals["longest"] = max(totals["longest"], row["longest"])
            documents.update(row["documents"])
            labelled.update(row["labelled"])
            of_labels.update(row.get("documents_labelled", row["labelled"]))  # as far as an earlier version said
            rejected.update(row["rejected"])
            for name, counts in row["lengths"].items():
                lengths[name].update(counts)
            content = (content + int(row["content"], 16)) % 2**128
            if questions is not None:  # what an earlier version began has none
                questions = (questions + int(row["questions"], 16)) % 2**128 if "questions" in row else None
    check_shared(stage.folder, (f"documents/{shard_name(shard)}" for shard in range(shards)))
    # Without their notes shards are written again, and rejected rows where there are any.
    refuse_changed(corpus, source, stage.folder / _SORTING, stage.folder / _REJECTED)
    return totals | {
        "content": fingerprint("token store", f"{content:032x}", shards, lanes, str(token)),
        **({} if questions is None else {"questions": f"{questions:032x}"}),
        "documents": {split: documents[split] for split in SPLITS},
        "labelled": {split: labelled[split] for split in SPLITS},
        "documents_labelled": {split: of_labels[split] for split in SPLITS},
        "rejected": dict(sorted(rejected.items())),
        "lengths": {
            name: dict(sorted(counts.items(), key=lambda one: int(one[0]))) for name, counts in lengths.items()
        },
    }


def label_table(corpus: Corpus, source: Source) -> list[ObjectRef]:
    """The table of labels that come in files of their own, in the object store; none where there are no such files.

    What kept the files from being read is raised by the tasks that get the table.
    """
    if (read := KINDS[corpus.kind].labels) is None or not source.companions:
        return []
    table = ray.remote(scheduling_strategy="DEFAULT")(read).remote(source.companions, corpus)
    # Else the reading tasks would start all at once, to wait.
    run_interruptible(lambda: ray.wait([table], fetch_local=False))
    return [table]


def tokenise_pieces(
    pieces: list[Piece],
    columns: dict[str, str],
    corpus: Corpus,
    labels: list[ObjectRef],
    tokenizer: CorpusTokenizer,
    shards: int,
    board: Any,
    lines: Storage,
) -> Iterator[pa.Table]:
    """What a reading task does: the rows of its pieces of files, as tables of `tokenised_schema`.

    Args:
        pieces: of files.
        columns: role to column.
        corpus: the settings.
        labels: a reference to the table of labels, or none.
        tokenizer: of the encoder that reads the corpus.
        shards: of the store.
        board: where progress is shown, or None.
        lines: where it is noted how many lines a piece of a cut file has.

    Raises:
        UnreadableFile: a whole file can't be read.
    """
    ready = tokenizer.ready()
    token = token_type(vocabulary_of(ready.tokenizer))
    table: LabelTable | None = ray.get(labels[0]) if labels else None
    for piece in pieces:
        if piece.kind == _LABEL_LINES:
            assert table is not None
            yield from label_rows(table, token, shards)
            continue
        file = redacted(piece.uri)
        rows = KINDS[corpus.kind].rows(piece, columns, corpus, table)
        for batch in batches_of(rows, _BATCH_CHARACTERS):
            yield tokenise_rows(batch, file, piece.order, corpus, ready, token, shards)
            if board is not None:
                board.add.remote(len(batch))
        if piece.cut:
            (lines / f"{piece.order}-{piece.start}-{count_lines(piece)}").write_bytes(b"")


class ShardWriter(NamedTuple):
    """What a merging task does with a shard: write it and its rejected rows."""

    folder: Storage
    """Of the store."""
    lines: Storage
    """As reading tasks left it."""
    unknown: int | None = None
    """The token of what the tokenizer doesn't know."""

    def __call__(self, shard: int, rows: pa.Table) -> dict[str, Any]:
        """Write the rows, of `tokenised_schema` in any order, and return what was written, counted."""
        by_hash = [("key", "ascending"), ("doc_id", "ascending")]
        rows = rows.sort_by([*by_hash, ("order", "ascending"), ("row", "ascending")])
        rows = _mark_duplicates(_without_labels_of_documents(rows))
        accepted = rows["reason"].is_null()
        bad = rows.filter(rows["reason"].is_valid())
        # Within a split the order is that of the hash, as sorting is stable.
        rank = pa.array([SPLITS.index(split) if split else -1 for split in rows["split"].to_pylist()], pa.int64())
        good = rows.append_column("rank", rank).filter(accepted).sort_by([("rank", "ascending"), *by_hash])
        split_of = good["split"].to_pylist()
        counts = {split: split_of.count(split) for split in SPLITS}
        labelled: Counter[str] = Counter()
        documents_labelled: Counter[str] = Counter()
        for split, keys in zip(split_of, good["counterpart_keys"].to_pylist(), strict=True):
            labelled[split] += len(keys)
            documents_labelled[split] += bool(keys)
        schema = store_schema(rows.schema.field("counterparts").type.value_type.value_type)
        table = good.select(schema.names).cast(schema)
        groups = [
            min(ROW_GROUP_DOCUMENTS, count - start)
            for count in counts.values()
            for start in range(0, count, ROW_GROUP_DOCUMENTS)
        ]
        write_parquet(self._documents(shard), table, groups)
        if len(bad):
            bad = bad.set_column(bad.schema.get_field_index("row"), "row", _lines_in_files(bad, self.lines))
            write_parquet(
                self._rejected(shard), bad.select(rejected_schema().names).cast(rejected_schema()), [len(bad)]
            )
        written = documents_of(table)
        sentences, sizes = written.sentences, np.diff(written.offsets)
        lengths = (length_histogram(sizes), length_histogram(sentences.lengths))
        return {
            "sentences": len(sentences),
            "tokens": len(sentences.values),
            "unknown": 0 if self.unknown is None else int((sentences.values == self.unknown).sum()),
            "longest": int(sizes.max(initial=0)),
            "documents": counts,
            "labelled": dict(labelled),
            "documents_labelled": dict(documents_labelled),
            "rejected": dict(Counter(bad["reason"].to_pylist())),
            "lengths": dict(zip(_LENGTHS, lengths, strict=True)),
            "content": f"{content_of(shard, split_of, written):032x}",
            "questions": f"{questions_of(split_of, written):032x}",
        }

    def there(self, shard: int, counts: dict[str, Any]) -> bool:
        """Whether the shard and its rejected rows are there."""
        return self._documents(shard).exists() and (not counts["rejected"] or self._rejected(shard).exists())

    def _documents(self, shard: int) -> Storage:
        return self.folder / "documents" / shard_name(shard)

    def _rejected(self, shard: int) -> Storage:
        return self.folder / _REJECTED / shard_name(shard)


def _lines_in_files(rows: pa.Table, lines: Storage) -> pa.Array:
    """What people call the rows: in files that were cut, the lines of the pieces before are added."""
    starts, before = _lines_before(lines.root, lines.relative)
    places = zip(*(rows[name].to_pylist() for name in ("order", "row", "line")), strict=True)
    numbers = [
        line + before[order][bisect.bisect_right(starts[order], byte) - 1] if order in starts else line
        for order, byte, line in places
    ]
    return pa.array(numbers, pa.int64())


@functools.lru_cache(maxsize=1)
def _lines_before(root: str, relative: str) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Of files that were cut, by their place in the corpus: where pieces begin, and how many lines are before each."""
    counts: dict[int, list[tuple[int, int]]] = {}
    for name in Storage(root, relative).files():
        order, start, count = map(int, name.split("-"))
        counts.setdefault(order, []).append((start, count))
    starts = {order: [start for start, _ in sorted(pieces)] for order, pieces in counts.items()}
    before = {
        order: list(itertools.accumulate((count for _, count in sorted(pieces)), initial=0))
        for order, pieces in counts.items()
    }
    return starts, before


def _without_labels_of_documents(rows: pa.Table) -> pa.Table:
    """Without the label lines whose document is there; if it is set aside, its labels go with it."""
    ids, is_label = rows["doc_id"].to_pylist(), rows["label"].to_pylist()
    there = {doc_id for doc_id, label in zip(ids, is_label, strict=True) if not label and doc_id is not None}
    keep = [not (label and doc_id in there) for doc_id, label in zip(ids, is_label, strict=True)]
    return rows.filter(pa.array(keep, pa.bool_()))


def _mark_duplicates(rows: pa.Table) -> pa.Table:
    """Of rows with one id, sorted, keep the first good one; the rest get a reason."""
    ids = rows["doc_id"].to_pylist()
    reasons = rows["reason"].to_pylist()
    kept: str | None = None
    for i, doc_id in enumerate(ids):
        if reasons[i] is None:
            if doc_id == kept:
                reasons[i] = "duplicate id"
            kept = doc_id
    return rows.set_column(rows.schema.get_field_index("reason"), "reason", pa.array(reasons, pa.string()))


def rejected_rows(store: TokenStore) -> Iterator[dict[str, Any]]:
    """The rows set aside: doc_id, file, row and reason."""
    for name in sorted((store.folder / _REJECTED).files()):
        with open_parquet(store.folder / _REJECTED / name) as file:
            yield from file.read().to_pylist()


def show_rejected(store: TokenStore) -> str:
    """One line that says how many rows were set aside and why."""
    reasons = store.summary["rejected"]
    total = sum(reasons.values())
    if not total:
        return "no rows set aside"
    detail = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items(), key=lambda r: -r[1]))
    hint = f"; {advice('utf-8')}" if NOT_UTF8 in reasons else ""
    if total > sum(store.summary["documents"].values()):
        hint += "; these are most of all: look whether that is what the corpus is meant to be"
    return f"{total:,} rows set aside ({detail}); they are listed in {store.folder / _REJECTED}{hint}"
