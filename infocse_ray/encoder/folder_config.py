"""What an encoder's folder says in JSON: read with errors that name the file, and of its first module what is heeded.

sentence-transformers takes options of its Transformer module from `sentence_bert_config.json`. Those that change
vectors and aren't computed here are refused: a folder isn't read as another encoder than it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_HARMLESS = {
    "model": {"torch_dtype", "dtype", "attn_implementation", "add_pooling_layer", "use_safetensors", "device_map"},
    "config": set(),
    "tokenizer": {"model_max_length", "use_fast", "padding_side", "clean_up_tokenization_spaces"},
    "processing": {"max_length", "padding", "truncation", "return_tensors"},
}
"""Of the options of each of these those that change no vector, or are heeded."""
_LONG = 10**6
"""Tokens: tokenizers without a limit have one of 10^30."""
_ANYWHERE = {"trust_remote_code", "revision", "token", "cache_dir", "local_files_only"}


def read_json(path: Path, setting: str) -> Any:
    """A file of JSON.

    Args:
        path: of it.
        setting: what named its folder, for errors.

    Returns:
        What it says.

    Raises:
        ValueError: it isn't there, or no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{setting}: {path} is missing or can't be read; copy the encoder's folder anew") from error
    except ValueError as error:
        raise ValueError(f"{setting}: {path} is no JSON: {error}; copy the encoder's folder anew") from error


def read_object(path: Path, setting: str) -> dict[str, Any]:
    """As `read_json`, of a file that has to be an object.

    Raises:
        ValueError: it is none, too.
    """
    said = read_json(path, setting)
    if not isinstance(said, dict):
        raise ValueError(f"{setting}: {path} has no object in braces, as it should; copy the encoder's folder anew")
    return said


class TransformerOptions(NamedTuple):
    """Those of the first module that are heeded."""

    max_seq_length: int | None
    """Tokens a text is cut to, special tokens included; None: they don't say."""
    lower_case: bool
    """Whether letters are made small before a text is tokenised."""


def transformer_options(folder: Path, setting: str) -> TransformerOptions:
    """Read the folder's `sentence_bert_config.json`.

    Older releases called the file by the kind of the backbone, such as sentence_roberta_config.json.

    Raises:
        ValueError: an option changes vectors in a way that isn't computed here.
    """
    lengths, lowers = [], False
    for path in sorted(folder.glob("sentence_*_config.json")):
        said = read_object(path, setting)
        for name in _not_computed(said):
            raise ValueError(
                f"{setting}: {path} sets {name}, which changes vectors and isn't computed here; name another encoder, "
                "or save this one with what it sets worked in"
            )
        lengths += [said.get("max_seq_length"), *_lengths(said)]
        lowers = lowers or bool(said.get("do_lower_case"))
    return TransformerOptions(next((length for length in lengths if length), None), lowers)


def _options(said: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """What the options are of, the name of each in the file, and its value."""
    for kind, names in {
        "model": ("model_args", "model_kwargs"),
        "config": ("config_args", "config_kwargs"),
        "tokenizer": ("tokenizer_args", "processor_kwargs"),
    }.items():
        for name in names:
            for option, value in (said.get(name) or {}).items():
                yield kind, f"{name}.{option}", value
    for modality in ("common", "text"):
        for option, value in ((said.get("processing_kwargs") or {}).get(modality) or {}).items():
            yield "processing", f"processing_kwargs.{modality}.{option}", value


def _not_computed(said: Mapping[str, Any]) -> Iterator[str]:
    for kind, name, _ in _options(said):
        if name.rpartition(".")[2] not in _HARMLESS[kind] | _ANYWHERE:
            yield name
    if said.get("transformer_task") not in (None, "feature-extraction", "fill-mask"):
        yield "transformer_task"
    text = (said.get("modality_config") or {}).get("text")
    if text is not None and (text.get("method"), text.get("method_output_name")) != ("forward", "last_hidden_state"):
        yield "modality_config.text"
    if said.get("module_output_name") not in (None, "token_embeddings"):
        yield "module_output_name"


def _lengths(said: Mapping[str, Any]) -> Iterator[int]:
    for _, name, value in _options(said):
        if name.rpartition(".")[2] in ("model_max_length", "max_length") and isinstance(value, int):
            yield min(value, _LONG)
