"""An encoder saved in the run's storage, loadable by any worker on any node."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from infocse_ray.encoder.layout import read_layout, read_whitening
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.prompts import Prompts
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.settings import Encoder, fingerprint
from infocse_ray.storage.checksums import FOLDER, OTHER, damaged, differs, sign_folder, verified
from infocse_ray.storage.errors import explained
from infocse_ray.storage.folder import Storage

_SAID_BY_LAYOUT = {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "README.md"}
"""Files of a folder whose content `read_layout` gives, or that compute nothing; with whitening the first say more."""


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

    def before_whitening(self) -> str:
        """Names what it computes before its whitening: the same for folders that differ in nothing but that.

        A folder that has no digests of its files has a name of its own.

        Raises:
            DamagedFile: a file isn't as it was saved.
        """
        path = self.local()
        layout = read_layout(path)
        if not (path / FOLDER).exists():
            return fingerprint("before whitening", self.without_whitening().fingerprint)
        modules = {"1_Pooling", *(module for _, module in layout.modules)}
        files = json.loads((path / FOLDER).read_bytes())["files"]
        kept = {
            name: digest
            for name, digest in files.items()
            if (name.split("/")[0] in modules if "/" in name else name not in _SAID_BY_LAYOUT)
        }
        said = layout._replace(whitening=None, prompts=Prompts({})), layout.prompts.config()
        return fingerprint("before whitening", sorted(kept.items()), repr(said), self.max_length)

    def whitening(self) -> Whitening | None:
        """What comes last in it, on this machine; None: nothing, or it is loaded without.

        Raises:
            DamagedFile: a file isn't as it was saved.
        """
        if self.plain:
            return None
        path = self.local()
        return None if (place := read_layout(path).whitening) is None else read_whitening(path / place)

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
            ValueError: there is no such folder on this machine.
        """
        wrong = "", ""
        for _ in range(2):
            path = self.folder.local_copy(self.fingerprint)
            if not path.exists():
                raise ValueError(
                    f"storage: {path} isn't there on {socket.gethostname()}; mount one folder under this path on every "
                    "node, or give a URI that all of them reach"
                )
            if not (path / FOLDER).exists():  # not saved here, or by a version before this one
                return path
            signed = verified((path / FOLDER).read_bytes())
            wrong = (FOLDER, OTHER) if signed is None else differs(path, signed)
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
        bring_to_storage(encoder, folder, like)()
        return cls(folder, encoder.fingerprint(), encoder.max_length)


def bring_to_storage(encoder: SentenceEncoder, folder: Storage, like: Storage | None = None) -> Callable[[], None]:
    """Write the encoder into a temporary folder of this machine.

    Args:
        encoder: as it is now.
        folder: where it is to come to.
        like: see `EncoderFolder.save`.

    Returns:
        What brings it to storage, once, in any thread; it may raise what `EncoderFolder.save` does.

    Raises:
        NoSpace: there is no room on this machine.
    """
    weights = sum(weight.numel() * weight.element_size() for weight in encoder.state_dict().values())
    temporary = tempfile.TemporaryDirectory()
    with explained(temporary.name, weights):
        encoder.save(Path(temporary.name))
        sign_folder(Path(temporary.name))

    def bring() -> None:
        with temporary as written:
            folder.upload(written, like)

    return bring
