"""TensorBoard's files of trainings, for those who write and those who read them: their names and their records."""

from __future__ import annotations

import struct

_IDENTITY = 12
"""Characters of a stage's fingerprint that tell it from others that began in the same folder."""


def file_suffix(stage: str, fingerprint: str) -> str:
    """What the names of a stage's event files end with.

    Args:
        stage: its folder, relative to the storage.
        fingerprint: its identity: what is left unfinished in a folder makes room there for a stage of other settings.
    """
    return f"{early_suffix(stage)}.{fingerprint[:_IDENTITY]}"


def suffixes(stage: str, fingerprint: str) -> tuple[str, str]:
    """As `file_suffix`, of files of any version."""
    return file_suffix(stage, fingerprint), early_suffix(stage)


def early_suffix(stage: str) -> str:
    """As `file_suffix`, of a version that named files by the folder alone."""
    return f".{stage.replace('/', '.')}"


def whole_records(content: bytes) -> bytes:
    """A file without the record that a killed command wrote half of; files without one may stand behind each other."""
    end = 0
    while end + 12 <= len(content):
        (size,) = struct.unpack_from("<Q", content, end)
        if end + 16 + size > len(content):
            break
        end += 16 + size
    return content[:end]
