"""S3 with patience: pyarrow's filesystem, which retries what may pass and gives up after a stated time.

A request that fails in a way that may pass (5xx, slow down, no connection, no answer for 10 s) is made again after
0, 50, 100, 200, ... milliseconds, until the waits add up to about `retry_limit_seconds`, a parameter of the URI. That
holds in pyarrow's own code, and so for Ray Train's checkpoints and reads in the middle of a file, too, but for reads of
fewer bytes than the error's text has: AWS' library has nowhere to put it and gives up at once, so `read_at` asks again.
"""

from __future__ import annotations

import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pafs

RETRY_LIMIT_SECONDS = 100.0
_ANSWER_SECONDS = 10.0
_UNIT_SECONDS = 0.025
"""The k-th wait is 2^k of it, but there is none before the first retry."""

_NO_ROOM = "Failed to flush response stream"
"""AWS' library, of an error whose text is longer than what was asked for."""
_PIECE = 16 * 2**20
"""Bytes of a large file in a request; pyarrow's streams ask for 256 KiB after 256 KiB."""
_PIECES_AT_ONCE = 8

_LIMIT = re.compile(r"([?&])retry_limit_seconds=([^&]*)&?")


class PatientS3FileSystem(pafs.S3FileSystem):
    """pyarrow's S3 with so many retries; pickled it keeps them, which pyarrow's own forgets."""

    def __init__(self, retries: int, options: dict[str, Any]) -> None:
        # pyarrow's other method has a budget for all retries ever made, which a long run uses up.
        super().__init__(retry_strategy=pafs.AwsDefaultS3RetryStrategy(max_attempts=retries), **options)
        self.retries = retries

    def __reduce__(self) -> tuple[Any, ...]:
        return PatientS3FileSystem, (self.retries, _options(super().__reduce__()))

    def read_at(self, source: pa.NativeFile, size: int, begin: int) -> bytes:
        """So many bytes of an open file, from `begin` on: fewer where the file ends before."""
        attempt = 0
        while True:
            try:
                return source.read_at(size, begin)
            except OSError as error:
                if _NO_ROOM not in str(error) or attempt == self.retries:
                    raise
            if attempt:
                time.sleep(_UNIT_SECONDS * 2**attempt)
            attempt += 1

    def read_whole(self, source: pa.NativeFile) -> bytes:
        """All bytes of an open file, of a large one several pieces at once."""
        size = source.size()
        if size <= _PIECE:
            return self.read_at(source, size, 0)
        with ThreadPoolExecutor(_PIECES_AT_ONCE) as readers:
            return b"".join(readers.map(lambda begin: self.read_at(source, _PIECE, begin), range(0, size, _PIECE)))


_OF_A_KEY = "/:!$&'()*+,;=~"
"""What stands for itself in a URI's path, besides letters and digits; an @ could end credentials."""
_connected: dict[str, PatientS3FileSystem] = {}
"""One for all files of a bucket, with its connections and the credentials it found."""


def open_s3(uri: str) -> tuple[PatientS3FileSystem, str]:
    """The filesystem of an s3:// URI and the path in it.

    Takes the parameters that pyarrow takes (`region`, `endpoint_override`, `scheme`, ...) and `retry_limit_seconds`.
    Credentials are those of the URI, or else what AWS' chain finds: environment, profile, the machine's role.

    Raises:
        ValueError: it is no such URI.
    """
    rest, limit = _without_limit(uri)
    head, mark, parameters = rest.partition("?")
    # What a URI has no place for is written as people write paths: spaces, a glob's brackets, letters beyond ASCII.
    plain, path = pafs.FileSystem.from_uri(quote(head, safe=f"{_OF_A_KEY}@%") + mark + parameters)
    options = _options(plain.__reduce__()) | {
        "request_timeout": _ANSWER_SECONDS,
        "connect_timeout": _ANSWER_SECONDS,
        # A small file is then one request instead of three.
        "allow_delayed_open": True,
    }
    retries = retries_within(limit)
    key = repr((retries, sorted(options.items())))
    if key not in _connected:
        _connected[key] = PatientS3FileSystem(retries, options)
    return _connected[key], path


def uri_of_key(uri: str, key: str) -> str:
    """The URI of another key of the bucket that a URI names, with its credentials and parameters.

    Args:
        uri: s3://[credentials@]bucket/...[?parameters].
        key: with the bucket before it, as in `open_s3`'s path.
    """
    head, mark, parameters = uri.partition("?")
    user, at, _ = head.removeprefix("s3://").partition("/")[0].rpartition("@")
    return f"s3://{user}{at}{quote(key, safe=_OF_A_KEY)}{mark}{parameters}"


def is_plain_key(key: str) -> bool:
    """Whether a key is written in a URI as it is."""
    return quote(key, safe=_OF_A_KEY) == key


def retries_within(seconds: float) -> int:
    """How many retries have waits of about so many seconds together."""
    return max(1, round(math.log2(seconds / _UNIT_SECONDS + 2)))


def _without_limit(uri: str) -> tuple[str, float]:
    if (match := _LIMIT.search(uri)) is None:
        return uri, RETRY_LIMIT_SECONDS
    try:
        limit = float(match[2])
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise ValueError(f"retry_limit_seconds = {match[2]!r}: give a number of seconds, such as 100")
    return (uri[: match.start()] + match[1] + uri[match.end() :]).rstrip("?&"), limit


def _options(reduced: tuple[Any, ...]) -> dict[str, Any]:
    """What pyarrow's own filesystem is made of when it is unpickled."""
    return reduced[1][0]
