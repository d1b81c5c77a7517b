"""The sentence-transformers folder layout: backbone at the top, pooling, modules after it, perhaps whitening.

Whitening is a Dense module between two that normalise. Its folder's name and a file beside its weights say what it is,
so that other software sees a module like any other and this library the map with its power, exact to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, get_args

from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from infocse_ray.encoder.folder_config import read_json, read_object, transformer_options
from infocse_ray.encoder.modules import Dense, Normalize, write_dense, write_json
from infocse_ray.encoder.prompts import Prompts
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.settings.section import Pooling

_POOLINGS = f"one of {', '.join(get_args(Pooling))}"

_WHITENING = "whitening.safetensors"

_LEGACY_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}


class Layout(NamedTuple):
    """How token vectors become a sentence vector, as the encoder's folder says."""

    pooling: Pooling | None
    """None when the folder is a plain Hugging Face model."""
    normalize: bool
    """Whether vectors have length 1 before whitening."""
    modules: tuple[tuple[str, str], ...] = ()
    """Type (Dense or Normalize) and path of what comes after pooling, without a Normalize at the end."""
    whitening: str | None = None
    """Path of the whitening module."""
    include_prompt: bool = True
    """Whether a prompt's tokens are pooled."""
    max_seq_length: int | None = None
    """Tokens a text is cut to, special tokens included; None: the folder doesn't say."""
    prompts: Prompts = Prompts({})
    lower_case: bool = False
    """Whether letters are made small before a text is tokenised."""
    truncate_dim: int | None = None
    """Numbers of a vector that are kept; None: all."""


def read_layout(folder: Path, chosen: Pooling | None = None, setting: str = "encoder.model") -> Layout:
    """Read `modules.json` and the pooling it names.

    Args:
        folder: of a sentence-transformers or a plain Hugging Face model.
        chosen: a pooling to use whatever the folder says.
        setting: what error messages call what named the folder.

    Raises:
        ValueError: there is a module, an option of one or a pooling that this library doesn't compute.
    """
    if (folder / "adapter_config.json").exists():
        raise ValueError(
            f"{setting}: {folder} has an adapter (LoRA or such) beside its encoder; merge it into the weights"
        )
    max_seq_length, lower_case = transformer_options(folder, setting)
    listed = folder / "modules.json"
    if not listed.exists():
        return Layout(chosen, False, lower_case=lower_case)
    pooling, include_prompt = chosen, True
    modules: list[tuple[str, str]] = []
    for module in read_json(listed, setting):
        package, _, kind = module["type"].rpartition(".")
        if package.partition(".")[0] != "sentence_transformers":
            raise ValueError(f"{setting}: {folder}: {module['type']} is code of the encoder's own, which is never run")
        match kind:
            case "Transformer":
                if module.get("path"):
                    raise ValueError(
                        f"{setting}: {folder}: the backbone is in {module['path']}/, not at the top of the folder"
                    )
            case "Pooling":
                if modules:
                    raise ValueError(f"{setting}: {folder}: a {modules[0][0]} module before pooling is not supported")
                config = read_object(folder / module["path"] / "config.json", setting)
                pooling = chosen or _pooling(folder, config, setting)
                include_prompt = config.get("include_prompt", True)
            case "Dense" | "Normalize":
                _check_of_sentences(folder / module["path"], setting)
                modules.append((kind, module["path"]))
            case "Dropout":
                pass  # does nothing at inference
            case _:
                raise ValueError(
                    f"{setting}: {folder}: a {kind} module is not supported; only pooling, Dense and normalising are"
                )
    if pooling is None:
        raise ValueError(f"{setting}: {folder} lists no Pooling module; {pooling_fix(setting, _POOLINGS)}")
    whitening = None
    kinds, last = [kind for kind, _ in modules[-3:]], modules[-2][1] if len(modules) > 1 else ""
    if kinds == ["Normalize", "Dense", "Normalize"] and (folder / last / _WHITENING).exists():
        whitening, modules = last, modules[:-2]
    normalize = bool(modules) and modules[-1][0] == "Normalize"
    while modules and modules[-1][0] == "Normalize":
        modules.pop()
    if whitening is not None:
        normalize = _read_whitening(folder / whitening)[1]
    said = _said(folder, setting)
    after, cut = tuple(modules), said.get("truncate_dim")
    prompts = Prompts.read(said)
    return Layout(pooling, normalize, after, whitening, include_prompt, max_seq_length, prompts, lower_case, cut)


def pooling_fix(setting: str, poolings: str) -> str:
    """What to do about a pooling, where `setting` named the encoder."""
    return f"set encoder.pooling to {poolings}" if setting == "encoder.model" else f"name an encoder with {poolings}"


def read_prompts(folder: Path, setting: str = "encoder.model") -> Prompts:
    """The prompts in an encoder's folder."""
    return Prompts.read(_said(folder, setting))


def _said(folder: Path, setting: str) -> dict[str, Any]:
    """What the folder says of the encoder as a whole."""
    file = folder / "config_sentence_transformers.json"
    return read_object(file, setting) if file.exists() else {}


def _check_of_sentences(folder: Path, setting: str) -> None:
    """Refuse a module that reads or writes something else than the sentence vector."""
    path = folder / "config.json"
    said = read_object(path, setting) if path.exists() else {}
    if not {said.get(name) for name in ("module_input_name", "module_output_name")} <= {None, "sentence_embedding"}:
        raise ValueError(
            f"{setting}: {folder} works on token vectors or others, not on sentence vectors alone, "
            "which is not supported"
        )


def _pooling(folder: Path, config: dict[str, Any], setting: str) -> Pooling:
    given = config.get("pooling_mode")
    if given is None:
        on = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
        given = [str(_LEGACY_MODES.get(name, name)) for name in on]
    modes: list[str] = [given] if isinstance(given, str) else [str(mode) for mode in given]
    if len(modes) != 1 or modes[0] not in get_args(Pooling):
        raise ValueError(
            f"{setting}: {folder}: pooling {'+'.join(modes)} is not supported; {pooling_fix(setting, _POOLINGS)}"
        )
    return modes[0]  # pyright: ignore[reportReturnType]


def read_whitening(folder: Path) -> Whitening:
    """The whitening in a module's folder."""
    return _read_whitening(folder)[0]


def _read_whitening(folder: Path) -> tuple[Whitening, bool]:
    """The whitening, and whether vectors have length 1 before it, which training without it has to know."""
    with safe_open(folder / _WHITENING, "pt") as file:  # pyright: ignore[reportPrivateImportUsage]
        said = json.loads(file.metadata()["whitening"])
        whitening = Whitening(file.get_tensor("mean"), file.get_tensor("matrix"), said["power"])
    return whitening, said["normalize"]


def write_whitening(folder: Path, whitening: Whitening, normalize: bool) -> None:
    """Write a whitening as a Dense module's folder, and beside that what a Dense module can't say.

    Args:
        folder: of the module.
        whitening: the map.
        normalize: whether vectors have length 1 before it.
    """
    write_dense(folder, whitening.matrix.mT, whitening.bias(), "Identity")
    # Not in the module's configuration: releases of the library from before 5.7 refuse a key that they don't know.
    said = json.dumps({"power": whitening.power, "normalize": normalize})
    tensors = {name: tensor.cpu().contiguous() for name, tensor in whitening.state_dict().items()}
    save_file(tensors, folder / _WHITENING, {"whitening": said})


def write_layout(
    folder: Path,
    dimension: int,
    pooling: Pooling,
    normalize: bool,
    max_seq_length: int | None,
    modules: Iterable[nn.Module] = (),
    whitening: Whitening | None = None,
    prompts: Prompts = Prompts({}),  # noqa: B008
    include_prompt: bool = True,
    lower_case: bool = False,
) -> None:
    """Write everything of the layout but the backbone and the tokenizer.

    Args:
        folder: where those two are.
        dimension: of the token vectors.
        pooling: how they become one.
        normalize: whether sentence vectors have length 1 (before whitening).
        max_seq_length: tokens a text is cut to, special tokens included; None: not said.
        modules: Dense and Normalize modules after pooling.
        whitening: what comes last.
        prompts: what is put before texts.
        include_prompt: whether a prompt's tokens are pooled.
        lower_case: whether letters are made small before a text is tokenised.
    """
    names = ["Transformer", "Pooling"]
    after = [*modules, *([Normalize()] if normalize or whitening is not None else [])]
    after += [whitening, Normalize()] if whitening is not None else []
    for number, module in enumerate(after, start=2):
        names.append(type(module).__name__)
        place = folder / f"{number}_{names[-1]}"
        if isinstance(module, Whitening):
            write_whitening(place, module, normalize)
        elif isinstance(module, (Dense, Normalize)):
            module.save(place)
        else:
            raise TypeError(f"no module of a folder: {names[-1]}")
    listed = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{name}",
            "type": f"sentence_transformers.models.{'Dense' if name == 'Whitening' else name}",
        }
        for i, name in enumerate(names)
    ]
    pooling_config = {"word_embedding_dimension": dimension} | {
        mode: pooling == name for mode, name in _LEGACY_MODES.items()
    }
    if not include_prompt:
        pooling_config["include_prompt"] = False
    write_json(folder / "modules.json", listed)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_seq_length, "do_lower_case": lower_case})
    write_json(folder / "1_Pooling" / "config.json", pooling_config)
    similarity = "cosine" if names[-1] == "Normalize" else "dot"
    write_json(folder / "config_sentence_transformers.json", prompts.config() | {"similarity_fn_name": similarity})
