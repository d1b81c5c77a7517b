"""An encoder saved in the run's storage, loadable by any worker on any node."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from infocse_ray.encoder.layout import read_layout
from infocse_ray.encoder.model import SentenceEncoder, load_encoder
from infocse_ray.settings import Encoder
from infocse_ray.storage import Storage
from infocse_ray.storage_errors import explained


class EncoderFolder(NamedTuple):
    """Where an encoder was saved, and the fingerprint of what it computes."""

    folder: Storage
    fingerprint: str
    max_length: int

    def load(self) -> SentenceEncoder:
        """Load it on this machine, in fp32."""
        path = self.folder.local_copy(self.fingerprint)
        settings = Encoder(model=str(self.folder), max_length=self.max_length)  # pyright: ignore[reportCallIssue]
        return load_encoder(path, settings, cosine=read_layout(path).normalize)

    @classmethod
    def save(cls, encoder: SentenceEncoder, folder: Storage) -> EncoderFolder:
        """Write the encoder to storage.

        Raises:
            NoSpace: there, or on this machine's temporary folder, where it is written first, there is no room.
        """
        weights = sum(weight.numel() * weight.element_size() for weight in encoder.parameters())
        with tempfile.TemporaryDirectory() as temporary:
            with explained(temporary, weights):
                encoder.save(Path(temporary))
            folder.upload(temporary)
        return cls(folder, encoder.fingerprint(), encoder.max_length)
