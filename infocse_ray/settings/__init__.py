"""Every knob of a run, as one typed, validated, frozen tree; YAML in, YAML out.

Defaults adapt an encoder that was already tuned for sentences (`--config adapt` says the same); `--config
paper-plus` is for a language model, `--config paper` the set-up of the InfoCSE paper (arXiv 2202.13802, appendix
"Training Details").
"""

from __future__ import annotations

import warnings
from typing import Literal

from pydantic import Field, field_validator, model_validator

from infocse_ray.settings.corpus import Corpus, Labels
from infocse_ray.settings.encoder import Annotate, Encoder
from infocse_ray.settings.explorer import Explorer
from infocse_ray.settings.fingerprint import fingerprint
from infocse_ray.settings.methods import (
    Baseline,
    CONPONOSettings,
    ConSERTSettings,
    CPCSettings,
    DeCLUTRSettings,
    ICTSettings,
    MethodName,
    MethodSections,
    MirrorBERTSettings,
    SimCSESettings,
    TSDAESettings,
)
from infocse_ray.settings.section import (
    EngineName,
    Metric,
    Reading,
    Section,
    plain_name,
    run_name,
)
from infocse_ray.settings.tracking import Tracking
from infocse_ray.settings.train import Finetune, Loop, PlusPlus, Train, Validate

with warnings.catch_warnings():
    # BaseModel.validate is a deprecated pydantic 1 method that nothing here calls; the section keeps its name.
    warnings.filterwarnings("ignore", message='Field name "validate"')

    class _Run(Section):
        name: str = Field(description="Name of the run: letters, digits, dot, dash, underscore.")
        storage: str = Field(
            default="runs",
            min_length=1,
            description="Folder or URI (s3://, gs://, ...) that every node reaches; the run is <storage>/<name>.",
        )
        seed: int = Field(default=42, ge=0, lt=2**31, description="Seed of every random choice.")
        minutes: float | None = Field(
            default=None,
            gt=0.0,
            description="About how long `infocse pretrain` may take on this cluster. Its speed is measured once, "
            "and train.max_tokens of each training is set to fit, at most to what it and train.max_steps allow; "
            "validate.max_documents (not of a sweep's trials), then loop.max_iterations are lowered, and "
            "at last train.interpolation is left out, where training would have less than two fifths of the time. "
            "Default: no limit.",
        )
        recipe: Literal["auto"] | None = Field(
            default=None,
            description="`auto`: `infocse pretrain` chooses train.method and train.distillation for the corpus. "
            "InfoCSE, InfoCSE with train.distillation 0.5 and SimCSE are tried for loop.pilot_steps each; the one that "
            "validates best trains the run, the second unless another is better beyond luck, and nothing does if none "
            "beats the start. Default: as section train says.",
        )
        corpus: Corpus
        encoder: Encoder
        annotate: Annotate = Field(default_factory=Annotate)
        train: Train = Field(default_factory=Train)
        validate: Validate = Field(default_factory=Validate)  # pyright: ignore
        loop: Loop = Field(default_factory=Loop)
        labels: Labels = Field(default_factory=Labels)
        finetune: Finetune = Field(default_factory=Finetune)
        plusplus: PlusPlus = Field(default_factory=PlusPlus)
        explorer: Explorer = Field(default_factory=Explorer)
        tracking: Tracking = Field(default_factory=Tracking)

        @field_validator("name")
        @classmethod
        def _plain_name(cls, value: str) -> str:
            return run_name(value)

        @model_validator(mode="after")
        def _recipe_chooses(self) -> _Run:
            if self.recipe is None:
                return self
            for section, name in (("train", "method"), ("train", "distillation"), ("loop", "initialization")):
                of = getattr(self, section)
                given, default = getattr(of, name), type(of).model_fields[name].default
                if given != default:
                    why = "pilots start from the encoder as it is" if section == "loop" else "it chooses that itself"
                    raise ValueError(f"{section}.{name} = {given}: with recipe = auto {why}; leave one of them out")
            return self


class Settings(MethodSections, _Run):
    """A run of InfoCSE."""


__all__ = [
    "Annotate",
    "Baseline",
    "CONPONOSettings",
    "CPCSettings",
    "ConSERTSettings",
    "Corpus",
    "DeCLUTRSettings",
    "Encoder",
    "EngineName",
    "Explorer",
    "Finetune",
    "ICTSettings",
    "Labels",
    "Loop",
    "MethodName",
    "Metric",
    "MirrorBERTSettings",
    "PlusPlus",
    "Reading",
    "Section",
    "Settings",
    "SimCSESettings",
    "TSDAESettings",
    "Tracking",
    "Train",
    "Validate",
    "fingerprint",
    "plain_name",
    "run_name",
]
