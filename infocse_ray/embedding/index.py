"""What `infocse embed` leaves in its output: what was embedded and how, the encoder, and the vectors.

- `embedding.json`: what was asked for, written first.
- `encoder/model/`: the encoder, as it embedded.
- `vectors/stage.json`: counts, and the size of every file, written last.
- `vectors/documents/`: Parquet, a file for each shard of the corpus; `vectors/sentences/`, where they were asked for.
- `documents.lance`, `sentences.lance`: instead of these, with `format: lance`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.errors import DamagedFile
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Reading
from infocse_ray.settings.embed import Embed, MetadataType, Stored
from infocse_ray.storage.checksums import SAME_COMMAND, checked, mark_of, read_checked, verified
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted

_FORMAT = 1
"""Counted up when the same settings begin to give other vectors or texts."""

METADATA_COLUMN = "metadata"
"""Of documents and sentences, and of their texts on the way."""
Over = Literal["documents", "sentences"]
OVER: tuple[Over, Over] = ("documents", "sentences")


class Embedding(NamedTuple):
    """What was embedded, and how; names an output's content."""

    model: str
    """As it was given, without credentials: for people."""
    encoder: str
    """Fingerprint of the encoder: weights, pooling, max_length, prompts, ..."""
    corpus: str
    """Fingerprint of the corpus: files and settings."""
    max_length: int
    dimension: int
    """Numbers of a vector."""
    dimensions: int | None
    """How many were asked for; None: all of the encoder's."""
    precision: Stored
    compute: str
    sentences: bool
    format: Literal["parquet", "lance"]
    reading: Reading = "sentences"
    metadata: dict[str, MetadataType] = {}  # noqa: RUF012
    """Name to type."""

    @classmethod
    def of(cls, settings: Embed, encoder: str, corpus: str, dimension: int) -> Embedding:
        """What the settings ask for."""
        return cls(
            redacted(settings.model),
            encoder,
            corpus,
            settings.max_length,
            dimension if settings.dimensions is None else settings.dimensions,
            settings.dimensions,
            settings.precision,
            settings.compute,
            settings.sentences,
            settings.format,
            settings.reading,
            settings.corpus.metadata,
        )

    def identity(self) -> tuple[Any, ...]:
        """What a fingerprint of the vectors is made of."""
        *said, reading, metadata = self._replace(model="")
        since = [*([reading] if reading != "sentences" else []), *([metadata] if metadata else [])]
        return "embed", _FORMAT, *said, *since  # as before there were others

    def begin(self, output: Storage) -> bool:
        """Make the output this embedding's; one that was asked for and that has no vectors yet gives way.

        Returns:
            Whether it is known to be; else `embedding.json` is damaged, and `know_again` tells by what was made.

        Raises:
            ValueError: it is another's, or has what nothing embedded made, which would be lost, or mixed with vectors.
        """
        file = output / "embedding.json"
        content = verified(file.read_bytes()) if (is_there := file.exists()) else None
        made = any((output / made).exists() for made in ("encoder", "vectors"))
        if content is None and made and is_there:
            return False
        if content is None and (others := sorted(name for name in output.files() if not name.startswith("."))):
            raise ValueError(
                f"output = {str(output)!r}: there is {others[0].partition('/')[0]} in it, which `infocse embed` "
                "didn't make; give a folder of its own"
            )
        if content is None:
            file.write_json(checked(self._asdict()))
            return True
        there = Embedding(**content)
        if there.identity() != self.identity() and not _has_vectors(output):
            (output / "encoder").delete()
            (output / "vectors").delete()
            file.write_json(checked(self._asdict()))
            return True
        for name in _TOLD_APART:
            if (old := getattr(there, name)) != (new := getattr(self, name)):
                shown = _LONG.get(name, (old, new))
                fix = "give another folder, or remove that one"
                if name == "corpus" and there.unlike(self) is None and (output / "vectors" / "stage.json").exists():
                    fix = f"give another folder, for which with reuse = {str(output)!r} only what changed is embedded"
                raise ValueError(
                    f"output = {str(output)!r}: has vectors of {name} {_shown(shown[0])}, not {_shown(shown[1])}; {fix}"
                )
        return True

    def know_again(self, output: Storage, begun: bool) -> None:
        """Write a damaged `embedding.json` again.

        Args:
            output: that has it.
            begun: whether its vectors are of these settings, by what names their stage.

        Raises:
            ValueError: they aren't, or nobody knows.
        """
        if not begun:
            raise ValueError(
                f"output = {str(output)!r}: its embedding.json is damaged, and what its vectors are nobody knows; the "
                "command that made them writes it again; give this one another folder"
            )
        say(f"{output / 'embedding.json'} was damaged; it is written again")
        (output / "embedding.json").write_json(checked(self._asdict()))
        mark_of(output / "embedding.json").delete()

    def unlike(self, asked: Embedding) -> str | None:
        """What of these vectors others of the same documents that are asked for would differ in; None: nothing."""
        for name in ("encoder", "precision", "dimensions", "compute", "reading"):
            if (own := getattr(self, name)) != getattr(asked, name):
                return _LONG[name][0] if name == "encoder" else f"{name} {_shown(own)}"
        return "documents alone" if asked.sentences and not self.sentences else None

    def encoder_folder(self, output: Storage) -> EncoderFolder:
        """The copy of the encoder."""
        return EncoderFolder(output / "encoder" / "model", self.encoder, self.max_length)


_BEFORE_VECTORS = ("started.json", "texts")


def _has_vectors(output: Storage) -> bool:
    """Whether any were written: texts go before them, which the corpus may turn out to have changed under."""
    return any(name.partition("/")[0] not in _BEFORE_VECTORS for name in (output / "vectors").files())


_TOLD_APART = (
    "encoder",
    "corpus",
    "precision",
    "dimensions",
    "sentences",
    "format",
    "compute",
    "reading",
    "metadata",
)
"""What another output is needed for."""
_LONG = {"encoder": ("another model (or max_length, pooling or prompts)", "this one"), "corpus": ("another", "this")}


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "all" if value is None else str(value)


def read_embedding(output: Storage) -> Embedding:
    """What an output was made of.

    Raises:
        FileNotFoundError: nothing was embedded there.
        DamagedFile: `embedding.json` isn't as it was written.
    """
    return Embedding(**read_checked(output / "embedding.json"))


@contextlib.contextmanager
def made_by_embed(where: str) -> Iterator[None]:
    """What is damaged isn't made again by whoever reads it.

    Raises:
        DamagedFile: the same, which says who makes it again.
    """
    try:
        yield
    except DamagedFile as error:
        what = str(error).removesuffix(SAME_COMMAND)
        raise DamagedFile(f"{where}: {what}; run its `infocse embed` again, or copy it whole") from error
