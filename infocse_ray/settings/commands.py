"""Settings of the commands beside runs: `infocse prepare`, `pairs`, `evaluate`, `runs` and `clean`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from infocse_ray.settings.corpus import Corpus
from infocse_ray.settings.section import Fraction, Metric, OnGpu, Section, Workers


class Prepare(Section):
    """The corpus stage alone."""

    model: str = Field(description="Encoder whose tokenizer is used: a folder, a URI or a hub name.")
    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")
    list_rejected: bool = Field(default=False, description="Print every row set aside: file, row, id, reason.")
    corpus: Corpus


class LookAtPairs(Section):
    """Look at an encoder's pairs."""

    model: str = Field(description="Encoder that annotates: a folder, a URI or a hub name.")
    documents: int = Field(default=500, ge=2, description="About how many documents to look at, drawn by hash.")
    show: int = Field(default=12, ge=0, description="Trained pairs to print.")
    seed: int = Field(default=42, ge=0, description="Of the pairs drawn.")
    pooling: Literal["auto", "mean", "cls"] = Field(default="auto", description="As encoder.pooling of pretrain.")
    max_length: int = Field(default=32, ge=4, description="As encoder.max_length of pretrain.")
    precision: Literal["auto", "fp32", "bf16"] = Field(default="auto", description="As in pretrain.")
    similarity: Literal["dot", "cosine"] = Field(default="cosine", description="As train.similarity of pretrain.")
    k: int = Field(default=1, ge=1, description="As annotate.k of pretrain.")
    mutual: bool = Field(default=False, description="As annotate.mutual.")
    min_edge_quantile: Fraction = Field(
        default=0.0, description="As annotate.min_edge_quantile, taken over these documents."
    )
    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")
    corpus: Corpus


class Evaluate(Section):
    """Score an encoder."""

    model: str = Field(description="Encoder to score: a folder, a URI or a hub name.")
    compare: str | None = Field(default=None, description="Another encoder, to put beside it.")
    metric: Metric = Field(default="recall@5", description="What two encoders are compared by.")
    split: Literal["all", "train", "valid", "test"] = Field(
        default="all", description="Whose documents ask; candidates are always the counterparts of all splits."
    )
    on: Literal["auto", "counterpart", "sentence", "halves"] = Field(
        default="auto",
        description="What a document must find, as validate.on of pretrain; `auto`: its counterpart if there are "
        "any, else a sentence that it is without.",
    )
    seed: int = Field(default=42, ge=0, lt=2**31, description="Draws the sentences that documents must find.")
    sts: str | None = Field(
        default=None,
        description="File of sentence pairs to see general ability by, as validate.sts of pretrain.",
    )
    pooling: Literal["auto", "mean", "cls"] = Field(default="auto", description="As encoder.pooling of pretrain.")
    max_length: int = Field(default=32, ge=4, description="As encoder.max_length of pretrain.")
    document_prompt: str | None = Field(default=None, description="As encoder.document_prompt of pretrain.")
    query_prompt: str | None = Field(default=None, description="As encoder.query_prompt of pretrain.")
    precision: Literal["auto", "fp32", "bf16"] = Field(default="auto", description="As in pretrain.")
    similarity: Literal["dot", "cosine"] = Field(
        default="cosine",
        description="`cosine` normalises vectors even if the encoder's folder doesn't say so; `dot` leaves them.",
    )
    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")
    num_workers: Workers = Field(default="auto", description="Workers. `auto`: one a GPU, one on CPUs.")
    use_gpu: OnGpu = Field(default="auto", description="`auto`: when the cluster has GPUs.")
    corpus: Corpus

    @property
    def place(self) -> str:
        """Whose documents ask, as the corpus is prepared: asking of all is asking of one split that all are in."""
        return "train" if self.split == "all" else self.split


class ListRuns(Section):
    """The runs of a storage."""

    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")


class Clean(Section):
    """What no run of a storage refers to."""

    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")
    runs: list[str] = Field(
        default=[], description="Runs to remove, by name (a,b), with what only they refer to. Default: none."
    )
    yes: bool = Field(default=False, description="Remove what is listed; without it nothing is changed.")

    @field_validator("runs", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        return [name.strip() for name in value.split(",")] if isinstance(value, str) else value
