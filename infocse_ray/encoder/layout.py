"""The sentence-transformers folder layout: backbone at the top, then pooling, then perhaps normalising."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, NamedTuple

Pooling = Literal["mean", "cls"]

_LEGACY_MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


class Layout(NamedTuple):
    """What a folder says about turning token vectors into a sentence vector."""

    pooling: Pooling | None
    """None when the folder is a plain Hugging Face model."""
    normalize: bool


def read_layout(folder: Path, chosen: Pooling | None = None, setting: str = "encoder.model") -> Layout:
    """Read `modules.json` and the pooling it names.

    Args:
        folder: of a sentence-transformers or a plain Hugging Face model.
        chosen: a pooling to use whatever the folder says.
        setting: what error messages call what named the folder.

    Raises:
        ValueError: there is a module or a pooling that this library doesn't compute.
    """
    modules = folder / "modules.json"
    if not modules.exists():
        return Layout(chosen, False)
    pooling, normalize = chosen, False
    for module in json.loads(modules.read_text()):
        match module["type"].rsplit(".", 1)[-1]:
            case "Transformer":
                if module.get("path"):
                    raise ValueError(
                        f"{setting}: {folder}: the backbone is in {module['path']}/, not at the top of the folder"
                    )
            case "Pooling":
                pooling = chosen or _pooling(folder, module["path"], setting)
            case "Normalize":
                normalize = True
            case "Dropout":
                pass  # does nothing at inference
            case other:
                raise ValueError(
                    f"{setting}: {folder}: a {other} module is not supported; only pooling and normalising are"
                )
    return Layout(pooling, normalize)


def _pooling(folder: Path, module: str, setting: str) -> Pooling:
    config = json.loads((folder / module / "config.json").read_text())
    given = config.get("pooling_mode")
    if given is None:
        on = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
        given = [str(_LEGACY_MODES.get(name, name)) for name in on]
    modes: list[str] = [given] if isinstance(given, str) else [str(mode) for mode in given]
    if len(modes) != 1 or modes[0] not in ("mean", "cls"):
        fix = "set encoder.pooling to" if setting == "encoder.model" else "name an encoder with"
        raise ValueError(f"{setting}: {folder}: pooling {'+'.join(modes)} is not supported; {fix} mean or cls")
    return modes[0]  # pyright: ignore[reportReturnType]


def write_layout(folder: Path, dimension: int, pooling: Pooling, normalize: bool, max_length: int) -> None:
    """Write everything of the layout but the backbone and the tokenizer.

    Args:
        folder: where those two are.
        dimension: of the sentence vectors.
        pooling: how token vectors become one.
        normalize: whether sentence vectors have length 1.
        max_length: tokens a sentence is cut to, special tokens included.
    """
    names = ["Transformer", "Pooling"] + (["Normalize"] if normalize else [])
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{name}",
            "type": f"sentence_transformers.models.{name}",
        }
        for i, name in enumerate(names)
    ]
    pooling_config = {"word_embedding_dimension": dimension} | {
        mode: pooling == name for mode, name in _LEGACY_MODES.items()
    }
    _write(folder / "modules.json", modules)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    _write(folder / "1_Pooling" / "config.json", pooling_config)
    similarity = "cosine" if normalize else "dot"
    _write(folder / "config_sentence_transformers.json", {"similarity_fn_name": similarity})
    if normalize:
        (folder / "2_Normalize").mkdir(exist_ok=True)
        # An object store has no empty folders; the module itself has nothing to configure.
        _write(folder / "2_Normalize" / "config.json", {})


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")
