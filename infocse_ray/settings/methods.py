"""The methods by name, and what each has of its own; defaults are the published ones."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from infocse_ray.settings.section import Fraction, Section

Baseline = Literal["simcse", "consert", "mirror_bert", "ict", "cpc", "declutr", "conpono", "none"]
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
        default="feature_cutoff", description="What changes the first view."
    )
    second: Literal["feature_cutoff", "token_cutoff", "shuffle", "dropout", "none"] = Field(
        default="shuffle", description="What changes the second view."
    )
    cutoff: Fraction = Field(
        default=0.2, description="Share of dimensions, tokens or (dropout) elements that a view sets to 0."
    )
    temperature: Temperature = Field(default=0.1, description="Cosines are divided by it.")


class MirrorBERTSettings(Section):
    """mirror_bert: a sentence and itself with a span masked, under other dropout (Liu et al. 2021)."""

    span: int = Field(default=5, ge=0, description="Characters masked.")
    shortest: int = Field(default=30, ge=1, description="Sentences of fewer characters are not masked.")
    temperature: Temperature = Field(default=0.04, description="Cosines are divided by it.")
    dropout: Fraction = Field(default=0.1, description="The encoder's dropout in training.")


class ICTSettings(Section):
    """ict: a sentence and the text around it (Inverse Cloze Task, Lee et al. 2019)."""

    block: Literal["text", "sentences"] = Field(
        default="text",
        description="`text`: the block is encoded as one text, as published. `sentences`: it is the mean of its "
        "sentences' vectors, which is what a document's vector is when it is searched for.",
    )
    query_tokens: int = Field(default=64, ge=1, description="Tokens the sentence is cut to.")
    block_tokens: int = Field(default=288, ge=2, description="Tokens of a block at most.")
    keep_query: Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        default=0.1, description="How often the sentence stays in its block."
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

    context: int = Field(default=3, ge=1, description="Sentences a prediction is made from.")
    ahead: int = Field(default=3, ge=1, description="Sentences predicted after them.")
    temperature: Shared = None


class DeCLUTRSettings(Section):
    """declutr: spans of a document near each other, and masked-language modelling (Giorgi et al. 2021)."""

    anchors: int = Field(default=2, ge=1, description="Anchor spans of a document.")
    positives: int = Field(default=2, ge=1, description="Spans near an anchor, whose mean is its positive.")
    min_tokens: int = Field(default=32, ge=1, description="Tokens of the shortest span.")
    max_tokens: int = Field(default=512, ge=1, description="Tokens of the longest span.")
    mask: Fraction = Field(default=0.15, description="Share of an anchor's tokens that are to be guessed.")
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
        description="Sentences of the passage, encoded as one text. Default: 4, as published, where train.method is "
        "conpono; 1 where loop.initialization is, for InfoCSE's has each sentence predict others. A number holds for "
        "both.",
    )
    offsets: int = Field(default=4, ge=1, description="How far before and after it a sentence may be.")
    targets: int = Field(default=4, ge=1, description="Such sentences an example has, drawn from those there are.")
    form: Literal["softmax", "margin"] = Field(default="softmax", description="The loss.")
    margin: float = Field(default=1.0, gt=0.0, description="How far a positive must be ahead, in the margin form.")
    temperature: Shared = None


class MethodSections(Section):
    """A section for each method that has settings of its own, of the method's name."""

    simcse: SimCSESettings = Field(default_factory=SimCSESettings)
    consert: ConSERTSettings = Field(default_factory=ConSERTSettings)
    mirror_bert: MirrorBERTSettings = Field(default_factory=MirrorBERTSettings)
    ict: ICTSettings = Field(default_factory=ICTSettings)
    cpc: CPCSettings = Field(default_factory=CPCSettings)
    declutr: DeCLUTRSettings = Field(default_factory=DeCLUTRSettings)
    conpono: CONPONOSettings = Field(default_factory=CONPONOSettings)
