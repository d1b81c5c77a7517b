"""The methods by name, and what each has of its own; defaults are the published ones."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from infocse_ray.settings.section import Fraction, Section

Baseline = Literal["simcse", "consert", "mirror_bert", "ict", "cpc", "declutr", "conpono", "tsdae", "none"]
MethodName = Literal["idc", Baseline]
Temperature = Annotated[float, Field(gt=0.0)]


Shared = Annotated[
    float | None, Field(default=None, gt=0.0, description="Similarities are divided by it. Default: train.temperature.")
]


class SimCSESettings(Section):
    """simcse: a sentence and itself under other dropout (Gao et al. 2021, unsupervised)."""

    temperature: Temperature = Field(default=0.05, description="Cosines are divided by it.")
    dropout: Fraction = Field(default=0.1, gt=0.0, description="The encoder's dropout in training.")


class ConSERTSettings(Section):
    """consert: a sentence and itself, cut off and shuffled at the embedding layer (Yan et al. 2021)."""

    first: Literal["feature_cutoff", "token_cutoff", "shuffle", "dropout", "none"] = Field(
        default="feature_cutoff", description="Augmentation of the first view."
    )
    second: Literal["feature_cutoff", "token_cutoff", "shuffle", "dropout", "none"] = Field(
        default="shuffle", description="Augmentation of the second view."
    )
    cutoff: Fraction = Field(
        default=0.2, description="Share of dimensions, tokens or (dropout) elements that an augmentation sets to 0."
    )
    temperature: Temperature = Field(default=0.1, description="Cosines are divided by it.")


class MirrorBERTSettings(Section):
    """mirror_bert: a sentence and itself with a span masked, under other dropout (Liu et al. 2021)."""

    span: int = Field(default=5, ge=0, description="Number of characters masked.")
    shortest: int = Field(default=30, ge=1, description="Sentences with fewer characters are not masked.")
    temperature: Temperature = Field(default=0.04, description="Cosines are divided by it.")
    dropout: Fraction = Field(default=0.1, description="The encoder's dropout in training.")


class ICTSettings(Section):
    """ict: a sentence and the text around it (Inverse Cloze Task, Lee et al. 2019)."""

    block: Literal["text", "sentences"] = Field(
        default="text",
        description="How the block around the sentence is encoded. `text`: as one text, as published. `sentences`: "
        "as the mean of its sentences' vectors, which is also a document's vector in retrieval.",
    )
    query_tokens: int = Field(default=64, ge=1, description="Most tokens of the sentence; the rest is cut.")
    block_tokens: int = Field(default=288, ge=2, description="Most tokens of a block.")
    keep_query: Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        default=0.1, description="Probability that the sentence stays in its block."
    )
    projection: int = Field(
        default=128,
        ge=0,
        description="Dimensions that vectors are projected to in training (a linear layer and layer norm); 0: none.",
    )
    temperature: float | None = Field(
        default=None,
        gt=0.0,
        description="Inner products are divided by it. Default: 1 with a projection, as published, else "
        "train.temperature.",
    )


class CPCSettings(Section):
    """cpc: the sentences before and those to come (Contrastive Predictive Coding, van den Oord et al. 2018)."""

    context: int = Field(default=3, ge=1, description="Number of sentences that a prediction is made from.")
    ahead: int = Field(default=3, ge=1, description="Number of sentences after them that are predicted.")
    temperature: Shared = None


class DeCLUTRSettings(Section):
    """declutr: spans of a document near each other, and masked-language modelling (Giorgi et al. 2021)."""

    anchors: int = Field(default=2, ge=1, description="Anchor spans per document.")
    positives: int = Field(default=2, ge=1, description="Spans near each anchor; their mean is its positive.")
    min_tokens: int = Field(default=32, ge=1, description="Tokens of the shortest span.")
    max_tokens: int = Field(default=512, ge=1, description="Tokens of the longest span.")
    mask: Fraction = Field(default=0.15, description="Share of an anchor's tokens that are masked and predicted.")
    temperature: Temperature = Field(default=0.05, description="Cosines are divided by it.")

    @model_validator(mode="after")
    def _lengths(self) -> DeCLUTRSettings:
        if self.min_tokens > self.max_tokens:
            raise ValueError(
                f"declutr.min_tokens = {self.min_tokens}: is more than declutr.max_tokens = {self.max_tokens}; lower it"
            )
        return self


class CONPONOSettings(Section):
    """conpono: a passage and the sentences near it, by distance (Iter et al. 2020)."""

    context: int | None = Field(
        default=None,
        ge=1,
        description="Sentences of the passage, encoded as one text. Default: 4, as published, for train.method = "
        "conpono; 1 for loop.initialization = conpono, where each sentence predicts others. A number sets both.",
    )
    offsets: int = Field(default=4, ge=1, description="How many sentences before and after the passage are in reach.")
    targets: int = Field(
        default=4, ge=1, description="How many of the sentences in reach are drawn as targets of an example."
    )
    form: Literal["softmax", "margin"] = Field(default="softmax", description="Form of the loss.")
    margin: float = Field(
        default=1.0, gt=0.0, description="Margin by which a positive must be ahead, in the margin form."
    )
    temperature: Shared = None


class TSDAESettings(Section):
    """tsdae: a sentence written anew from the vector of what is left of it (Wang et al. 2021)."""

    deleted: Fraction = Field(default=0.6, description="Share of a sentence's tokens that are deleted; one stays.")


class MethodSections(Section):
    """A section for each method that has settings of its own, of the method's name."""

    simcse: SimCSESettings = Field(default_factory=SimCSESettings)
    consert: ConSERTSettings = Field(default_factory=ConSERTSettings)
    mirror_bert: MirrorBERTSettings = Field(default_factory=MirrorBERTSettings)
    ict: ICTSettings = Field(default_factory=ICTSettings)
    cpc: CPCSettings = Field(default_factory=CPCSettings)
    declutr: DeCLUTRSettings = Field(default_factory=DeCLUTRSettings)
    conpono: CONPONOSettings = Field(default_factory=CONPONOSettings)
    tsdae: TSDAESettings = Field(default_factory=TSDAESettings)
