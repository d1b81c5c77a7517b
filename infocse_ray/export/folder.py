"""The folder that an export writes, and may write more to: the encoder's files, its graphs, a card, `export.json`.

`export.json` says which encoder it is of and what each form came to. It is written before anything else, without forms,
so that whoever comes again after a stop knows the folder for its own, and again at the end.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.storage.folder import Storage, is_remote, without_query

NAME = "export.json"
_FORMAT = 1
_WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")


def place_of(model: str, output: str | None, form: str, dimensions: int | None) -> Storage:
    """Where to write.

    Args:
        model: as the user named it.
        output: the same of the folder; None: beside the model.
        form: the format.
        dimensions: that are kept, where not all are.

    Raises:
        ValueError: there is no folder beside a model of the hub, or it is the model's own, in that, or a file.
    """
    own = Storage.open(model)
    if output is not None:
        target = Storage.lasting(output, "output")
        inside = without_query(target.uri).rstrip("/") + "/"
        if inside.startswith(without_query(own.uri).rstrip("/") + "/"):  # in which `infocse push` would refuse it
            raise ValueError(f"output = {output!r}: is the model's own folder, or in it; name another")
        return target
    if not is_remote(model) and not own.exists():
        raise ValueError(f"output: is needed where model = {model!r} is a name on the hub; name a folder to write")
    parts = [form] * (form != "torch") + [str(dimensions)] * (dimensions is not None)
    # Of a local folder the whole path: beside `.` is not in it.
    uri, mark, query = model.partition("?") if is_remote(model) else (own.uri, "", "")
    return Storage.open(f"{uri.rstrip('/')}_{'_'.join(parts)}{mark}{query}")


def begin(target: Storage, encoder: SentenceEncoder, original: int) -> dict[str, Any]:
    """Take the folder.

    Args:
        target: the folder.
        encoder: what it is for, cut to its dimensions.
        original: dimensions before the cut.

    Returns:
        What `export.json` says, with the forms that are there already.

    Raises:
        ValueError: something else is there, or it can't be written.
    """
    Storage.for_runs(target.uri, "output")
    content = {
        "format": _FORMAT,
        "of": _fingerprint(encoder),
        "dimensions": encoder.dimension,
        "dimensions_of_original": original,
        "exports": {},
    }
    if target.files():
        try:
            there = (target / NAME).read_json()
        except (OSError, ValueError):
            there = {}
        if not isinstance(there, dict) or there.get("of") != content["of"]:
            raise ValueError(f"output = {str(target)!r}: something else is there; name another folder, or remove it")
        return there
    (target / NAME).write_json(content)
    return content


def refuse_export(folder: Path, model: str) -> None:
    """Refuse to export an export.

    Raises:
        ValueError: it is one.
    """
    if (folder / NAME).exists() and not list(folder.glob("model*.safetensors")):
        raise ValueError(f"model = {model!r}: is an export itself; name the model that it was made of")


def save_encoder(encoder: SentenceEncoder, folder: Path, weights: bool) -> None:
    """Write the encoder's own files.

    Args:
        encoder: what is exported.
        folder: on this machine.
        weights: with those of the backbone, for torch.
    """
    encoder.save(folder)
    if not weights:
        for pattern in _WEIGHTS:
            for file in folder.glob(pattern):
                file.unlink()


def read_export(folder: Path) -> dict[str, Any] | None:
    """What the `export.json` of a folder says; None: it has none."""
    try:
        return json.loads((folder / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _fingerprint(encoder: SentenceEncoder) -> str:
    """Of what is exported, whatever texts are cut to in the check."""
    plain = copy.copy(encoder)
    plain.max_length = 0
    return plain.fingerprint()
