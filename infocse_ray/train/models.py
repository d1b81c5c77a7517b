"""The encoders that a training stage keeps under `models/`: of its best step, and between that and its start."""

from __future__ import annotations

from collections.abc import Callable, Collection

from infocse_ray.distributed.collectives import rank
from infocse_ray.encoder.checkpoint import EncoderFolder, bring_to_storage
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

    def begin(self, encoder: SentenceEncoder, name: str) -> Callable[[], None] | None:
        """Write an encoder, as it is now, on this machine.

        Returns:
            What brings it here, in any thread; nothing is left here then of one that was damaged. None: another
            worker's does.
        """
        if rank() != 0:
            return None
        place = self._folder / name
        bring = bring_to_storage(encoder, place)

        def replace() -> None:
            place.delete()
            bring()

        return replace

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
