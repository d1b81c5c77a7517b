"""An encoder saved in the run's storage, loadable by any worker on any node."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from infocse_ray.encoder.layout import read_layout
from infocse_ray.encoder.model import SentenceEncoder, load_encoder
from infocse_ray.settings import Encoder, fingerprint
from infocse_ray.storage.checksums import FOLDER, damaged, differs, sign_folder, verified
from infocse_ray.storage.errors import explained
from infocse_ray.storage.folder import Storage


class EncoderFolder(NamedTuple):
    """Where an encoder was saved, and the fingerprint of what it computes."""

    folder: Storage
    fingerprint: str
    max_length: int
    plain: bool = False
    """Whether it is loaded without its whitening."""

    def without_whitening(self) -> EncoderFolder:
        """The same as it is before whitening, by a fingerprint of its own; the files are shared."""
        if self.plain:
            return self
        return self._replace(fingerprint=fingerprint("without whitening", self.fingerprint), plain=True)

    def load(self) -> SentenceEncoder:
        """Load it on this machine, in fp32.

        Raises:
            DamagedFile: a file isn't as it was saved.
        """
        path = self.local()
        settings = Encoder(model=str(self.folder), max_length=self.max_length)  # pyright: ignore[reportCallIssue]
        return load_encoder(path, settings, cosine=read_layout(path).normalize, whitening=not self.plain)

    def local(self) -> Path:
        """The folder on this machine, where every file is as it was saved.

        Raises:
            DamagedFile: one isn't.
        """
        wrong = "", ""
        for _ in range(2):
            path = self.folder.local_copy(self.fingerprint)
            if not (path / FOLDER).exists():  # not saved here, or by a version before this one
                return path
            signed = verified((path / FOLDER).read_bytes())
            wrong = (FOLDER, "its content isn't what was written") if signed is None else differs(path, signed)
            if wrong is None:
                return path
            if path == Path(self.folder.path):
                break
            shutil.rmtree(path)  # a copy, which may be all that is damaged
        raise damaged(self.folder / wrong[0], wrong[1])

    @classmethod
    def save(cls, encoder: SentenceEncoder, folder: Storage, like: Storage | None = None) -> EncoderFolder:
        """Write the encoder to storage.

        Args:
            encoder: what is saved.
            folder: where to.
            like: where an encoder was saved that may have the same weights: on local disk these are shared.

        Raises:
            NoSpace: there, or on this machine's temporary folder, where it is written first, there is no room.
        """
        weights = sum(weight.numel() * weight.element_size() for weight in encoder.state_dict().values())
        with tempfile.TemporaryDirectory() as temporary:
            with explained(temporary, weights):
                encoder.save(Path(temporary))
                sign_folder(Path(temporary))
            folder.upload(temporary, like)
        return cls(folder, encoder.fingerprint(), encoder.max_length)
