"""A folder on local disk or in an object store, reached the same way: `Storage.open(uri) / "part"`."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import hashlib
import json
import os
import re
import secrets
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from infocse_ray.errors import NoSpace, StorageUnavailable
from infocse_ray.storage.copies import kept_copy
from infocse_ray.storage.errors import explained
from infocse_ray.storage.fsspec_listings import keep_no_listings
from infocse_ray.storage.fsspec_times import TimedHandler
from infocse_ray.storage.redact import learn, redacted, redacted_json
from infocse_ray.storage.s3 import PatientS3FileSystem, open_s3

_LISTINGS = 5
"""Tries to list a folder in which others make and remove folders."""
UNFINISHED = ".writing-"
"""Names of files that are being written begin so, and of those that a killed process was about to write."""

_FILE, _OF_ONE_PROCESS = "file://", "memory://"
HTML = "text/html; charset=utf-8"
"""A page's content type."""


def is_remote(uri: str) -> bool:
    """Whether `uri` has a scheme other than file://."""
    return re.match(r"[a-z][a-z0-9+.-]+://", uri) is not None and not uri.startswith(_FILE)


def without_query(uri: str) -> str:
    """A URI without its ?parameters; in a local path a question mark is a letter like others."""
    return uri.partition("?")[0] if is_remote(uri) else uri


def open_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem of `uri` and the path in it: pyarrow's own where it has one, fsspec's otherwise.

    Raises:
        ValueError: no installed filesystem opens the URI.
    """
    if not is_remote(uri):
        return pafs.LocalFileSystem(), os.path.abspath(_local_path(uri))
    learn(uri)
    if uri.startswith("s3://"):
        try:
            return open_s3(uri)
        except ValueError as error:
            raise ValueError(redacted(f"{uri} can't be opened: {error}")) from None
    try:
        return pafs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    try:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise ValueError(redacted(f"{uri} can't be opened: {error}")) from None
    keep_no_listings(filesystem)
    return pafs.PyFileSystem(TimedHandler(filesystem)), path


def _local_path(uri: str) -> str:
    """A path, or a file:// URI, as a path; a URI's %20 is a space (RFC 8089).

    Raises:
        ValueError: the URI is of another machine.
    """
    if not uri.startswith(_FILE):
        return os.path.expanduser(uri)
    host, _, path = uri.removeprefix(_FILE).partition("/")
    if host not in ("", "localhost"):
        raise ValueError(
            f"{uri} can't be opened: it is of a machine {host!r}; a path here has three slashes, file:///..."
        )
    return unquote("/" + path)


def goes_with_job(path: str) -> bool:
    """Whether a path is in the folder that Ray unpacks a job into, and deletes some time after it."""
    return "/_ray_pkg_" in path


class Storage:
    """A folder (or file) under a root URI. Cheap to make and to pickle; connects on first use."""

    def __init__(self, root: str, relative: str = "") -> None:
        self.root, self.relative = root, relative
        self._opened: tuple[pafs.FileSystem, str] | None = None

    @classmethod
    def open(cls, uri: str) -> Storage:
        """A local folder becomes absolute, so that workers in other working directories find it."""
        return cls(uri if is_remote(uri) else open_filesystem(uri)[1])

    @classmethod
    def of_runs(cls, uri: str, setting: str = "storage") -> Storage:
        """Open the folder that the setting `storage`, or another, names; nothing is written.

        Raises:
            ValueError: it names no folder, or nothing that is installed opens it.
        """
        if not uri.strip():  # as a path it would be the working directory
            raise ValueError(f"{setting} = {uri!r}: names no folder; give one, or a URI")
        try:
            storage = cls.open(uri)
        except ValueError as error:
            raise ValueError(redacted(f"{setting} = {uri!r}: {error}")) from None
        if not is_remote(uri) and os.path.isfile(storage.root):
            raise ValueError(f"{setting} = {uri!r}: is a file; name a folder, or a URI")
        if is_remote(uri) and not without_query(uri).partition("://")[2].strip("/"):
            raise ValueError(redacted(f"{setting} = {uri!r}: names no bucket; give one, as in {uri}bucket/runs"))
        try:
            with explained(storage):
                storage._open()
        except ValueError as error:
            raise ValueError(redacted(f"{setting} = {uri!r}: {error}; name another folder or URI")) from None
        return storage

    @classmethod
    def lasting(cls, uri: str, setting: str) -> Storage:
        """Open the folder that a setting names, to be written; nothing is written yet.

        Raises:
            ValueError: it names no folder, or one that goes with the job.
        """
        storage = cls.of_runs(uri, setting)
        if goes_with_job(storage.root):
            raise ValueError(
                f"{setting} = {uri!r}: is in the folder that Ray unpacked this job into and will delete; give an "
                "absolute path or a URI that every node reaches"
            )
        if uri.startswith(_OF_ONE_PROCESS):
            raise ValueError(f"{setting} = {uri!r}: is of one process; give a folder, or a URI that every node reaches")
        return storage

    @classmethod
    def for_runs(cls, uri: str, setting: str = "storage") -> Storage:
        """Open what the setting `storage`, or another, names, once it is sure that it can be written and will last.

        Raises:
            ValueError: it can't or won't.
            NoSpace, StorageUnavailable: not now.
        """
        storage = cls.lasting(uri, setting)
        # Of one's own: threads share a process's number, and containers that have one storage all count from 1.
        probe = storage / f".probe-{uuid.uuid4().hex}"
        try:
            probe.write_bytes(b"")
            probe.delete()
        except (OSError, NotImplementedError) as error:  # the latter of what fsspec only reads, such as https://
            cause = error.__cause__ or error
            if isinstance(error, (NoSpace, StorageUnavailable)) and getattr(cause, "errno", None) != errno.EROFS:
                raise
            reason = str(cause) or "it can only be read"
            raise ValueError(
                redacted(f"{setting} = {uri!r}: can't be written: {reason}; name another folder or URI")
            ) from error
        return storage

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.root, self.relative)

    def __truediv__(self, name: str) -> Storage:
        return Storage(self.root, f"{self.relative}/{name}" if self.relative else name)

    @property
    def uri(self) -> str:
        """What opens it again, credentials included; for people there is `str`."""
        base = without_query(self.root)
        return f"{base.rstrip('/')}/{self.relative}{self.root[len(base) :]}" if self.relative else self.root

    def __str__(self) -> str:
        return redacted(self.uri) if is_remote(self.root) else self.uri

    def __repr__(self) -> str:
        return f"Storage({str(self)!r})"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return (self.relative or self.root).rstrip("/").rsplit("/", 1)[-1]

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The pyarrow filesystem that `path` is in."""
        return self._open()[0]

    @property
    def path(self) -> str:
        """The path inside `filesystem`."""
        base = self._open()[1].rstrip("/")
        return f"{base}/{self.relative}" if self.relative else base

    def _open(self) -> tuple[pafs.FileSystem, str]:
        if self._opened is None:
            self._opened = open_filesystem(self.root)
        return self._opened

    def exists(self) -> bool:
        """Whether a file or folder is there."""
        with explained(self):
            return self.filesystem.get_file_info(self.path).type != pafs.FileType.NotFound

    def files(self, unfinished: bool = False) -> dict[str, pafs.FileInfo]:
        """Every file below, by relative path; empty when the folder isn't there.

        Args:
            unfinished: also files that are being written, or that a killed process was about to write.
        """
        with explained(self):
            infos = self._listed(_LISTINGS)
        start = len(self.path.rstrip("/")) + 1
        return {
            i.path[start:]: i
            for i in infos
            if i.type == pafs.FileType.File and (unfinished or not i.base_name.startswith(UNFINISHED))
        }

    def _listed(self, tries: int) -> list[pafs.FileInfo]:
        try:
            return self.filesystem.get_file_info(pafs.FileSelector(self.path, recursive=True, allow_not_found=True))
        except FileNotFoundError:  # of a folder that another thread or process made or removed meanwhile
            if tries <= 1:
                raise
            return self._listed(tries - 1)

    def read_bytes(self) -> bytes:
        """The file's content.

        Raises:
            FileNotFoundError: it isn't there.
        """
        with explained(self), self.filesystem.open_input_file(self.path) as source:
            if isinstance(self.filesystem, PatientS3FileSystem):
                return self.filesystem.read_whole(source)
            return source.read()

    def read_at(self, source: pa.NativeFile, size: int, begin: int) -> bytes:
        """So many bytes from `begin` on of the file, opened: fewer where it ends before."""
        if isinstance(self.filesystem, PatientS3FileSystem):
            return self.filesystem.read_at(source, size, begin)
        return source.read_at(size, begin)

    def write_bytes(self, data: bytes | pa.Buffer, content_type: str | None = None) -> None:
        """Write the file whole: readers see the old content or the new, never a part of it.

        Args:
            data: the content.
            content_type: what an object store says it is, so that a browser shows it, such as `text/html`.

        Raises:
            NoSpace: the disk or the quota is full.
            StorageUnavailable: the object store failed beyond all retries.
        """
        with explained(self, len(data)):
            self._write(data, content_type)

    def _write(self, data: bytes | pa.Buffer, content_type: str | None) -> None:
        parent = self.path.rsplit("/", 1)[0]
        if isinstance(self.filesystem, pafs.LocalFileSystem):
            os.makedirs(parent, exist_ok=True)
            # Not by `tempfile`, whose files are their owner's alone: who may read and write this one says the umask.
            temporary = f"{parent}/{UNFINISHED}{secrets.token_hex(8)}"
            try:
                with open(temporary, "xb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fsync(stream.fileno())
                os.replace(temporary, self.path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):  # it may be what couldn't be made
                    os.unlink(temporary)
                raise
            return
        # Object stores show a file only once its stream is closed.
        metadata = None if content_type is None else {"Content-Type": content_type}
        with self.filesystem.open_output_stream(self.path, compression=None, metadata=metadata) as stream:
            stream.write(data)

    def read_json(self) -> Any:
        """The file's content as JSON."""
        return json.loads(self.read_bytes())

    def write_json(self, value: Any) -> None:
        """Write `value` as JSON, whole, without the credentials that URIs in it have."""
        self.write_bytes((json.dumps(redacted_json(value), indent=1, sort_keys=True) + "\n").encode())

    def delete(self) -> None:
        """Remove the file or folder; nothing happens when it isn't there."""
        with explained(self):
            kind = self.filesystem.get_file_info(self.path).type
            if kind == pafs.FileType.Directory:
                self.filesystem.delete_dir(self.path)
            elif kind == pafs.FileType.File:
                self.filesystem.delete_file(self.path)

    def upload(self, folder: str | os.PathLike[str], like: Storage | None = None) -> None:
        """Copy a local folder's files here, each whole.

        Args:
            folder: the local one.
            like: a folder in storage. On local disk, what it has under the same name and with the same content is
                linked and takes no room of its own: for folders that nobody writes to in place.
        """
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                name = file.relative_to(folder).as_posix()
                if like is None or not (self / name)._link(like / name, file):
                    (self / name).write_bytes(file.read_bytes())

    def _link(self, other: Storage, content: Path) -> bool:
        """Make this file another name of `other`, if that is possible and holds `content`; whether it was done."""
        if not all(isinstance(one.filesystem, pafs.LocalFileSystem) for one in (self, other)):
            return False
        try:
            if not filecmp.cmp(other.path, content, shallow=False):
                return False
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            Path(self.path).unlink(missing_ok=True)
            os.link(other.path, self.path)
        except OSError:  # it isn't there, or its disk has no links
            return False
        return True

    def local_copy(self, key: str) -> Path:
        """The folder as a local path: itself if local, else a copy kept on this machine under `key`.

        `key` names the content (a fingerprint), so that a copy is made once a machine and never goes stale.
        """
        if isinstance(self.filesystem, pafs.LocalFileSystem):
            return Path(self.path)
        name = hashlib.blake2b(f"{self}\n{key}".encode(), digest_size=16).hexdigest()
        return kept_copy(name, self.files, lambda file: (self / file).read_bytes())
