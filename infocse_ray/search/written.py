"""What `infocse embed` wrote, finished, with the encoder that made it."""

from __future__ import annotations

import os
from typing import NamedTuple

from infocse_ray.embedding.index import Embedding, made_by_embed, read_embedding
from infocse_ray.embedding.sampled import Sampled, read_sampled
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.settings import Encoder
from infocse_ray.settings.text import brief
from infocse_ray.stages.stage import read_whole_stage
from infocse_ray.storage.folder import Storage

_NOT_VECTORS = {"manifest.json": "the folder of a run", "config.json": "an encoder"}
"""A file, and what a folder with it is."""


class Written(NamedTuple):
    """Vectors that can be searched."""

    folder: Storage
    embedding: Embedding
    fingerprint: str
    """Of the vectors."""
    sentences: int
    """How many its documents have; whether it has their vectors says `embedding.sentences`."""
    sampled: Sampled | None
    """Documents by which words and best sentences are weighed; None where an earlier version wrote the index."""
    encoder: SentenceEncoder
    where: str
    """What error messages call it."""

    @classmethod
    def read(cls, folder: str | os.PathLike[str], setting: str, needs_sentences: bool) -> Written:
        """Read all but the vectors.

        Args:
            folder: or URI, the `output` of `infocse embed`.
            setting: what error messages call it.
            needs_sentences: whether one without vectors of sentences is refused.

        Raises:
            ValueError: nothing finished is there, it has no sentences, or `folder` is no path.
            DamagedFile: a file is missing, cut off, or not as it was written.
        """
        if not isinstance(folder, str | os.PathLike):
            raise ValueError(f"{setting} = {brief(folder)}: give the folder, or URI, that `infocse embed` wrote")
        output = Storage.of_runs(os.fspath(folder), setting)
        where = f"{setting} = {str(output)!r}"
        with made_by_embed(where):
            try:
                embedding = read_embedding(output)
            except FileNotFoundError:
                is_what = next((what for name, what in _NOT_VECTORS.items() if (output / name).exists()), None)
                there = f"is {is_what}, and no" if is_what else "no"
                raise ValueError(f"{where}: {there} vectors are there; `infocse embed` writes them") from None
            try:
                vectors = read_whole_stage(output / "vectors")
            except FileNotFoundError:
                raise ValueError(f"{where}: isn't finished; run its `infocse embed` again, which goes on") from None
            if needs_sentences and not embedding.sentences:
                raise ValueError(f"{where}: has no sentences; embed with --sentences true, to another folder")
            return cls(
                output,
                embedding,
                vectors.fingerprint,
                (vectors.summary or {}).get("sentences", 0),
                read_sampled(output / "vectors"),
                embedding.encoder_folder(output).load(),
                where,
            )

    def check_encoder(self, model: str, setting: str) -> None:
        """See that a model is the one that made it, shaped as it is here.

        Raises:
            ValueError: it isn't.
        """
        own = self.encoder
        shape = Encoder(
            model=model,
            pooling=own.pooling,
            max_length=own.max_length,
            document_prompt=own.prompts.of("document") if own.prompts else None,
            query_prompt=own.prompts.of("query") if own.prompts else None,
        )
        folder = resolve_encoder(model, setting)
        try:
            given = load_encoder(folder, shape, cosine=own.normalize, setting=setting)
        except ValueError as error:  # of length or prompts, say, which are the index's and nobody gave here
            raise ValueError(
                f"{setting} = {model!r}: isn't the encoder that made {self.where}, as which it can't be loaded "
                f"({error}); leave out {setting}"
            ) from error
        if given.fingerprint() != self.embedding.encoder:
            raise ValueError(
                f"{setting} = {model!r}: {self.where} was made by another encoder; embed with this one, to another "
                f"folder, or leave out {setting}"
            )
