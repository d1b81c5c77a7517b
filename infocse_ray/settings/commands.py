"""Settings of the commands beside runs: `infocse prepare`, `pairs`, `runs` and `clean`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from infocse_ray.settings.corpus import Corpus
from infocse_ray.settings.section import PoolingName, Section, parts


class Prepare(Section):
    """The corpus stage alone."""

    model: str = Field(description="Encoder whose tokenizer is used: a folder, a URI or a hub name.")
    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")
    list_rejected: bool = Field(
        default=False, description="Print every row that was set aside: its file, row, id and the reason."
    )
    beir: str | None = Field(
        default=None,
        description="Folder to write the corpus to in BEIR's layout as well: corpus.jsonl with the documents, "
        "queries.jsonl with their counterparts, and qrels/<split>.tsv, which says what belongs together. `infocse "
        "evaluate --suite beir` and other software read it.",
    )
    corpus: Corpus


class LookAtPairs(Section):
    """Look at an encoder's pairs."""

    model: str = Field(description="Encoder that annotates: a folder, a URI or a hub name.")
    documents: int = Field(default=500, ge=2, description="About how many documents to look at, drawn by hash.")
    show: int = Field(default=12, ge=0, description="Trained pairs to print.")
    seed: int = Field(default=42, ge=0, description="Seed for drawing the pairs.")
    pooling: PoolingName = Field(default="auto", description="Same as encoder.pooling of `infocse pretrain`.")
    max_length: int = Field(default=32, ge=4, description="Same as encoder.max_length of `infocse pretrain`.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="Same as encoder.precision of `infocse pretrain`."
    )
    similarity: Literal["dot", "cosine"] = Field(
        default="cosine", description="Same as train.similarity of `infocse pretrain`."
    )
    k: int = Field(
        default=1,
        ge=1,
        description="Same as annotate.k of `infocse pretrain`: to how many of its most similar sentences each "
        "sentence is linked.",
    )
    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")
    corpus: Corpus


class ListRuns(Section):
    """The runs of a storage."""

    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")


class Clean(Section):
    """What no run of a storage refers to."""

    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")
    runs: list[str] = Field(
        default=[], description="Names of runs to remove (a,b), together with what only they refer to. Default: none."
    )
    yes: bool = Field(default=False, description="Remove what is listed. Without it nothing is changed.")

    @field_validator("runs", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        return parts(value)
