"""A training checkpoint: weights, optimiser, position in the stream, early stopping; data, never pickles.

Worker 0 writes what all workers share; every worker writes the state of its own lanes, and last a list of its files
with their sizes and digests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from infocse_ray.distributed.collectives import workers
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.sampling.stream import ExampleStream
from infocse_ray.storage.checksums import checked, differs, sizes, verified
from infocse_ray.train.state import TrainState

_LIST = "files-{:05d}.json"


def save_checkpoint(
    folder: Path,
    rank: int,
    state: TrainState,
    stream_state: dict[str, np.ndarray],
    progress: dict[str, Any],
) -> None:
    """Write this worker's files of a checkpoint into `folder`."""
    lanes = f"lanes-{rank:05d}.npz"
    np.savez(folder / lanes, allow_pickle=False, **stream_state)  # pyright: ignore
    if rank == 0:
        whitening = state.encoder.whitening
        power = None if whitening is None else {"whitening": json.dumps(whitening.power)}
        for module, name, said in ((state.encoder, "encoder", power), (state.head, "head", None)):
            weights = {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}
            save_file(weights, folder / f"{name}.safetensors", said)
        torch.save(state.optimizer.state_dict(), folder / "optimizer.pt")
        (folder / "progress.json").write_text(json.dumps(progress))
    # Last: a checkpoint is whole once every worker's list is there, with what it lists.
    mine = [lanes] if rank else [file.name for file in folder.iterdir()]
    (folder / _LIST.format(rank)).write_text(json.dumps(checked({"workers": workers(), "files": sizes(folder, mine)})))


def damage(folder: Path) -> str | None:
    """Why a checkpoint in a local folder can't be used; None if it is intact."""
    number, there = 0, 1
    while number < there:
        try:
            listed = verified((folder / _LIST.format(number)).read_bytes())
        except FileNotFoundError:
            return f"{_LIST.format(number)} is missing"
        if listed is None:
            return f"{_LIST.format(number)}: its content isn't what was written"
        if (wrong := differs(folder, listed)) is not None:
            return ": ".join(wrong)
        number, there = number + 1, listed["workers"]
    return None


def checkpoint_bytes(state: TrainState) -> int:
    """About how many bytes worker 0 writes: every weight, and Adam's two moments of it."""
    return 3 * sum(weight.numel() * weight.element_size() for weight in state.parameters())


def load_checkpoint(folder: Path, state: TrainState, stream: ExampleStream) -> dict[str, Any]:
    """Restore everything from a whole checkpoint that any number of workers wrote; returns `progress`."""
    _load_encoder(folder / "encoder.safetensors", state.encoder)
    state.head.load_state_dict(load_file(folder / "head.safetensors"))
    state.optimizer.load_state_dict(torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True))
    lanes: dict[str, np.ndarray] = {}
    for file in sorted(folder.glob("lanes-*.npz")):
        with np.load(file, allow_pickle=False) as part:
            lanes |= {name: part[name] for name in part.files}
    stream.restore(lanes)
    return json.loads((folder / "progress.json").read_text())


def _load_encoder(file: Path, encoder: SentenceEncoder) -> None:
    """Restore the encoder's weights and its whitening, which may have another shape than the one it has, or be none."""
    weights = load_file(file)
    with safe_open(file, "pt") as opened:  # pyright: ignore[reportPrivateImportUsage]
        said = (opened.metadata() or {}).get("whitening")
    encoder.whitening = None
    if said is not None:
        whitening = Whitening(weights["whitening.mean"], weights["whitening.matrix"], json.loads(said))
        encoder.whitening = whitening.to(encoder.device)
    encoder.load_state_dict(weights)
