"""What calls are given: settings by section or dotted name, a configuration, documents."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infocse_ray.corpus.in_memory import corpus_of, is_ray_dataset
from infocse_ray.runtime.cluster import connect, quiet_data
from infocse_ray.settings import Settings
from infocse_ray.settings.configurations import read_config
from infocse_ray.settings.embed import Embed
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.settings.nested import nested
from infocse_ray.settings.text import brief
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted

_OfCorpus = TypeVar("_OfCorpus", Settings, Evaluate, Embed)


def configured(config: str | os.PathLike[str]) -> dict[str, Any]:
    """The sections of a configuration.

    Raises:
        ValueError: it is none, or says what is an argument of `adapt`.
    """
    if not isinstance(config, str | os.PathLike):
        raise ValueError(f"config: is a {type(config).__qualname__}; give a name, such as 'paper-plus', or a file")
    try:
        given = read_config(os.fspath(config), Settings, "config")
    except ValueError as error:
        raise ValueError(redacted(str(error))) from None
    if arguments := [name for name in ("name", "storage", "seed", "minutes", "recipe") if name in given]:
        raise ValueError(f"config = {os.fspath(config)!r}: has {', '.join(arguments)}; give that to adapt itself")
    for name, section in given.items():
        if name in Settings.model_fields and not isinstance(section, Mapping):
            raise ValueError(
                f"config = {os.fspath(config)!r}: {name} = {section!r}: settings come in sections, such as "
                "train: {max_steps: 200}"
            )
    return given


def with_corpus_apart(settings: Mapping[str, Any], corpus: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings, which may have dotted names (`corpus.text`), and apart from them those of the corpus."""
    given = nested({"corpus": section_of("corpus", corpus or {}), **settings})
    return given, given.pop("corpus")


def section_of(name: str, given: object) -> Mapping[str, Any]:
    """Settings given as a section.

    Raises:
        ValueError: it is none.
    """
    if isinstance(given, Mapping):
        return given
    sections = {section: fields for section, field in Settings.model_fields.items() if (fields := _fields_of(field))}
    its = [section for section, fields in sections.items() if name in fields]
    said = redacted(f"{name} = {brief(given)}")
    if name not in sections and not its:
        raise ValueError(f"{said}: no such setting; sections of settings are {', '.join(sections)}")
    example = redacted(f"{its[0]}={{{name!r}: {brief(given)}}}") if its else f"{name}={{...}}"
    raise ValueError(f"{said}: settings come in sections, each a dict: {example}")


def _fields_of(field: FieldInfo) -> Mapping[str, FieldInfo]:
    """The settings in a section; none of what is no section."""
    section = field.annotation
    return section.model_fields if isinstance(section, type) and issubclass(section, BaseModel) else {}


def of_documents(settings: _OfCorpus, documents: object, corpus: Mapping[str, Any]) -> _OfCorpus:
    """Settings whose corpus is these documents, as files that a run reads; a Ray Dataset's own tasks write them."""
    if is_ray_dataset(documents):
        connect()
        quiet_data()
    source = corpus_of(documents, Storage.for_runs(settings.storage), corpus, type(settings.corpus)).source
    return settings.model_copy(update={"corpus": settings.corpus.model_copy(update={"source": source})})
