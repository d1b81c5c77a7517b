"""What of an encoder's folder goes to the hub, and what is refused there.

Only files that an encoder is made of are known here; anything else in the folder stops the upload. Checkpoints and
optimizer states are large and of no use to others, and tables or logs may have the corpus's text in them.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import NamedTuple

_PARTS = (
    *("README.md", "LICENSE", "LICENSE.*", "NOTICE", "config.json", "generation_config.json", "modules.json"),
    *("sentence_*_config.json", "config_sentence_transformers.json", "export.json", "infocse.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "*.model", "chat_template.jinja", "additional_chat_templates/*.jinja"),
    *("model.safetensors", "model-?????-of-?????.safetensors", "model.safetensors.index.json"),
    *("[0-9]*_*/config.json", "[0-9]*_*/model.safetensors", "[0-9]*_*/whitening.safetensors"),
    *("onnx/*.onnx", "onnx/*.onnx.data", "onnx/*.onnx_data", "openvino/*.xml", "openvino/*.bin"),
)
_OUTSIDE = (".*", "*/.*", "checksums.json")
"""Left where they are: hidden files, and this library's own digests."""

_REASONS = (
    (("checkpoint*", "*.ckpt", "*.pt", "*.pth", "*.pkl", "*.bin"), "a checkpoint or pickled weights"),
    (("optimizer*", "scheduler*", "rng_state*", "trainer_state*", "training_args*"), "a state of training"),
    (
        ("*.parquet", "*.jsonl*", "*.ndjson*", "*.csv*", "*.tsv*", "*.txt*", "*.arrow", "*.zst", "*.gz", "*.xz"),
        "data, perhaps the corpus's text",
    ),
    (("metrics.json", "manifest.json", "stage.json", "events.out.*"), "a run's record"),
)


class Part(NamedTuple):
    """A file that is uploaded."""

    name: str
    """Relative to the folder."""
    size: int
    """Bytes."""


def parts_of(folder: Path) -> list[Part]:
    """The files that are uploaded, in the order of their names.

    Args:
        folder: of the encoder, on this machine.

    Raises:
        ValueError: there is something that isn't part of an encoder, or no card.
    """
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    names = [name for name in names if not any(fnmatch.fnmatchcase(name, pattern) for pattern in _OUTSIDE)]
    for name in names:
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"model: {name!r} in {folder} is a link to elsewhere; put the file itself there")
        if not _is_part(name):
            raise ValueError(
                f"model: {name!r} in {folder} is {_kind(name)}, no part of an encoder, and isn't uploaded; remove "
                "it, or push a run's <storage>/<name>/model or what `infocse export` wrote"
            )
    if "README.md" not in names:
        raise ValueError(f"model: {folder} has no card (README.md); a run's model and an export have one")
    return [Part(name, (folder / name).stat().st_size) for name in names]


def _is_part(name: str) -> bool:
    depth = name.count("/")
    return any(pattern.count("/") == depth and fnmatch.fnmatchcase(name, pattern) for pattern in _PARTS)


def _kind(name: str) -> str:
    for patterns, kind in _REASONS:
        if any(fnmatch.fnmatchcase(part, pattern) for pattern in patterns for part in name.split("/")):
            return kind
    return "an unknown file"
