"""Documents given from Python, written once as Parquet that the corpus stage reads like any files.

1. Lists, tables and data sets are written to a folder `<storage>/sources/.writing-...`, a part at a time; a Ray Dataset
   by its own tasks.
2. What they hold names the folder they are moved to, `<storage>/sources/<fingerprint>`: the same documents are the same
   source, in this process or another. A file `fingerprint`, written last, says that all of them are there.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from infocse_ray.corpus.documents import id_text
from infocse_ray.corpus.kind import ROLES
from infocse_ray.corpus.metadata import alike_values
from infocse_ray.corpus.read import reader_of
from infocse_ray.corpus.source import CONTENT
from infocse_ray.settings import Corpus
from infocse_ray.settings.embed import EveryDocument, MetadataType
from infocse_ray.storage.folder import UNFINISHED, Storage
from infocse_ray.storage.parquet import write_parquet

ACCEPTED = (
    "a list of texts, of lists of sentences or of dicts, a pandas DataFrame, a pyarrow Table, a datasets.Dataset, a "
    "Ray Dataset, or paths (a str or pathlib.Path, or a list of these)"
)
_PART_ROWS = 50_000
_GROUP_BYTES = 16 * 2**20
_LONGEST_PATH = 4096
_MOVED_AT_ONCE = 16


def corpus_of(
    documents: object, root: Storage, settings: Mapping[str, Any] | None = None, kind: type[Corpus] = Corpus
) -> Corpus:
    """The corpus settings of documents given from Python, which are written to storage if they aren't files.

    Of a table, or of dicts, the columns are those that the settings name, metadata among them, else `id`, `text`,
    `sentences`, `counterpart` and `split`; others are left out. Documents without an id get one of their content, so
    that equal ones are one document. Texts and lists of sentences have no column but that.

    Args:
        documents: one of ACCEPTED. Strings in a list are paths if all of them end as files of documents do
            (`news/*.parquet`), else texts; a folder is named by a string that is not in a list, or by a pathlib.Path.
        root: the storage that runs share.
        settings: of the corpus (section `corpus`), without `source`.
        kind: of the section: what it takes.

    Raises:
        ValueError: documents of a type that isn't taken, without a text, or none at all.
        NoSpace, StorageUnavailable: they can't be written now.
    """
    given = dict(settings or {})
    if given.get("source") is not None:
        raise ValueError("corpus.source: the documents are given; leave it out")
    if (paths := _paths(documents)) is not None:
        return kind.model_validate({**given, "source": paths})
    if given.get("kind", "auto") != "auto":
        raise ValueError(f"corpus.kind = {given['kind']!r}: is for files; leave it out, or give paths")
    # Whatever else is wrong with the settings is said before anything is written.
    corpus = kind.model_validate({**given, "source": "documents"})
    folder = root / "sources" / f"{UNFINISHED}{uuid.uuid4().hex}"
    try:
        name = (
            _write_dataset(documents, folder, corpus)
            if is_ray_dataset(documents)
            else _write(documents, folder, corpus)
        )
        target = root / "sources" / name
        if not (target / CONTENT).exists():
            _move(folder, target)
            (target / CONTENT).write_bytes(name.encode())
    finally:
        folder.delete()
    return corpus.model_copy(update={"source": target.uri})


def _paths(documents: object) -> str | list[str] | None:
    """The paths that documents are; None if they are something else."""
    if isinstance(documents, str):
        if not documents:
            raise ValueError("documents: is an empty str, which names no file; give a list of texts, or paths")
        if "\n" in documents or len(documents) > _LONGEST_PATH:
            raise ValueError("documents: is a str, which names files, and is no path; give a list of texts")
        return documents
    if isinstance(documents, os.PathLike):
        return os.fspath(documents)
    if isinstance(documents, list | tuple) and documents:
        if all(isinstance(one, os.PathLike) for one in documents):
            return [os.fspath(one) for one in documents]
        if all(isinstance(one, str) and "\n" not in one and reader_of(one) for one in documents):
            return list(documents)
    return None


def is_ray_dataset(documents: object) -> bool:
    """Whether documents are a Dataset of Ray's, whose tasks a cluster does."""
    return type(documents).__module__.startswith("ray.data") and hasattr(documents, "map_batches")


def _write(documents: object, folder: Storage, corpus: Corpus) -> str:
    """Write the parts; the fingerprint depends on the rows and their order alone."""
    digest = hashlib.blake2b(digest_size=16)
    count = 0
    for number, table in enumerate(_tables(documents, corpus)):
        for row in _row_digests(table):
            digest.update(row)
        count += len(table)
        _write_part(table, folder / f"part-{number:06d}.parquet")
    if not count:
        raise ValueError("documents: there are none; give some")
    return digest.hexdigest()


def _tables(documents: object, corpus: Corpus) -> Iterator[pa.Table]:
    """Documents as tables of the columns that are read, a part at a time."""
    module = type(documents).__module__.partition(".")[0]
    if isinstance(documents, pa.Table):
        table: Any = documents
        yield from _sliced(table.select(_columns(table.column_names, corpus)))
    elif module == "pandas" and hasattr(documents, "columns"):
        frame: Any = documents.set_axis([str(name) for name in documents.columns], axis=1)  # pyright: ignore
        frame = _with_index(frame, corpus)
        names = _columns(list(frame.columns), corpus)
        alike = {
            name: alike_values([_plain(value) for value in frame[name]], kind)
            for name, kind in _metadata_alone(corpus).items()
            if frame[name].dtype == object
        }
        yield from _sliced(_from_pandas(frame[names].assign(**alike), corpus))
    elif module == "datasets" and isinstance(documents, Mapping):
        raise ValueError(_refused(documents) + f"; choose one of its splits: {', '.join(documents)}")
    elif module == "datasets" and hasattr(documents, "with_format"):
        dataset: Any = documents
        names = _columns(list(dataset.column_names or next(iter(dataset), {})), corpus)
        for table in dataset.select_columns(names).with_format("arrow").iter(batch_size=_PART_ROWS):
            yield from _sliced(table)
    elif isinstance(documents, str | bytes | Mapping | set | frozenset) or not isinstance(documents, Iterable):
        raise ValueError(_refused(documents))
    elif hasattr(documents, "__arrow_c_stream__") and hasattr(documents, "columns"):
        table = pa.table(documents)
        yield from _sliced(table.select(_columns(table.column_names, corpus)))
    else:
        yield from _from_rows(list(documents), corpus)


def _refused(documents: object) -> str:
    kind = type(documents)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"documents: are of type {name}; give {ACCEPTED}"


def _columns(there: list[str], corpus: Corpus) -> list[str]:
    """The columns that are read, of those there are.

    Raises:
        ValueError: one is named that isn't there, or there is no text.
    """
    if not there:
        raise ValueError("documents: there are none, or they have no columns; give some with a text")
    column_of: dict[str, str] = {}
    for role in ROLES:
        named = getattr(corpus, role)
        if named is not None and named not in there and not (corpus.labels and role in ("counterpart", "split")):
            raise ValueError(f"corpus.{role} = {named!r}: no such column; there is {', '.join(there)}")
        if (named or role) in there:
            column_of[role] = named or role
    if "text" not in column_of and "sentences" not in column_of:
        raise ValueError(
            f"corpus.text: the documents have neither a `text` nor a `sentences` column; name one of "
            f"{', '.join(there)} with corpus.text or corpus.sentences"
        )
    metadata = _metadata(corpus)
    if absent := [name for name in metadata if name not in there]:
        raise ValueError(f"corpus.metadata: no column {absent[0]!r}; there is {', '.join(there)}")
    wanted = [*column_of.values(), *metadata]
    if doubled := [name for name in wanted if there.count(name) > 1]:
        raise ValueError(f"documents: have several columns {doubled[0]!r}; give each a name of its own")
    return list(dict.fromkeys(wanted))


def _metadata(corpus: Corpus) -> dict[str, MetadataType]:
    """Further columns that are asked for, with their types."""
    return corpus.metadata if isinstance(corpus, EveryDocument) else {}


def _metadata_alone(corpus: Corpus) -> dict[str, MetadataType]:
    """Those of them that are no part of a document."""
    documents = {getattr(corpus, role) or role for role in ROLES}
    return {name: kind for name, kind in _metadata(corpus).items() if name not in documents}


def _with_index(frame: Any, corpus: Corpus) -> Any:
    """The DataFrame with a column for each level of its index that has the name of one that is read."""
    wanted = {getattr(corpus, role) or role for role in ROLES} | set(_metadata(corpus))
    levels = [name for name in frame.index.names if name in wanted and name not in frame.columns]
    if not levels:  # what is assigned to is copied
        return frame
    return frame.assign(**{name: frame.index.get_level_values(name) for name in levels})


def _from_pandas(frame: Any, corpus: Corpus) -> pa.Table:
    """The columns of a DataFrame; what Arrow can't take as one type goes by rows."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, UnicodeEncodeError, OverflowError):
        return _table({name: [_plain(value) for value in frame[name]] for name in frame.columns}, corpus)


def _plain(value: Any) -> Any:
    """A cell of a DataFrame, or of a row that was one's: None for what is missing, a list for an array."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    unequal = value != value  # NaN and NaT differ from themselves, and pandas.NA can't tell
    return None if unequal is True or unequal is value else value


def _kind(row: Any) -> str | None:
    """What a row is; None: nothing that a document is made of."""
    kinds = (("text", str), ("sentences", (list, tuple)), ("dict", Mapping))
    return next((kind for kind, types in kinds if isinstance(row, types)), None)


def _from_rows(rows: list[Any], corpus: Corpus) -> Iterator[pa.Table]:
    """Texts, lists of sentences, or dicts."""
    if not rows:
        return
    kind = _one_kind(rows)
    if kind == "dict":
        rows = [{str(key): value for key, value in row.items()} for row in rows]
        names = _columns(list(dict.fromkeys(key for row in rows for key in row)), corpus)
    else:
        _check_roles(kind, corpus)
        names = [getattr(corpus, kind) or kind]
    for begin in range(0, len(rows), _PART_ROWS):
        some = rows[begin : begin + _PART_ROWS]
        yield _table(
            {name: [_plain(row.get(name)) for row in some] for name in names}
            if kind == "dict"
            else {names[0]: [row if kind == "text" else list(row) for row in some]},
            corpus,
        )


def _one_kind(rows: list[Any]) -> str:
    """What all rows are.

    Raises:
        ValueError: one is nothing that a document is made of, or they are of several kinds.
    """
    first = _kind(rows[0])
    if first is None:
        raise ValueError(f"documents: item 0 is a {type(rows[0]).__qualname__}; give {ACCEPTED}")
    for number, row in enumerate(rows):
        if _kind(row) != first:
            raise ValueError(
                f"documents: item {number} is a {type(row).__qualname__} and item 0 a {type(rows[0]).__qualname__}; "
                "give all of one kind"
            )
    return first


def _check_roles(kind: str, corpus: Corpus) -> None:
    """Refuse names of columns that texts, or lists of sentences, don't have.

    Raises:
        ValueError: the corpus names one.
    """
    other = "sentences" if kind == "text" else "text"
    what = "texts" if kind == "text" else "lists"
    if metadata := _metadata(corpus):
        raise ValueError(f"corpus.metadata = {metadata}: a list of {what} has no further columns; give dicts")
    for role in ROLES:
        named = getattr(corpus, role)
        if role != kind and named is not None and not (corpus.labels and role != other):
            raise ValueError(f"corpus.{role} = {named!r}: a list of {what} has no such column; give dicts")


def _table(columns: dict[str, list[Any]], corpus: Corpus) -> pa.Table:
    of_ids, metadata = corpus.id or "id", _metadata_alone(corpus)
    alike = {
        name: alike_values(values, metadata[name]) if name in metadata else values for name, values in columns.items()
    }
    return pa.table({name: _array(name, values, name == of_ids) for name, values in alike.items()})


def _array(name: str, values: list[Any], are_ids: bool) -> pa.Array:
    """A column; text that can't be written as UTF-8 goes as bytes, for the corpus stage to set its row aside.

    Raises:
        ValueError: its values are of several types.
    """
    if any(isinstance(value, list | tuple) for value in values):
        values = [[value] if isinstance(value, str) else value for value in values]
    elif any(isinstance(value, str) for value in values):  # such as ids, of which some are numbers
        shown = id_text if are_ids else str
        values = [shown(value) if isinstance(value, int | float) else value for value in values]
    try:
        return pa.array(values)
    except UnicodeEncodeError:
        return pa.array([_as_bytes(value) for value in values])
    except (pa.ArrowException, TypeError, OverflowError) as error:
        if are_ids and all(isinstance(value, int | float | None) for value in values):  # hashes of 64 bits and more
            return pa.array([None if value is None else id_text(value) for value in values])
        raise ValueError(f"documents: {name!r} can't be read: {error}; give a text, or a list of texts") from error


def _as_bytes(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_bytes(one) for one in value]
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def _sliced(table: pa.Table) -> Iterator[pa.Table]:
    for begin in range(0, len(table), _PART_ROWS):
        yield table.slice(begin, _PART_ROWS)


def _row_digests(table: pa.Table) -> Iterator[bytes]:
    """16 bytes of each row, the same whatever Arrow types its values have."""
    for batch in table.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            text = json.dumps(row, sort_keys=True, default=_as_text)
            yield hashlib.blake2b(text.encode(), digest_size=16).digest()


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _write_part(table: pa.Table, file: Storage) -> None:
    """In row groups, each of which one task of the corpus stage reads."""
    table = _written_out(table)
    rows = max(1, min(len(table), _GROUP_BYTES * len(table) // max(1, table.nbytes)))
    groups = [min(rows, len(table) - begin) for begin in range(0, len(table), rows)]
    write_parquet(file, table.combine_chunks(), groups)


def _written_out(table: pa.Table) -> pa.Table:
    """The table without columns that say how often a value follows itself, which Parquet has no type for."""
    columns = {
        name: pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column  # pyright: ignore
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(columns)


def _write_dataset(documents: Any, folder: Storage, corpus: Corpus) -> str:
    """Have Ray Data's tasks write the parts; the fingerprint depends on the rows, not on their order and blocks."""
    schema = documents.schema()  # which reads some of it
    names = _columns([] if schema is None else list(schema.names), corpus)
    total = count = 0
    written = documents.select_columns(names).map_batches(
        _write_block, batch_size=None, batch_format="pyarrow", fn_kwargs={"folder": folder}
    )
    for row in written.iter_rows():
        total, count = total + int(row["digest"], 16), count + row["rows"]
    if not count:
        raise ValueError("documents: there are none; give some")
    return hashlib.blake2b(f"{total % 2**128:032x} {count}".encode(), digest_size=16).hexdigest()


def _write_block(block: pa.Table, folder: Storage) -> pa.Table:
    """Write a block as one part, named by what it holds: a task that runs again writes it again.

    Returns:
        One row: `digest`, the sum of its rows' digests modulo 2^128 in hexadecimal digits, and `rows`.
    """
    total = 0
    for row in _row_digests(block):
        total += int.from_bytes(row)
    digest = f"{total % 2**128:032x}"
    if len(block):
        _write_part(block, folder / f"part-{digest}.parquet")
    return pa.table({"digest": [digest], "rows": [len(block)]})


def _move(folder: Storage, target: Storage) -> None:
    """Move the parts; what an interrupted call had moved is replaced by the same."""
    if os.path.isdir(folder.path):
        os.makedirs(target.path, exist_ok=True)
    with ThreadPoolExecutor(_MOVED_AT_ONCE) as pool:
        list(pool.map(lambda name: folder.filesystem.move((folder / name).path, (target / name).path), folder.files()))
