"""Lance datasets that many workers write into, on disk or in an object store, and one driver commits.

1. An actor writes a shard's rows as fragments (data files with names of their own, which no reader sees yet), and then
   the fragments' descriptions, as the shard's piece of the stage.
2. The driver commits the fragments of all pieces as one version: the dataset is there whole or not at all, and the same
   commit made again makes the same version.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from infocse_ray.embedding.index import OVER, Over
from infocse_ray.embedding.writer import Part, add_to
from infocse_ray.errors import DamagedFile, StorageUnavailable
from infocse_ray.loop.contents import at_once
from infocse_ray.runtime.libraries import check_installed
from infocse_ray.runtime.progress import say
from infocse_ray.stages.stage import unlike
from infocse_ray.storage.checksums import checked, read_checked
from infocse_ray.storage.folder import Storage

_FRAGMENT_BYTES = 2**26
"""From which on a fragment is written; fewer only where a shard ends. Whoever opens a dataset reads a list of all
fragments, and a search opens the files of many: with one for each row group they would be hundreds of thousands."""

_NOT_LANCE = ("access_key", "secret_key", "session_token", "region", "endpoint_override", "scheme")


def require_lance(setting: str) -> None:
    """See that Lance is installed.

    Args:
        setting: that needs it, with its value.

    Raises:
        ValueError: it isn't.
    """
    os.environ.setdefault("LANCE_LOG", "error")  # it warns of a dataset that is about to be made
    check_installed(["lance"], "search", setting)


def dataset_place(dataset: Storage) -> tuple[str, dict[str, str] | None]:
    """URI and options by which Lance opens a folder of a storage.

    Credentials are those of the storage's URI, else what Lance finds itself: the environment, the machine's role.
    """
    if not isinstance(dataset.filesystem, pafs.S3FileSystem):
        return (dataset.path if isinstance(dataset.filesystem, pafs.LocalFileSystem) else dataset.uri), None
    given = dict(zip(_NOT_LANCE, _s3_options(dataset.filesystem), strict=True))
    options = {
        "aws_access_key_id": given["access_key"],
        "aws_secret_access_key": given["secret_key"],
        "aws_session_token": given["session_token"],
        "aws_region": given["region"],
    }
    if given["endpoint_override"]:
        scheme = given["scheme"] or "https"
        options["aws_endpoint"] = f"{scheme}://{given['endpoint_override']}"
        options["allow_http"] = str(scheme == "http").lower()
    return f"s3://{dataset.path}", {name: value for name, value in options.items() if value}


def _s3_options(filesystem: pafs.FileSystem) -> list[str]:
    options: dict[str, Any] = filesystem.__reduce__()[1][1]  # pyright: ignore[reportAssignmentType]
    return [options.get(name) or "" for name in _NOT_LANCE]


class LanceWriter(NamedTuple):
    """Fragments of the datasets `<output>/documents.lance` and `sentences.lance`, described in `folder`."""

    folder: Storage
    output: Storage

    def counts(self, shard: int) -> dict[str, int] | None:
        """As `Writer` has it."""
        piece = self.piece(shard)
        counts = read_checked(piece)["counts"] if piece.exists() else None
        return counts if counts and "taken" in counts else None  # an earlier version's fragments have no digests

    def write(self, shard: int, parts: Iterator[Part]) -> dict[str, int]:
        """As `Writer` has it."""
        counts = {"documents": 0, "sentences": 0, "taken": 0}
        fragments: dict[str, list[str]] = {over: [] for over in OVER}
        waiting: dict[str, list[pa.Table]] = {over: [] for over in OVER}

        def add(over: Over, tables: list[pa.Table], most: int = _FRAGMENT_BYTES) -> None:
            there = waiting[over]
            there += tables
            if there and sum(table.nbytes for table in there) >= most:
                fragments[over] += self._fragments(over, pa.concat_tables(there))
                there.clear()

        for part in parts:
            add_to(counts, part)
            add("documents", [part.documents])
            if part.sentences is not None:
                add("sentences", [part.sentences])
        for over in OVER:
            add(over, [], most=1)
        self.piece(shard).write_json(checked({"counts": counts, **fragments}))
        return counts

    def piece(self, shard: int) -> Storage:
        """Where the fragments of a shard are described."""
        return self.folder / "fragments" / f"shard-{shard:06d}.json"

    def _fragments(self, over: Over, table: pa.Table) -> list[str]:
        from lance.fragment import write_fragments

        uri, options = dataset_place(self.output / f"{over}.lance")
        written = write_fragments(table, uri, schema=table.schema, mode="overwrite", storage_options=options)
        return [json.dumps(one.to_json()) for one in written]

    def commit(self, over: Over, schema: pa.Schema, shards: int) -> None:
        """Make a dataset of the fragments of all shards."""
        import lance

        uri, options = dataset_place(self.output / f"{over}.lance")
        pieces = at_once(lambda shard: read_checked(self.piece(shard))[over], range(shards))
        fragments = [lance.FragmentMetadata.from_json(one) for piece in pieces for one in piece]
        lance.LanceDataset.commit(uri, lance.LanceOperation.Overwrite(schema, fragments), storage_options=options)


def open_dataset(dataset: Storage) -> Any:
    """A dataset of Lance, as it is now.

    Raises:
        DamagedFile: it isn't there.
        ValueError, OSError: Lance can't open it.
    """
    import lance

    if not any(name.endswith(".manifest") for name in (dataset / "_versions").files()):
        raise DamagedFile(f"{dataset} is damaged (it is missing)")
    uri, options = dataset_place(dataset)
    return lance.dataset(uri, storage_options=options)


def check_whole(dataset: Storage) -> Any:
    """As `open_dataset`, once every data file is seen to be there, with its size, by a listing now.

    Raises:
        DamagedFile: it isn't there, or a file of it is missing or cut off.
        ValueError, OSError: Lance can't open it.
    """
    opened = open_dataset(dataset)
    described = [file for fragment in opened.get_fragments() for file in fragment.metadata.files]
    if wrong := unlike(_sizes(described), (dataset / "data").files()):
        name, why = next(iter(wrong.items()))
        raise DamagedFile(f"{dataset / 'data' / name} is damaged ({why})")
    return opened


def damage_of(dataset: Storage) -> str | None:
    """What a dataset lacks; None: nothing.

    Raises:
        StorageUnavailable: nobody can look for now.
        ValueError: Lance can't open it, whatever that means.
    """
    try:
        check_whole(dataset)
    except DamagedFile as error:
        return str(error)
    except StorageUnavailable:
        raise
    except (ValueError, OSError) as error:
        what = f"{dataset} can't be opened ({error})"
        raise ValueError(f"{what}; if it is damaged remove it, and it is made again") from error
    return None


def _sizes(described: Iterable[Any]) -> dict[str, int | None]:
    """Of data files of Lance, by their names; None where an earlier version of Lance noted none."""
    return {file.path: file.file_size_bytes or None for file in described}


def forget_lost(folder: Storage, output: Storage, sentences: bool) -> None:
    """Have what is lost of an output's datasets made again: its shards are written by none, the stage isn't finished.

    A dataset that is finished counts as it is now: somebody may have compacted it, so that its first files are gone.

    Args:
        folder: where a `LanceWriter` described its fragments.
        output: which has the datasets.
        sentences: whether there is one of sentences.

    Raises:
        ValueError: Lance can't open a dataset that is there.
    """
    datasets = [output / f"{over}.lance" for over in (OVER if sentences else OVER[:1])]
    if (finished := folder / "stage.json").exists():
        why = next(filter(None, map(damage_of, datasets)), None)
        if why is None:
            return
        say(f"{why}; what is lost is made again")
        finished.delete()
    data = [(dataset / "data").files() for dataset in datasets]
    pieces = [folder / "fragments" / name for name in (folder / "fragments").files() if name.endswith(".json")]
    lost = [piece for piece in at_once(lambda piece: None if _is_there(piece, data) else piece, pieces) if piece]
    for piece in lost:
        piece.delete()
    if lost:
        say(f"{len(lost):,} of {len(pieces):,} shards are embedded again: data of theirs is missing, or cut off")


def _is_there(piece: Storage, data: list[dict[str, pafs.FileInfo]]) -> bool:
    """Whether a shard's fragments are in the listings of the datasets' files, whole."""
    import lance

    described = read_checked(piece)
    return not any(
        unlike(_sizes(lance.FragmentMetadata.from_json(one).files), there)
        for over, there in zip(OVER, data, strict=False)
        for one in described[over]
    )


@functools.lru_cache(maxsize=4)
def opened_fragments(uri: str, options: tuple[tuple[str, str], ...] | None, job: str) -> tuple[Any, dict[str, Any]]:
    """A dataset and its fragments by the names of their files, looked at once in a process for each job.

    Args:
        uri: of the dataset.
        options: by which it is opened.
        job: for another one it is opened again.
    """
    import lance

    dataset = lance.dataset(uri, storage_options=None if options is None else dict(options))
    return dataset, {file.path: one for one in dataset.get_fragments() for file in one.metadata.files}


def shard_fragments(by_file: dict[str, Any], folder: Storage, over: Over, shard: int) -> list[Any]:
    """The fragments of a shard in a dataset that a `LanceWriter` committed, in its order; none if it was rewritten.

    Args:
        by_file: the dataset's fragments.
        folder: where the writer described its fragments.
        over: which of the two.
        shard: its number.
    """
    import lance

    described = read_checked(LanceWriter(folder, folder).piece(shard))[over]
    own = [file.path for one in described for file in lance.FragmentMetadata.from_json(one).files]
    return [by_file[path] for path in own if path in by_file]
