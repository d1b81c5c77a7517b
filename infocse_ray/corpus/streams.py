"""Open a corpus file as UTF-8 bytes, whatever its compression and encoding, and say what is wrong with its content."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
from typing import Any

import pyarrow as pa

from infocse_ray.storage.folder import open_filesystem, without_query

_COMPRESSIONS = {".gz": "gz", ".xz": "xz", ".zst": "zst"}
_BUFFER = 2**20
_LOOK_BYTES = 2**16
_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"} | {
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order marks; those of UTF-32 first, for one of them begins with one of UTF-16's."""
_LARGEST_CONTROL_SHARE = 0.1
"""Of bytes that no text has, in what still passes for text."""
_NO_TEXT = [bytes([byte]) for byte in (*(set(range(32)) - set(b"\t\n\v\f\r\x1b")), 127)]
_UNDECODABLE = "infocse_ray.undecodable"
# A lone surrogate can't be written as UTF-8, so that the row it is in is set aside like one that never was UTF-8.
codecs.register_error(_UNDECODABLE, lambda error: ("\ud800", error.end))  # pyright: ignore


class BadContent(ValueError):
    """A file holds no text of the kind it should; the message says what it holds, without naming the file."""


class WrongEncoding(BadContent):
    """It holds text in another encoding."""


def compression_of(path: str) -> str | None:
    """How a file is compressed, by its ending."""
    return next((c for ending, c in _COMPRESSIONS.items() if without_query(path).lower().endswith(ending)), None)


def plain_name(path: str) -> str:
    """A file's name in small letters, without its folder and the ending that says how it is compressed."""
    name = without_query(path).rpartition("/")[2].lower()
    return next((name.removesuffix(ending) for ending in _COMPRESSIONS if name.endswith(ending)), name)


def open_stream(uri: str, encoding: str = "utf-8") -> io.BufferedReader:
    """The file's text as UTF-8 bytes; text that `encoding` doesn't have is there as bytes that aren't UTF-8.

    A byte order mark is kept in UTF-8, as bytes are handed on as they are.
    """
    filesystem, path = open_filesystem(uri)
    raw: Any = filesystem.open_input_file(path)
    match compression_of(uri):
        case "gz":
            raw = gzip.GzipFile(fileobj=raw)
        case "xz":
            raw = lzma.LZMAFile(raw)
        case "zst":
            raw = pa.CompressedInputStream(raw, "zstd")
    return io.BufferedReader(raw if encoding == "utf-8" else _Recoded(raw, encoding), _BUFFER)


class _Recoded(io.RawIOBase):
    """Bytes of another encoding, read as UTF-8; without seeking."""

    def __init__(self, raw: Any, encoding: str) -> None:
        super().__init__()
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder(encoding)(_UNDECODABLE)
        self._ready = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            data = self._raw.read(_BUFFER)
            self._ended = not data
            self._ready = self._decoder.decode(data, self._ended).encode("utf-8", "surrogatepass")
        part = self._ready[: len(buffer)]
        self._ready = self._ready[len(part) :]
        buffer[: len(part)] = part
        return len(part)


def check_text(uri: str, encoding: str = "utf-8") -> bool:
    """Look at a file's beginning: whether letters beyond ASCII show that it is in the encoding that it should be in.

    Raises:
        BadContent: it is empty, binary, or in another encoding (WrongEncoding).
        One of READ_ERRORS: it is missing, or not compressed as its name says.
    """
    with open_stream(uri) as stream:
        data = stream.read(_LOOK_BYTES)
    if not data.strip():
        raise BadContent("is empty" if not data else "has nothing but white space")
    if encoding == "utf-8":
        mark = next((name for bom, name in _MARKS.items() if data.startswith(bom)), None)
        if mark is not None:
            raise WrongEncoding(f"is {mark.upper()}, not UTF-8; set corpus.encoding = {mark}")
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(data)
    except UnicodeError as error:
        if _is_binary(data):
            raise BadContent("is binary, not text") from None
        start = getattr(error, "start", 0)
        raise WrongEncoding(
            f"isn't {encoding.upper()} (byte {start:,} is 0x{data[start]:02x}); {advice(encoding)}"
        ) from None
    if _is_binary(text.encode("utf-8", "replace")):
        raise BadContent("is binary, not text")
    return not text.isascii()


def _is_binary(data: bytes) -> bool:
    return b"\0" in data or sum(map(data.count, _NO_TEXT)) > _LARGEST_CONTROL_SHARE * len(data)


def advice(encoding: str) -> str:
    """What to set where text isn't in `encoding`; which one it is in, only who has the files can know."""
    if encoding != "utf-8":
        return "set corpus.encoding to what the files are in"
    return (
        "set corpus.encoding to what the files are in, such as cp1252 (Western European, Latin-1 too), "
        "cp1251 (Cyrillic), gb18030 (Chinese), shift_jis (Japanese) or utf-16"
    )
