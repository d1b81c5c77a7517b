"""The folder `model` of a run: its encoder and card replace the last ones, and what a user put there stays."""

from __future__ import annotations

import tempfile
from pathlib import Path

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.reading import FILE, ReadAs
from infocse_ray.loop.manifest import CARD
from infocse_ray.runtime.progress import say
from infocse_ray.storage.checksums import FOLDER, digest
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted
from infocse_ray.storage.replaced import replace_folder

_CARD, _CARD_BEFORE = "README.md", "README.before.md"


def export(encoder: EncoderFolder, run: Storage, card: str, read: ReadAs, before: dict[str, str]) -> list[str]:
    """Write the folder.

    Args:
        encoder: that is the result.
        run: the run's folder.
        card: its text.
        read: how the run reads documents.
        before: digests of what was exported there last, by the path below the run.

    Returns:
        The names of what was written.
    """
    source, target = encoder.local(), run / "model"
    theirs = [name for name in target.files() if f"model/{name}" not in before] if before else []
    with tempfile.TemporaryDirectory() as temporary:
        (readme := Path(temporary) / _CARD).write_text(redacted(card))
        files = {file.relative_to(source).as_posix(): file for file in sorted(source.rglob("*")) if file.is_file()}
        files.pop(FOLDER, None)  # the manifest has the digests, that of the card too
        read.write(Storage.open(temporary))
        files |= {_CARD: readme, FILE: Path(temporary) / FILE}
        names = list(files)
        written = _written_into(run, before)
        if written is not None and written != readme.read_bytes():  # as an end that was cut off has left it
            files[_CARD_BEFORE] = Path(temporary) / _CARD_BEFORE
            files[_CARD_BEFORE].write_bytes(written)
            say(f"{target / _CARD} was written into, and has the new figures now; what it was is in {_CARD_BEFORE}")
        replace_folder(target, files, key="config.json", keep=theirs)
    return names


def _written_into(run: Storage, before: dict[str, str]) -> bytes | None:
    """The last card, where somebody has changed it since."""
    if CARD not in before or not (run / CARD).exists():
        return None
    content = (run / CARD).read_bytes()
    return None if digest(content).hex() == before[CARD] else content
