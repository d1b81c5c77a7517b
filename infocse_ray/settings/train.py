"""Training: one iteration, its validation, the loop over iterations, fine-tuning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from infocse_ray.settings.methods import Baseline, MethodName
from infocse_ray.settings.section import Metric, OnGpu, Section, Workers


class Train(Section):
    """train: contrastive training, on the annotated pairs (Eq. 1) or as another method has it."""

    renamed = {"strategy": "method"}  # noqa: RUF012

    method: MethodName = Field(
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
        default=128, ge=2, description="Pairs (or a method's other examples) in a global batch, over all workers."
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
    max_steps: int = Field(default=2000, ge=1, description="Most optimiser steps in one iteration.")
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="An iteration's training ends with the step that has encoded so many tokens in all, padding not "
        "counted. Default: no limit.",
    )
    temperature: float = Field(
        default=0.05, gt=0.0, description="Similarities are divided by it; methods with one of their own use theirs."
    )
    similarity: Literal["dot", "cosine"] = Field(
        default="cosine",
        description="`cosine`: sentence vectors are normalised, everywhere and in the exported model. `dot`: inner "
        "product, as in the paper.",
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

    every: int = Field(default=100, ge=1, description="Steps between validations.")
    every_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens encoded between validations, instead of steps: methods that differ in tokens a step are "
        "then looked at equally often. Default: by steps.",
    )
    patience: int = Field(default=500, ge=1, description="Steps without a better score after which training stops.")
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
        default=3, ge=1, description="Most iterations; the loop ends sooner when one brings no growth."
    )
    early_stop: bool = Field(
        default=True, description="End the loop when an iteration brings no growth; false: do all max_iterations."
    )
    initialization: Baseline = Field(
        default="none",
        description="What the encoder is trained with before the first annotation (Alg. 1, line 2), as iteration 0. "
        "`none`: it is taken as it stands; the paper has conpono, for BERT.",
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
