"""Every knob of a run, as one typed, validated, frozen tree; YAML in, YAML out.

Defaults are those of the InfoCSE paper (arXiv 2202.13802, appendix "Training Details"): K = 1, 32 tokens a
sentence, batches of 3200 pairs, Adam (0.9, 0.999, 1e-8) at 2e-5, at most 200,000 steps an iteration, early
stopping on recall@5 with a patience of 20,000 steps, inner products.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Workers = int | Literal["auto"]
OnGpu = bool | Literal["auto"]
Metric = Literal["recall@5", "recall@10", "recall@20", "mrr"]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Baseline = Literal["simcse", "consert", "mirror_bert", "ict", "cpc", "declutr", "conpono", "none"]
StrategyName = Literal["idc", Baseline]


def plain_name(value: str) -> str:
    """A name that is a folder's, too.

    Raises:
        ValueError: it has letters that not every storage takes.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
        raise ValueError("use letters, digits, dot, dash and underscore, starting with a letter or digit")
    return value


class Section(BaseModel):
    """A part of the settings: unknown keys are refused, nothing changes after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("num_workers", check_fields=False)
    @classmethod
    def _workers(cls, value: int | str | list[int]) -> int | str | list[int]:
        if isinstance(value, list) and not (len(value) == 2 and 1 <= value[0] <= value[1]):
            raise ValueError("give two whole numbers, the fewest and the most, as [1, 4]")
        if isinstance(value, int) and value < 1:
            raise ValueError("give a whole number from 1, or auto")
        return value


class Corpus(Section):
    """corpus: where the documents are and how a row becomes a document."""

    source: str | list[str] = Field(
        description="Files, globs or folders, one or a list, local or s3://, gs://, ...: Parquet (.parquet), "
        "JSON Lines (.jsonl, .json, .ndjson; also .gz, .xz, .zst) or text (.txt; also compressed)."
    )
    kind: Literal["auto", "mind", "msmarco", "browsing"] = Field(
        default="auto",
        description="What the files are. `auto`: a row, or a text file, is a document. `mind`: MIND's news.tsv and the "
        "bodies its crawler wrote. `msmarco`: MS MARCO's documents with their queries and qrels. `browsing`: sequences "
        "of page titles, JSON Lines or TSV. All as they are released, also .gz.",
    )
    id: str | None = Field(
        default=None,
        description="Column with the document's unique id. Default: `id` if there is one, else a hash of the "
        "document's content; of `browsing` always that and its place, unless named.",
    )
    text: str | None = Field(
        default=None, description="Column with the document's text, to be split into sentences. Default: `text`."
    )
    sentences: str | None = Field(
        default=None,
        description="Column with the document as a list of sentences; wins over `text`. Default: `sentences`; "
        "of `browsing`, the titles, `history`.",
    )
    counterpart: str | None = Field(
        default=None,
        description="Column with the text, or list of texts, that belongs to the document (headline, query, ...), used "
        "to validate, test and fine-tune, never to train without labels. Default: `counterpart` if there is one; "
        "of `browsing`, `target`.",
    )
    labels: str | list[str] | None = Field(
        default=None,
        description="Parquet or JSON Lines files that have the counterparts, named as `source` names files: a row is "
        "a document's id, a counterpart (or a list) and, if wanted, its split, in the columns that `id`, `counterpart` "
        "and `split` name; several rows of one id are as many counterparts. Counterparts in the documents' files are "
        "then not read. Of kind auto alone: the others bring theirs. Default: the documents' own.",
    )
    split: str | None = Field(
        default=None,
        description="Column that says train, valid (or dev, validation) or test. Default: `split` if there is "
        "one, else a stable hash of the id draws the splits.",
    )
    unlabelled: Literal["all", "train"] = Field(
        default="all",
        description="Which documents' sentences are trained on. `all`: every document (the splits split the "
        "labels, as in the paper), except the validation documents when validation has no labels. `train`: "
        "only documents of the train split.",
    )
    valid_fraction: Fraction = Field(default=0.1, description="Share of documents drawn for validation.")
    test_fraction: Fraction = Field(default=0.1, description="Share of documents drawn for the test.")
    language: str = Field(default="en", description="ISO 639-1 language of the sentence splitter's rules.")
    text_files: Literal["document", "line"] = Field(
        default="document", description="A text file is one `document`, or one document a `line`."
    )
    min_sentences: int = Field(default=2, ge=2, description="Documents with fewer sentences are set aside.")
    max_sentence_chars: int = Field(
        default=10_000, ge=1, description="A document with a longer sentence (characters) is set aside."
    )
    max_document_sentences: int = Field(
        default=10_000, ge=2, le=50_000, description="A document with more sentences is set aside."
    )
    lanes: int = Field(
        default=64,
        ge=1,
        le=4096,
        description="Independent streams the training pairs come from; the most training workers a run of "
        "this corpus can have. Part of the batch plan: change it and the batches change.",
    )

    @field_validator("source")
    @classmethod
    def _some_source(cls, value: str | list[str]) -> str | list[str]:
        if not value or not all(value if isinstance(value, list) else [value]):
            raise ValueError("name at least one path, glob or URI")
        return value

    @field_validator("labels")
    @classmethod
    def _some_labels(cls, value: str | list[str] | None) -> str | list[str] | None:
        return value if value is None else cls._some_source(value)

    @model_validator(mode="after")
    def _labels_of_this_kind(self) -> Corpus:
        if self.labels is not None and self.kind != "auto":
            raise ValueError(
                f"corpus.labels = {self.labels!r}: corpus.kind = {self.kind} brings its labels with it; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _fractions(self) -> Corpus:
        if self.valid_fraction + self.test_fraction > 1.0:
            raise ValueError(
                f"corpus.valid_fraction = {self.valid_fraction} and corpus.test_fraction = "
                f"{self.test_fraction} add up to more than 1: lower one"
            )
        return self


class Encoder(Section):
    """encoder: the sentence encoder f(.)."""

    model: str = Field(
        description="Hugging Face or sentence-transformers encoder: a folder, a URI or a hub name. Weights "
        "must be safetensors; remote code is never run."
    )
    pooling: Literal["auto", "mean", "cls"] = Field(
        default="auto",
        description="`auto`: what the sentence-transformers folder says; if it says nothing, what train.strategy "
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
    whiten: Literal["auto", "off"] | Annotated[float, Field(ge=0.0, le=2.0)] = Field(
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

    method: Literal["partition", "kmeans"] = Field(
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
        "quarter, so that a document whose sentences don't belong together gives no pairs. 0: none, as in the paper.",
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
        if self.method == "kmeans":
            for name in ("mutual", "min_edge_quantile"):
                if value := getattr(self, name):
                    raise ValueError(
                        f"annotate.{name} = {str(value).lower()}: annotate.method = kmeans has no edges; leave it out "
                        "or set annotate.method to partition"
                    )
            if self.kmeans_sample < self.kmeans_clusters:
                raise ValueError(
                    f"annotate.kmeans_sample = {self.kmeans_sample}: fewer sentences than annotate.kmeans_clusters = "
                    f"{self.kmeans_clusters}; raise it"
                )
        return self


class Train(Section):
    """train: contrastive training, on the annotated pairs (Eq. 1) or as another method has it."""

    strategy: StrategyName = Field(
        default="idc",
        description="Where positives come from. `idc`: InfoCSE, pairs of one cluster. The others are the methods "
        "the paper compares it with, each with a section of its own; they train once, without annotation. "
        "`none`: no training, the encoder as it is.",
    )
    positive: Literal["sentence", "cluster", "self_and_partner"] = Field(
        default="sentence",
        description="Of idc: what an anchor is pulled to. `sentence`: the other sentence of the pair, as in the "
        "paper. `cluster`: the mean of the vectors of the rest of its cluster (of 16 of them, drawn anew each time, "
        "where there are more). `self_and_partner`: the mean of the other sentence's vector and of the anchor's own "
        "under other dropout.",
    )
    batch_size: int = Field(
        default=3200, ge=2, description="Pairs (or a method's other examples) in a global batch, over all workers."
    )
    learning_rate: float = Field(
        default=2e-5, gt=0.0, description="Adam's learning rate, constant once `warmup_steps` are over."
    )
    head_learning_rate: float = Field(
        default=1e-3,
        gt=0.0,
        description="That of what simcse, ict, cpc, declutr and conpono put on the encoder in training only, which "
        "starts untrained. (declutr's head learns at `learning_rate` where the encoder's checkpoint has it, trained.)",
    )
    warmup_steps: int = Field(
        default=0,
        ge=0,
        description="Steps over which the learning rates rise in a straight line, at the start of the initialisation "
        "and of each iteration; fine-tuning has no warm-up. 0: none, as in the paper.",
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0.0,
        description="Decoupled weight decay (AdamW), of matrices: not of biases and layer norms. 0: none, as in the "
        "paper.",
    )
    max_gradient_norm: float | None = Field(
        default=None,
        gt=0.0,
        description="Gradients of the global batch, encoder's and head's together, are scaled down to this norm where "
        "theirs is larger. Default: never.",
    )
    max_steps: int = Field(default=200_000, ge=1, description="Most optimiser steps in one iteration.")
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="An iteration's training ends with the step that has encoded so many tokens in all, padding not "
        "counted. Default: no limit.",
    )
    temperature: float = Field(
        default=1.0, gt=0.0, description="Similarities are divided by it; methods with one of their own use theirs."
    )
    similarity: Literal["dot", "cosine"] = Field(
        default="dot",
        description="`dot`: inner product, as in the paper. `cosine`: sentence vectors are normalised, "
        "everywhere and in the exported model; best where train.strategy compares cosines (simcse, consert, "
        "mirror_bert, declutr).",
    )
    whitened: bool = Field(
        default=False,
        description="Where there is whitening (encoder.whiten), the loss compares whitened vectors, by the map of the "
        "last validation; false: the vectors before it, and whitening follows the training.",
    )
    never_worse: bool = Field(
        default=True,
        description="A training that never beats what it started from on validation returns that. false: its best "
        "encoder comes back, however good that is.",
    )
    interpolation: list[float] = Field(
        default=[0.25, 0.5, 0.75],
        description="After a training, weights this far from its start's to its best are validated too, and the best "
        "of all come back (as WiSE-FT and LM-Cocktail do). []: none.",
    )
    chunk_tokens: Annotated[int, Field(ge=64)] | Literal["auto"] = Field(
        default=8192,
        description="Tokens (padding included) encoded at a time with gradients kept; a larger batch is cut "
        "into such chunks and its gradients cached, exactly. Bounds memory; changes dropout's noise, nothing else. "
        "`auto`: 65,536 on GPUs, 8,192 on CPUs, halved, and the step repeated, whenever a GPU runs out of memory.",
    )
    num_workers: Workers | list[int] = Field(
        default="auto",
        description="Training workers. `auto`: one a GPU, one on CPUs. Two numbers, [1, 4]: as many as there is room "
        "for, going on with fewer when a node is lost and with more when one comes; batches stay the same.",
    )
    use_gpu: OnGpu = Field(default="auto", description="`auto`: when the cluster has GPUs.")
    adam_beta1: float = Field(default=0.9, ge=0.0, lt=1.0, description="Adam's beta 1.")
    adam_beta2: float = Field(default=0.999, ge=0.0, lt=1.0, description="Adam's beta 2.")
    adam_epsilon: float = Field(default=1e-8, gt=0.0, description="Adam's epsilon.")
    checkpoint_every: int | None = Field(
        default=None, ge=1, description="Steps between checkpoints. Default: `validate.every`."
    )
    max_failures: int = Field(default=3, ge=0, description="Restarts from the last checkpoint before giving up.")

    @field_validator("interpolation")
    @classmethod
    def _between(cls, shares: list[float]) -> list[float]:
        if not all(0.0 < share < 1.0 for share in shares):
            raise ValueError("a share of the way is more than 0 and less than 1; both ends are looked at anyway")
        return shares


class Validate(Section):
    """validate: when training looks at the validation documents, and at what."""

    every: int = Field(default=1000, ge=1, description="Steps between validations.")
    every_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens encoded between validations, instead of steps: methods that differ in tokens a step are "
        "then looked at equally often. Default: by steps.",
    )
    patience: int = Field(default=20_000, ge=1, description="Steps without a better score after which training stops.")
    metric: Metric = Field(default="recall@5", description="The score that chooses checkpoints and stops iterations.")
    on: Literal["auto", "counterpart", "sentence", "halves"] = Field(
        default="auto",
        description="`counterpart`: a validation document must find its counterpart. Without labels, `sentence`: a "
        "validation document without one of its sentences must find that sentence (up to four of a document, drawn by "
        "the seed, each alone); `halves`: one half of it (alternating sentences) must find the other. `auto`: "
        "counterpart if validation documents have one, else sentence. What trains on labels is always validated on "
        "counterparts.",
    )
    max_documents: int = Field(
        default=10_000,
        ge=100,
        description="About how many validation documents ask at most (of `counterpart`: questions, a document asks "
        "for each of its counterparts): the first by hash of the id.",
    )
    sts: str | None = Field(
        default=None,
        description="File of sentence pairs with a score of their similarity, to see what adapting costs of general "
        "ability (Spearman's rank correlation, before and after): Parquet or JSON Lines with columns sentence1, "
        "sentence2, score, or tab separated, the STS benchmark's files too. Default: not looked at.",
    )


class Loop(Section):
    """loop: the outer iterations (Alg. 1)."""

    max_iterations: int = Field(
        default=5, ge=1, description="Most iterations; the loop ends sooner when one brings no growth."
    )
    early_stop: bool = Field(
        default=True, description="End the loop when an iteration brings no growth; false: do all max_iterations."
    )
    initialization: Baseline | None = Field(
        default=None,
        description="What the encoder is trained with before the first annotation (Alg. 1, line 2), as iteration 0; "
        "`none`: it is taken as it stands. Default: conpono, as in the paper, where train.strategy is idc, and none "
        "where it is not.",
    )
    initialization_steps: int | None = Field(
        default=None, ge=1, description="Most steps of that training. Default: train.max_steps."
    )
    initialization_tokens: int | None = Field(
        default=None, ge=1, description="Most tokens of that training. Default: train.max_tokens."
    )
    initialization_patience: int | None = Field(
        default=None, ge=1, description="Patience of that training, in steps. Default: validate.patience."
    )


class Labels(Section):
    """labels: which of the labelled examples fine-tuning has."""

    train_size: Annotated[int, Field(ge=2)] | Literal["all"] = Field(
        default="all",
        description="How many of the train split's labelled examples (a document and one of its counterparts), drawn "
        "by the seed: smaller numbers are inside larger ones. `all`: every one.",
    )


class Finetune(Section):
    """finetune: training on labelled examples (section 3.3)."""

    batch_size: int = Field(default=64, ge=2, description="Labelled examples in a global batch, over all workers.")
    epochs: int = Field(default=20, ge=1, description="Most passes over the labelled examples.")
    patience: int = Field(
        default=2, ge=1, description="Epochs without a better validation score after which fine-tuning stops."
    )
    learning_rate: float = Field(default=2e-5, gt=0.0, description="Adam's learning rate, constant.")
    temperature: float | None = Field(
        default=None, gt=0.0, description="Similarities are divided by it. Default: train.temperature."
    )


class PlusPlus(Section):
    """plusplus: InfoCSE++, training without labels and fine-tuning in turns (section 3.3)."""

    max_rounds: int = Field(
        default=3,
        ge=1,
        description="Most rounds; the last is that whose fine-tuned validation score is no better than before.",
    )


Temperature = Annotated[float, Field(gt=0.0)]
Shared = Annotated[
    float | None, Field(default=None, gt=0.0, description="Similarities are divided by it. Default: train.temperature.")
]


class SimCSE(Section):
    """simcse: a sentence and itself under other dropout (Gao et al. 2021, unsupervised)."""

    temperature: Temperature = Field(default=0.05, description="Cosines are divided by it.")
    dropout: Fraction = Field(default=0.1, gt=0.0, description="The encoder's dropout in training.")


class ConSERT(Section):
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


class MirrorBERT(Section):
    """mirror_bert: a sentence and itself with a span masked, under other dropout (Liu et al. 2021)."""

    span: int = Field(default=5, ge=0, description="Characters masked.")
    shortest: int = Field(default=30, ge=1, description="Sentences of fewer characters are not masked.")
    temperature: Temperature = Field(default=0.04, description="Cosines are divided by it.")
    dropout: Fraction = Field(default=0.1, description="The encoder's dropout in training.")


class ICT(Section):
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


class CPC(Section):
    """cpc: the sentences before and those to come (Contrastive Predictive Coding, van den Oord et al. 2018)."""

    context: int = Field(default=3, ge=1, description="Sentences a prediction is made from.")
    ahead: int = Field(default=3, ge=1, description="Sentences predicted after them.")
    temperature: Shared = None


class DeCLUTR(Section):
    """declutr: spans of a document near each other, and masked-language modelling (Giorgi et al. 2021)."""

    anchors: int = Field(default=2, ge=1, description="Anchor spans of a document.")
    positives: int = Field(default=2, ge=1, description="Spans near an anchor, whose mean is its positive.")
    min_tokens: int = Field(default=32, ge=1, description="Tokens of the shortest span.")
    max_tokens: int = Field(default=512, ge=1, description="Tokens of the longest span.")
    mask: Fraction = Field(default=0.15, description="Share of an anchor's tokens that are to be guessed.")
    temperature: Temperature = Field(default=0.05, description="Cosines are divided by it.")

    @model_validator(mode="after")
    def _lengths(self) -> DeCLUTR:
        if self.min_tokens > self.max_tokens:
            raise ValueError(
                f"declutr.min_tokens = {self.min_tokens}: is more than declutr.max_tokens = {self.max_tokens}; lower it"
            )
        return self


class CONPONO(Section):
    """conpono: a passage and the sentences near it, by distance (Iter et al. 2020)."""

    context: int | None = Field(
        default=None,
        ge=1,
        description="Sentences of the passage, encoded as one text. Default: 4, as published, where train.strategy is "
        "conpono; 1 where loop.initialization is, for InfoCSE's has each sentence predict others. A number holds for "
        "both.",
    )
    offsets: int = Field(default=4, ge=1, description="How far before and after it a sentence may be.")
    targets: int = Field(default=4, ge=1, description="Such sentences an example has, drawn from those there are.")
    form: Literal["softmax", "margin"] = Field(default="softmax", description="The loss.")
    margin: float = Field(default=1.0, gt=0.0, description="How far a positive must be ahead, in the margin form.")
    temperature: Shared = None


with warnings.catch_warnings():
    # BaseModel.validate is a deprecated pydantic 1 method that nothing here calls; the section keeps its name.
    warnings.filterwarnings("ignore", message='Field name "validate"')

    class Settings(Section):
        """A run of InfoCSE."""

        name: str = Field(description="Name of the run: letters, digits, dot, dash, underscore.")
        storage: str = Field(
            default="runs",
            min_length=1,
            description="Folder or URI (s3://, gs://, ...) that every node reaches; the run is <storage>/<name>.",
        )
        seed: int = Field(default=42, ge=0, lt=2**31, description="Everything random follows from it.")
        corpus: Corpus
        encoder: Encoder
        annotate: Annotate = Field(default_factory=Annotate)
        train: Train = Field(default_factory=Train)
        validate: Validate = Field(default_factory=Validate)  # pyright: ignore
        loop: Loop = Field(default_factory=Loop)
        labels: Labels = Field(default_factory=Labels)
        finetune: Finetune = Field(default_factory=Finetune)
        plusplus: PlusPlus = Field(default_factory=PlusPlus)
        simcse: SimCSE = Field(default_factory=SimCSE)
        consert: ConSERT = Field(default_factory=ConSERT)
        mirror_bert: MirrorBERT = Field(default_factory=MirrorBERT)
        ict: ICT = Field(default_factory=ICT)
        cpc: CPC = Field(default_factory=CPC)
        declutr: DeCLUTR = Field(default_factory=DeCLUTR)
        conpono: CONPONO = Field(default_factory=CONPONO)

        @field_validator("name")
        @classmethod
        def _plain_name(cls, value: str) -> str:
            return plain_name(value)


def fingerprint(*parts: object) -> str:
    """Name content by what is in it: 32 hex digits of the BLAKE2b hash of `parts` as canonical JSON."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no canonical JSON form")
