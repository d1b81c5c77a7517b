"""The encoders that a training stage keeps under `models/`: of its best step, and between that and its start."""

from __future__ import annotations

from collections.abc import Collection

from infocse_ray.distributed.collectives import rank
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.storage.checksums import FOLDER, digest
from infocse_ray.storage.folder import Storage

INTERPOLATED = "interpolated"
"""The folder of an encoder between the start and a step's."""


def model_name(step: int) -> str:
    """The folder of the encoder of a step."""
    return f"step-{step:08d}"


class SavedModels:
    """The folder `models` of a stage; worker 0 alone writes it."""

    def __init__(self, stage: Storage) -> None:
        """Those of the stage in this folder."""
        self._folder = stage / "models"

    def save(self, encoder: SentenceEncoder, name: str) -> None:
        """Write an encoder; nothing is left there of one that was damaged."""
        if rank() == 0:
            (self._folder / name).delete()
            EncoderFolder.save(encoder, self._folder / name)

    def load(self, name: str, max_length: int) -> SentenceEncoder:
        """Read one, on any worker."""
        folder = self._folder / name
        # Named by its content: a training begun anew in this place may have saved another encoder of the same step.
        named = digest((folder / FOLDER).read_bytes()).hex()
        return EncoderFolder(folder, named, max_length).load()

    def drop_all_but(self, names: Collection[str]) -> None:
        """Delete the others."""
        if rank() == 0:
            for name in {file.split("/")[0] for file in self._folder.files()} - set(names):
                (self._folder / name).delete()
