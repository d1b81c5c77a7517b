"""Settings of `infocse embed`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field, field_validator, model_validator

from infocse_ray.settings.corpus import Corpus
from infocse_ray.settings.section import DEFAULT_READING, READING, OnGpu, PoolingName, Reading, Section, Workers
from infocse_ray.settings.text import is_utf8

Stored = Literal["fp32", "fp16", "int8"]
MetadataType = Literal["text", "texts", "integer", "number", "boolean", "time"]


def _refuse_name(name: str) -> NoReturn:
    raise ValueError(f"{name!r} can't be asked for by a condition; rename the column")


class EveryDocument(Corpus):
    """corpus: where the documents are and how a row becomes a document; all are embedded, whatever their split."""

    min_sentences: int = Field(default=1, ge=1, description=Corpus.model_fields["min_sentences"].description)
    lanes: Annotated[int, Field(ge=1, le=4096)] | Literal["auto"] = Field(
        default="auto",  # nothing is dealt from lanes here, and a small corpus has few files then
        description="Number of lanes, which is that of the files, or a divisor of it. `auto`: one per MiB of the "
        "source's files, from 4 to 64.",
    )
    metadata: dict[str, MetadataType] = Field(
        default={},
        description="Further columns that go with the vectors, each with its type, such as {url: text, year: integer}: "
        "`text`, `texts` (a list of them), `integer`, `number`, `boolean` or `time` (ISO 8601; UTC where it names no "
        "zone); of a list of names, such as [url, place], each is `text`. Searches show them, and can be limited by "
        "them (`infocse search --where`). Default: none.",
    )

    @field_validator("metadata", mode="before")
    @classmethod
    def _names_alone(cls, metadata: Any) -> Any:
        names = [metadata] if isinstance(metadata, str) else metadata
        if isinstance(metadata, Mapping):
            for name, kind in metadata.items():
                if isinstance(kind, Mapping):  # a dotted name is taken apart, as that of a setting in a section
                    _refuse_name(".".join([str(name), *map(str, kind)][:2]))
        if not isinstance(names, list | tuple):
            return metadata
        if not all(isinstance(name, str) for name in names):
            raise ValueError(
                "give names alone, such as [url, place], or each with its type: {url: text, year: integer}"
            )
        return dict.fromkeys(names, "text")

    @field_validator("metadata")
    @classmethod
    def _names_of_fields(cls, metadata: dict[str, MetadataType]) -> dict[str, MetadataType]:
        for name in metadata:
            if not name.strip() or "." in name or "`" in name or not is_utf8(name):
                _refuse_name(name)
        return dict(sorted(metadata.items()))  # in whatever order they are given the files are the same


class Embed(Section):
    """Write the vectors of a corpus."""

    model: str = Field(description="Encoder: a folder, a URI or a hub name.")
    output: str = Field(
        min_length=1,
        description="Folder or URI (s3://, gs://, ...) that the vectors, their texts and a copy of the encoder go to. "
        "The same command goes on there; other settings need another folder.",
    )
    reuse: str | None = Field(
        default=None,
        min_length=1,
        description="An earlier output, of the same encoder: documents that it has as they are now keep its vectors, "
        "and only the others are embedded. Default: all are.",
    )
    sentences: bool = Field(
        default=False,
        description="Write the vectors of sentences, too. false: of documents only.",
    )
    reading: Reading = Field(default=DEFAULT_READING, description=READING)
    format: Literal["parquet", "lance"] = Field(
        default="parquet",
        description="`parquet`: files that every tool reads; `infocse search` copies them into its engine once. "
        "`lance`: a Lance dataset that all workers write into, which is searched where it is.",
    )
    precision: Stored = Field(
        default="fp32",
        description="How numbers are stored. `int8`: each vector's largest number becomes 127, and a column `scale` "
        "has what one step is worth.",
    )
    dimensions: int | None = Field(
        default=None,
        ge=2,
        description="Keep the first so many numbers of each sentence's vector, scaled to length 1 again where "
        "similarity is the cosine. Best for encoders that are whitened or were trained for it (Matryoshka). "
        "Default: all.",
    )
    compute: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="Same as encoder.precision of `infocse pretrain`."
    )
    pooling: PoolingName = Field(default="auto", description="Same as encoder.pooling of `infocse pretrain`.")
    max_length: int = Field(default=32, ge=4, description="Same as encoder.max_length of `infocse pretrain`.")
    document_prompt: str | None = Field(
        default=None, description="Same as encoder.document_prompt of `infocse pretrain`."
    )
    query_prompt: str | None = Field(
        default=None,
        description="Same as encoder.query_prompt of `infocse pretrain`; `infocse search` puts it before queries.",
    )
    similarity: Literal["dot", "cosine"] = Field(
        default="cosine",
        description="`cosine` normalises vectors even if the encoder's folder doesn't say so; `dot` leaves them as "
        "they are.",
    )
    storage: str = Field(
        default="runs", min_length=1, description="Folder or URI that runs share; the tokenised corpus goes there."
    )
    num_workers: Workers = Field(
        default="auto",
        description="Number of embedding actors. `auto`: one per GPU, or one per CPU core if there are no GPUs.",
    )
    use_gpu: OnGpu = Field(default="auto", description="`auto`: use GPUs if the cluster has any.")
    corpus: EveryDocument

    @model_validator(mode="after")
    def _what_lance_searches(self) -> Embed:
        if self.format == "lance" and self.precision == "int8":
            raise ValueError(
                "precision = int8: Lance searches floating-point vectors only; use fp16, or --format parquet"
            )
        return self
