"""Base class of the sections of the settings, and types that several of them use."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Workers = int | Literal["auto"]
OnGpu = bool | Literal["auto"]
EngineName = Literal["torch", "openvino", "openvino_int8"]
Pooling = Literal["mean", "cls", "lasttoken", "max", "weightedmean", "mean_sqrt_len_tokens"]
"""The mean of a text's token vectors, its first one, or its last one; the largest value of each dimension, the mean
weighted by places counted from 1 (Muennighoff 2022, SGPT, arXiv 2202.08904), or the sum divided by the root of their
number. Names are sentence-transformers'."""

PoolingName = Literal["auto", Pooling]
Metric = Literal["recall@5", "recall@10", "recall@20", "mrr"]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Reading = Literal["sentences", "whole", "both"]
"""How a document becomes a vector, as READING tells people."""

DEFAULT_READING: Reading = "both"
"""What finds most, on all corpora but sequences, where it is level (docs/results.md)."""

READING = (
    "How a document becomes a vector. `sentences`: the mean of its sentences' vectors, as in the paper. `whole`: the "
    "vector of its sentences as one text, cut at the length that the encoder's folder says (max_seq_length), as "
    "SentenceTransformer.encode reads it. `both`: the mean of these two."
)
"""What settings of this type say."""

HOW_NOT_WHAT = {"num_workers", "use_gpu", "chunk_tokens", "max_failures", "checkpoint_every"}
"""Settings of training and annotating that say how to compute, not what: they don't name another result."""

FEW_SHOT: tuple[str, ...] = ("labels", "finetune", "plusplus")
"""Sections that training without labels doesn't read."""

SHARED = ("corpora", "encoders", "evaluations", "sources", "stages")
"""Folders of a storage that are no run's: runs share what is in them."""

TOGETHER = {"tables.json": "reproduce", "cells": "reproduce", "sweep.json": "sweep", "trials": "sweep"}
"""Files and folders by which the folder of many runs together is known, and whose it is."""

MARKS = ("manifest.json", "driver.lease", *TOGETHER)
"""By any of which the folder of a run, or of many together, is known in a storage."""


def parts(value: object) -> object:
    """The items of `a,b`; what is no text as it is."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def each_once(value: object) -> object:
    """As `parts`, without items that are there already."""
    items = parts(value)
    return [item for at, item in enumerate(items) if item not in items[:at]] if isinstance(items, list) else items


_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_LONGEST_NAME = 200
"""Of the 255 that a file's name may have; what is being written has some more in front, a cell or trial behind."""


def plain_name(value: str) -> str:
    """A name that is a folder's, too.

    Raises:
        ValueError: it has letters that not every storage takes, or too many.
    """
    if not re.fullmatch(_NAME, value):
        last = value.rstrip("/").rpartition("/")[2]
        meant = f"; it is no path: did you mean {last}?" if "/" in value and re.fullmatch(_NAME, last) else ""
        raise ValueError(f"use letters, digits, dot, dash and underscore, starting with a letter or digit{meant}")
    if len(value) > _LONGEST_NAME:
        raise ValueError(f"has {len(value)} letters; use at most {_LONGEST_NAME}")
    return value


def run_name(value: str) -> str:
    """A name of a run, of tables or of a sweep: of its folder in a storage.

    Raises:
        ValueError: it is no plain name, or that of a folder that runs share.
    """
    if value in SHARED:
        raise ValueError(f"{value!r} is a folder that runs share ({', '.join(SHARED)}); give another name")
    return plain_name(value)


def names_of_now(values: Mapping[Any, Any], renamed: Mapping[str, str]) -> dict[Any, Any]:
    """Values of settings by today's names; where a setting is there by its earlier name, too, today's counts."""
    now = {name: value for name, value in values.items() if name not in renamed}
    return {new: values[old] for old, new in renamed.items() if old in values} | now


class Section(BaseModel):
    """A part of the settings: unknown keys are refused, nothing changes after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    renamed: ClassVar[Mapping[str, str]] = {}
    """What settings were called in earlier versions, which is still taken, and what they are called now."""

    removed: ClassVar[Mapping[str, object]] = {}
    """Settings of earlier versions that are gone, each with the value that changed nothing, which is still taken."""

    trees: ClassVar[Mapping[str, type[BaseModel]]] = {}
    """Mappings that are settings of other models, checked later; on the command line text of theirs is text."""

    whole: ClassVar[Collection[str]] = ()
    """Mappings whose items on the command line replace those of a file, and don't add to them."""

    @model_validator(mode="before")
    @classmethod
    def _names_of_now(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        there = {name: value for name, value in values.items() if (name, value) not in cls.removed.items()}
        return names_of_now(there, cls.renamed)

    @field_validator("num_workers", check_fields=False)
    @classmethod
    def _workers(cls, value: int | str | list[int]) -> int | str | list[int]:
        if isinstance(value, list) and not (len(value) == 2 and 1 <= value[0] <= value[1]):
            raise ValueError("give two whole numbers, the fewest and the most, as [1, 4]")
        if isinstance(value, int) and value < 1:
            raise ValueError("give a whole number from 1, or auto")
        return value
