"""Training: one iteration, its validation, the loop over iterations, fine-tuning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from infocse_ray.settings.methods import Baseline, MethodName
from infocse_ray.settings.section import DEFAULT_READING, READING, Metric, OnGpu, Reading, Section, Workers


class Train(Section):
    """train: contrastive training, on the annotated pairs (Eq. 1) or as another method has it."""

    renamed = {"strategy": "method"}  # noqa: RUF012
    removed = {"positive": "sentence"}  # noqa: RUF012

    method: MethodName = Field(
        default="idc",
        description="How positives are made. `idc`: InfoCSE, pairs of sentences from one cluster. The others are "
        "the methods that the paper compares it with; each has a section of settings and trains once, without "
        "annotation. `none`: no training, the encoder as it is.",
    )
    distillation: float = Field(
        default=0.5,
        ge=0.0,
        lt=1.0,
        description="For method idc: share in the loss of a second one, which holds on to what the encoder knew. By a "
        "softmax over the same sentences, an anchor is to find each of the others as alike as the encoder with which "
        "the iteration's training begins does, whitened if it is. Pairs that aren't alike and sentences of other "
        "documents that are then weigh less. Takes a forward pass more a step. 0: Eq. 1 alone, as in the paper.",
    )
    batch_size: int = Field(
        default=128, ge=2, description="Pairs (or other examples of a method) in a global batch, over all workers."
    )
    learning_rate: float = Field(
        default=2e-5, gt=0.0, lt=1.0, description="Adam's learning rate, constant after `warmup_steps`."
    )
    head_learning_rate: float = Field(
        default=1e-3,
        gt=0.0,
        lt=1.0,
        description="Learning rate of the layers that simcse, ict, cpc, declutr, conpono and tsdae add to the encoder "
        "for training, which start untrained. (declutr's head uses `learning_rate` if the encoder's checkpoint has it "
        "already trained.)",
    )
    warmup_steps: int = Field(
        default=0,
        ge=0,
        description="Steps over which the learning rates rise linearly, at the start of the initialisation and of "
        "each iteration; fine-tuning has no warm-up. 0: none, as in the paper.",
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0.0,
        description="Decoupled weight decay (AdamW) of weight matrices, not of biases and layer norms. 0: none, as "
        "in the paper.",
    )
    max_gradient_norm: float | None = Field(
        default=None,
        gt=0.0,
        description="Gradients of the global batch, of encoder and head together, are clipped to this norm. "
        "Default: never.",
    )
    max_steps: int = Field(
        default=300,
        ge=1,
        description="Most optimiser steps of an iteration. A sentence encoder has learnt by then what some thousand "
        "documents teach it; with four times as many it got worse on one of two corpora, unseen by validation without "
        "labels (docs/results.md). For language models paper-plus has 2000, and paper 200000.",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens after which an iteration's training ends, padding not counted; the step that reaches "
        "them is the last. Default: no limit.",
    )
    temperature: float = Field(
        default=0.05,
        gt=0.0,
        description="Similarities are divided by it; methods with a temperature of their own use that.",
    )
    similarity: Literal["dot", "cosine"] = Field(
        default="cosine",
        description="`cosine`: sentence vectors are normalised, everywhere and in the exported model. `dot`: inner "
        "product, as in the paper.",
    )
    whitened: bool = Field(
        default=False,
        description="Compute the loss on whitened vectors (encoder.whiten), with the map of the last validation. "
        "false: on the vectors before whitening, which then follows the training.",
    )
    never_worse: bool = Field(
        default=True,
        description="If training never beats its starting point on validation, return the starting point. false: "
        "return the best encoder of the training, however good it is, to the next iteration; the run still returns the "
        "best of its iterations and of what they began with.",
    )
    interpolation: list[float] = Field(
        default=[0.25, 0.5, 0.75],
        description="After training, weights this far from the starting point to the best step are validated too, "
        "and the best of all are returned (as in WiSE-FT and LM-Cocktail): those nearest to the best step first, and "
        "no others where they validate no better than it. []: none.",
    )
    chunk_tokens: Annotated[int, Field(ge=64)] | Literal["auto"] = Field(
        default="auto",
        description="Tokens (padding included) encoded at a time with gradients. A larger batch is cut into such "
        "chunks and its gradients are cached, exactly: this limits memory and changes nothing but dropout's noise. "
        "`auto`: 65,536 on GPUs, 8,192 on CPUs; it is halved, and the step repeated, whenever a GPU runs out of "
        "memory. Once the first steps have shown what a token takes, as many chunks as memory has room for are encoded "
        "once instead of twice: most of a GPU's, a quarter of the machine's on CPUs.",
    )
    num_workers: Workers | list[int] = Field(
        default="auto",
        description="Number of training workers. `auto`: one per GPU, or one if there are only CPUs. Two numbers, "
        "[1, 4]: as many as there is room for; training goes on with fewer when a node is lost and with more when "
        "one comes, and the batches stay the same.",
    )
    use_gpu: OnGpu = Field(default="auto", description="`auto`: use GPUs if the cluster has any.")
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
    """validate: when training is validated, and on what."""

    every: int = Field(default=100, ge=1, description="Steps between validations.")
    every_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens encoded between validations, in place of steps, so that methods with different numbers "
        "of tokens per step are validated equally often. Default: by steps.",
    )
    patience: int = Field(default=200, ge=1, description="Steps without a better score after which training stops.")
    metric: Metric = Field(
        default="mrr",
        description="Metric that chooses checkpoints, stops iterations and judges the result. The paper's is recall@5; "
        "mrr follows what the test finds more closely, and isn't as soon at its ceiling (docs/tried.md).",
    )
    on: Literal["auto", "counterpart", "sentence", "halves", "readings"] = Field(
        default="auto",
        description="What each validation document must find. `counterpart`: its counterpart (corpus.counterpart). "
        "Without labels, `sentence`: a sentence taken out of it (up to four of a document, drawn by the seed, one "
        "at a time); `halves`: the other half of it (alternating sentences); `readings`: by its text as a whole the "
        "mean of its sentences. `auto`: counterpart if validation documents have one, else sentence. Training on "
        "labels is always validated on counterparts.",
    )
    reading: Reading = Field(
        default=DEFAULT_READING,
        description=f"{READING} So test and validation on counterparts read documents, and with the latter two "
        "whitening is fitted on whole texts, too. Training, validation without labels (but for `readings`) and the "
        "choice of a power are of sentences, whatever it is.",
    )
    max_documents: int = Field(
        default=2_000,
        ge=100,
        description="About how many validation documents are used at most, the first by hash of the id. For "
        "`counterpart` this counts questions: a document asks for each of its counterparts.",
    )
    max_candidates: int = Field(
        default=50_000,
        ge=100,
        description="About how many counterparts a validation on counterparts ranks each question among at most, those "
        "of the documents first by hash of the id. The test ranks among all.",
    )
    sts: str | None = Field(
        default=None,
        description="File of sentence pairs with similarity scores, to measure what adapting costs in general "
        "ability (Spearman's rank correlation, before and after). Parquet, JSON or CSV with columns sentence1, "
        "sentence2, score, or tab-separated; the STS benchmark's files work too. Default: not measured.",
    )


class Loop(Section):
    """loop: the outer iterations (Alg. 1)."""

    max_iterations: int = Field(
        default=2, ge=1, description="Most iterations; the loop ends sooner when one brings no improvement."
    )
    early_stop: bool = Field(
        default=True, description="End the loop when an iteration brings no improvement; false: do all max_iterations."
    )
    pilot_steps: int = Field(
        default=100,
        ge=1,
        description="Optimiser steps of each short training among which `recipe: auto` chooses; at most "
        "train.max_steps and train.max_tokens.",
    )
    initialization: Baseline = Field(
        default="none",
        description="Method that trains the encoder before the first annotation (Alg. 1, line 2), as iteration 0. "
        "`none`: the encoder is taken as it is. The paper uses conpono, for BERT.",
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


class Finetune(Section):
    """finetune: training on labelled examples (section 3.3)."""

    batch_size: int = Field(default=64, ge=2, description="Labelled examples in a global batch, over all workers.")
    epochs: int = Field(default=20, ge=1, description="Most passes over the labelled examples.")
    patience: int = Field(
        default=2, ge=1, description="Passes without a better validation score after which fine-tuning stops."
    )
    learning_rate: float = Field(default=2e-5, gt=0.0, lt=1.0, description="Adam's learning rate, constant.")
    temperature: float | None = Field(
        default=None, gt=0.0, description="Similarities are divided by it. Default: train.temperature."
    )


class PlusPlus(Section):
    """plusplus: InfoCSE++, training without labels and fine-tuning in turns (section 3.3)."""

    max_rounds: int = Field(
        default=3,
        ge=1,
        description="Most rounds; they end with the first whose fine-tuned validation score is no better than before.",
    )
    label_share: float = Field(
        default=0.0,
        ge=0.0,
        le=0.9,
        description="About which share of the examples of InfoCSE's training are labelled ones, among its pairs in "
        "every batch. 0, as in the paper: only fine-tuning has labels.",
    )
