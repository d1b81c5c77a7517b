"""Labels that come in files of their own: a table of them, small enough to be looked up by every task that reads.

1. One task reads the label files and joins what is spread over them: counterparts and split by name of the document.
2. The table lies in Ray's object store, ordered by a hash of the names; a reading task finds a name by bisection.
3. Every line that gave a label is listed too, so that what no document asked for is set aside like any bad row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from infocse_ray.corpus.schema import stable_hash
from infocse_ray.storage.redact import redacted


class Label(NamedTuple):
    """What the label files say about a document."""

    doc_id: str
    counterparts: list[str]
    """Distinct; none where all were bad."""
    split: str | None


class LabelTable(NamedTuple):
    """A label table."""

    keys: np.ndarray
    """int64 [n], ascending: hashes of the names that documents are looked up by."""
    table: pa.Table
    """In that order: `name`, `doc_id`, `counterparts` (list of string), `split` (null where none is said)."""
    lines: pa.Table
    """Lines of the label files: `doc_id`, `file`, `row` (see `rejected_schema`), `reason` it would be set aside for,
    `label`: whether that is only if no document of the id is there."""

    def find(self, name: str) -> Label | None:
        """The label of the document of that name; None when there is none."""
        try:
            key = stable_hash(name)
        except UnicodeEncodeError:  # a lone surrogate, which no line of a file that is UTF-8 has
            return None
        place = int(np.searchsorted(self.keys, key))
        while place < len(self.keys) and self.keys[place] == key:
            if self.table["name"][place].as_py() == name:
                row = self.table.slice(place, 1).to_pylist()[0]
                return Label(row["doc_id"], row["counterparts"], row["split"])
            place += 1
        return None


class LabelWriter:
    """Gathers the lines of label files."""

    def __init__(self) -> None:
        self._labels: dict[str, Label] = {}
        self._lines: dict[str, list] = {name: [] for name in ("doc_id", "file", "row", "reason", "label")}

    def __contains__(self, name: str) -> bool:
        """Whether anything was said of the document of that name."""
        return name in self._labels

    def add(self, name: str, doc_id: str, text: str | None, split: str | None = None) -> str:
        """Say of the document looked up by `name` that `text` is a counterpart, and return its id.

        The first id of a name stays. A text that is said again is one counterpart; None says that there is the
        document and no more.
        """
        label = self._labels.setdefault(name, Label(doc_id, [], split))
        if split is not None and label.split is None:
            label = self._labels[name] = label._replace(split=split)
        if text is not None and text not in label.counterparts:
            label.counterparts.append(text)
        return label.doc_id

    def line(self, doc_id: str | None, file: str, row: int, reason: str, label: bool = False) -> None:
        """List a line: set aside for `reason`, or, if it gave a `label`, should no document of the id be there."""
        for column, value in zip(self._lines.values(), (doc_id, redacted(file), row, reason, label), strict=True):
            column.append(value)

    def labels(self) -> LabelTable:
        """The table of what was added."""
        names = list(self._labels)
        keys = np.fromiter((stable_hash(name) for name in names), np.int64, len(names))
        order = np.argsort(keys, kind="stable")
        labels = [self._labels[names[i]] for i in order]
        table = pa.table(
            {
                "name": pa.array([names[i] for i in order], pa.string()),
                "doc_id": pa.array([label.doc_id for label in labels], pa.string()),
                "counterparts": pa.array([label.counterparts for label in labels], pa.list_(pa.string())),
                "split": pa.array([label.split for label in labels], pa.string()),
            }
        )
        lines = pa.table(
            {
                "doc_id": pa.array(self._lines["doc_id"], pa.string()),
                # The same few texts over and over.
                "file": pa.array(self._lines["file"], pa.string()).dictionary_encode(),
                "row": pa.array(self._lines["row"], pa.int64()),
                "reason": pa.array(self._lines["reason"], pa.string()).dictionary_encode(),
                "label": pa.array(self._lines["label"], pa.bool_()),
            }
        )
        return LabelTable(keys[order], table, lines)
