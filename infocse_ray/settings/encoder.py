"""The encoder, and how it annotates."""

from __future__ import annotations

from typing import Annotated as Bounded
from typing import Literal

from pydantic import Field, field_validator, model_validator

from infocse_ray.settings.section import Fraction, OnGpu, Section, Workers


class Encoder(Section):
    """encoder: the sentence encoder f(.)."""

    model: str = Field(
        description="Hugging Face or sentence-transformers encoder: a folder, a URI or a hub name. Weights "
        "must be safetensors; remote code is never run."
    )
    pooling: Literal["auto", "mean", "cls"] = Field(
        default="auto",
        description="`auto`: what the sentence-transformers folder says; if it says nothing, what train.method "
        "publishes (cls: simcse, ict, conpono; mean: the others).",
    )
    max_length: int = Field(
        default=32, ge=4, description="Tokens a sentence, special tokens included; the rest is cut."
    )
    document_prompt: str | None = Field(
        default=None,
        description="Put before every sentence of a document, such as `passage: `, and exported with the encoder. "
        "Default: what its folder says (config_sentence_transformers.json); an empty one: nothing.",
    )
    query_prompt: str | None = Field(default=None, description="The same before every counterpart, such as `query: `.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto",
        description="`auto`: bf16 on devices that multiply bf16 in hardware (GPUs, CPUs with AVX512-BF16 or AMX), fp32 "
        "elsewhere. Weights and optimiser state are always fp32 in training and in the exported model.",
    )
    whiten: Literal["auto", "off"] | Bounded[float, Field(ge=0.0, le=2.0)] = Field(
        default="auto",
        description="Whitening: a linear map after pooling, fitted on the corpus whenever the encoder has changed, and "
        "part of the exported encoder. A power from 0 (centred alone) to 2 (1: BERT-whitening); `auto`: the power of "
        "0, 0.25, ... 1.25 with which validation documents best find a sentence taken out of them, where vectors are "
        "compared by cosine (whitened ones are), and none where by inner product, as in the paper; `off`: none is "
        "fitted, and one that the encoder came with stays as it is.",
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        description="Dimensions of the exported vectors: the first principal ones of whitening. Default: all.",
    )

    @field_validator("whiten", mode="before")
    @classmethod
    def _switch(cls, value: object) -> object:
        # YAML 1.1 reads `off` as false, which the command line hands on as text; a float would take true for 1.
        value = {"false": False, "true": True}.get(value, value) if isinstance(value, str) else value
        return ("auto" if value else "off") if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _dimensions_of_whitening(self) -> Encoder:
        if self.dimensions is not None and self.whiten == "off":
            raise ValueError(
                f"encoder.dimensions = {self.dimensions}: with encoder.whiten = off there are no principal dimensions; "
                "set encoder.whiten to auto, or to 0 to centre and cut alone"
            )
        return self


class Annotate(Section):
    """annotate: embedding the corpus and clustering inside each document (IDC)."""

    renamed = {"method": "clustering"}  # noqa: RUF012

    clustering: Literal["partition", "kmeans"] = Field(
        default="partition",
        description="`partition`: IDC, the connected components of a document's most similar sentences. `kmeans`: "
        "sentences of a document that are nearest to the same of `kmeans_clusters` centroids of the whole corpus "
        "form a cluster; k then means nothing.",
    )
    k: int = Field(default=1, ge=1, description="Top-K edges a sentence keeps (Eq. 3).")
    mutual: bool = Field(
        default=False, description="Keep an edge if it is among the top-K of both its ends, not of either (Eq. 3)."
    )
    min_edge_quantile: Fraction = Field(
        default=0.0,
        description="Share of the edges to drop, the least similar of the whole corpus: 0.75 keeps the most similar "
        "quarter, to 1/2,048 of a weight, so that a document whose sentences don't belong together gives no pairs. 0: "
        "none, as in the paper.",
    )
    kmeans_clusters: int = Field(default=10, ge=1, description="Centroids of `kmeans`.")
    kmeans_sample: int = Field(
        default=50_000, ge=1, description="About how many sentences, drawn by hash, the centroids are fitted on."
    )
    first_encoder: str | None = Field(
        default=None,
        description="Another encoder that annotates the first iteration, as encoder.model names one; its tokenizer may "
        "be another, its pooling is what its folder says. Default: the encoder that is trained.",
    )
    num_workers: Workers = Field(
        default="auto", description="Embedding actors. `auto`: one a GPU, or one a CPU core where there is none."
    )
    use_gpu: OnGpu = Field(default="auto", description="`auto`: when the cluster has GPUs.")

    @model_validator(mode="after")
    def _of_one_method(self) -> Annotate:
        if self.clustering == "kmeans":
            for name in ("mutual", "min_edge_quantile"):
                if value := getattr(self, name):
                    raise ValueError(
                        f"annotate.{name} = {str(value).lower()}: annotate.clustering = kmeans has no edges; leave "
                        "it out or set annotate.clustering to partition"
                    )
            if self.kmeans_sample < self.kmeans_clusters:
                raise ValueError(
                    f"annotate.kmeans_sample = {self.kmeans_sample}: fewer sentences than annotate.kmeans_clusters = "
                    f"{self.kmeans_clusters}; raise it"
                )
        return self
