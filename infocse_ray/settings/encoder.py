"""The encoder, and how it annotates."""

from __future__ import annotations

from typing import Annotated as Bounded
from typing import Literal

from pydantic import Field, field_validator, model_validator

from infocse_ray.settings.section import EngineName, OnGpu, PoolingName, Section, Workers

OF_CLUSTERING = {"partition": ("k",), "kmeans": ("kmeans_clusters", "kmeans_sample")}
"""Settings of `Annotate` that one way of clustering alone reads."""


class Encoder(Section):
    """encoder: the sentence encoder f(.)."""

    model: str = Field(
        description="Hugging Face or sentence-transformers encoder: a folder, a URI or a hub name. Weights "
        "must be safetensors; remote code is never run."
    )
    pooling: PoolingName = Field(
        default="auto",
        description="How token vectors become a sentence vector: their mean, the first or the last of them; as "
        "sentence-transformers has them, the largest values, the mean that weighs later tokens more, the sum over the "
        "root of their number. `auto`: as the sentence-transformers folder says, else as published with train.method "
        "(cls: simcse, ict, conpono, tsdae; mean: the others, and for `infocse finetune`); a language model that reads "
        "from left to right must be told.",
    )
    max_length: int = Field(
        default=32, ge=4, description="Most tokens of a sentence, special tokens included; the rest is cut."
    )
    document_prompt: str | None = Field(
        default=None,
        description="Text put before every sentence of a document, such as `passage: `, and exported with the "
        "encoder. Default: the one in the encoder's folder (config_sentence_transformers.json). Empty: none.",
    )
    query_prompt: str | None = Field(
        default=None,
        description="Text put before every counterpart (the headline, query, ... of a document), such as `query: "
        "`. Default: as for document_prompt.",
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto",
        description="`auto`: bf16 on devices that multiply bf16 in hardware (GPUs, CPUs with AVX512-BF16 or AMX), fp32 "
        "elsewhere. Weights and optimiser state are always fp32 in training and in the exported model.",
    )
    whiten: Literal["auto", "off"] | Bounded[float, Field(ge=0.0, le=2.0)] = Field(
        default="auto",
        description="Whitening: a linear map after pooling, fitted on the corpus whenever the encoder has changed, "
        "and exported with the encoder. A number from 0 (centring only) to 2 is its power; 1 is BERT-whitening. "
        "`auto` tries the powers 0, 0.25, ... 1.25 and takes the one with which validation documents best find a "
        "sentence taken out of them; if vectors are compared by inner product, as in the paper, it fits none "
        "(whitened vectors are compared by cosine), and where validation finds the encoder worse with it beyond luck, "
        "it is left out (not with train.never_worse = false, train.whitened or encoder.dimensions). `off` fits none, "
        "and one that the encoder came with stays as it is.",
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        description="Dimensions of the exported vectors: the first principal components of whitening. Default: all.",
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
    removed = {"mutual": False, "min_edge_quantile": 0.0}  # noqa: RUF012

    clustering: Literal["partition", "kmeans"] = Field(
        default="partition",
        description="How a document's sentences are clustered. `partition`: intra-document clustering (IDC), the "
        "connected components of the graph of most similar sentences. `kmeans`: sentences of a document that are "
        "nearest to the same one of `kmeans_clusters` centroids of the whole corpus form a cluster; k is then not "
        "used.",
    )
    k: int = Field(
        default=1,
        ge=1,
        description="To how many of its most similar sentences each sentence keeps an edge (top-K, Eq. 3).",
    )
    kmeans_clusters: int = Field(default=10, ge=1, description="Number of centroids of `kmeans`.")
    kmeans_sample: int = Field(
        default=50_000, ge=1, description="About how many sentences, drawn by hash, the centroids are fitted on."
    )
    first_encoder: str | None = Field(
        default=None,
        description="Another encoder that annotates the first iteration, given like encoder.model; it uses its own "
        "tokenizer, and the pooling its folder says. Default: the encoder that is trained.",
    )
    share: Bounded[float, Field(gt=0.0, le=1.0)] | Literal["auto"] = Field(
        default="auto",
        description="Share of the corpus that an iteration annotates, another one each time, drawn by hash: files of "
        "each lane, 4 at least where there are as many, and a part of their documents; at least so many that training "
        "reads 8 pairs of each, 4,096, and 32 for each pair of a batch, or else 320 a lane and 5 for each pair. "
        "`auto`: as much as suffices for train.max_steps or train.max_tokens, with a margin of half; all of a corpus "
        "of few files that isn't twice as large.",
    )
    engine: EngineName | Literal["auto"] = Field(
        default="auto",
        description="What computes the encoder's backbone here. `torch`; `openvino` (on CPUs, needs the extra of that "
        "name): the same vectors faster, from a graph that is converted once; `openvino_int8`: products in 8 bits, "
        "refused where over 3 % of a sample's top-K edges become others. `auto`: openvino where it is installed, there "
        "are no GPUs and the corpus is large enough for converting to pay, else torch.",
    )
    num_workers: Workers = Field(
        default="auto",
        description="Number of embedding actors. `auto`: one per GPU, or one per CPU core if there are no GPUs; "
        "where there is little to embed, one process in their place, which starts once for all stages.",
    )
    use_gpu: OnGpu = Field(default="auto", description="`auto`: use GPUs if the cluster has any.")

    @model_validator(mode="after")
    def _of_one_method(self) -> Annotate:
        if self.clustering == "kmeans" and self.kmeans_sample < self.kmeans_clusters:
            raise ValueError(
                f"annotate.kmeans_sample = {self.kmeans_sample}: fewer sentences than annotate.kmeans_clusters = "
                f"{self.kmeans_clusters}; raise it"
            )
        return self
