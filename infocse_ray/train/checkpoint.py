"""A training checkpoint: weights, optimiser, position in the stream, early stopping; data, never pickles.

Worker 0 writes what all workers share; every worker writes the state of its own lanes, and last a list of its files
with their sizes and digests. What they write was copied to host memory first, so that training goes on meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from infocse_ray.distributed.collectives import workers
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.sampling.mixed_stream import Stream
from infocse_ray.storage.checksums import OTHER, checked, differs, sizes, verified
from infocse_ray.train.state import TrainState

_LIST = "files-{:05d}.json"

WHOLE = _LIST.format(0)
"""What worker 0 writes last; with one worker a checkpoint that has it is whole."""


class _Shared(NamedTuple):
    """What all workers have alike, and worker 0 writes."""

    weights: dict[str, dict[str, torch.Tensor]]
    """Of the encoder and of the head, by file."""
    whitening: dict[str, str] | None
    """The encoder's, as far as it isn't among the weights."""
    optimizer: dict[str, Any]
    progress: str
    """As JSON."""


class Snapshot(NamedTuple):
    """A worker's part of a checkpoint in host memory: no step that follows changes it."""

    rank: int
    workers: int
    lanes: dict[str, np.ndarray]
    shared: _Shared | None
    """None: another worker's part has it."""

    @classmethod
    def of(
        cls, rank: int, state: TrainState, stream_state: dict[str, np.ndarray], progress: dict[str, Any]
    ) -> Snapshot:
        """The training as it is.

        Args:
            rank: of this worker; worker 0 copies weights and optimiser, a device's once it has computed them.
            state: of the training.
            stream_state: of this worker's lanes, kept by nobody else.
            progress: what JSON can hold.
        """
        shared = None
        if rank == 0:
            whitening = state.encoder.whitening
            shared = _Shared(
                _copied({"encoder": dict(state.encoder.state_dict()), "head": dict(state.head.state_dict())}),
                None if whitening is None else {"whitening": json.dumps(whitening.power)},
                _copied(state.optimizer.state_dict()),
                json.dumps(progress),
            )
        return cls(rank, workers(), stream_state, shared)

    @property
    def nbytes(self) -> int:
        """About how many bytes `write` writes."""
        tensors = [] if self.shared is None else _tensors([self.shared.weights, self.shared.optimizer])
        return sum(array.nbytes for array in [*self.lanes.values(), *tensors])

    def write(self, folder: Path) -> None:
        """Write this worker's files of the checkpoint into a local folder."""
        lanes = f"lanes-{self.rank:05d}.npz"
        np.savez(folder / lanes, allow_pickle=False, **self.lanes)  # pyright: ignore
        if (shared := self.shared) is not None:
            for name, weights in shared.weights.items():
                save_file(weights, folder / f"{name}.safetensors", shared.whitening if name == "encoder" else None)
            torch.save(shared.optimizer, folder / "optimizer.pt")
            (folder / "progress.json").write_text(shared.progress)
        # Last: a checkpoint is whole once every worker's list is there, with what it lists.
        mine = [lanes] if self.rank else [file.name for file in folder.iterdir()]
        listed = checked({"workers": self.workers, "files": sizes(folder, mine)})
        (folder / _LIST.format(self.rank)).write_text(json.dumps(listed))


def _copied(value: Any) -> Any:
    """Dicts and lists with copies, in host memory, of the tensors in them."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Those in dicts and lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _tensors(inner)


def damage(folder: Path) -> str | None:
    """Why a checkpoint in a local folder can't be used; None if it is intact."""
    number, there = 0, 1
    while number < there:
        try:
            listed = verified((folder / _LIST.format(number)).read_bytes())
        except FileNotFoundError:
            return f"{_LIST.format(number)} is missing"
        if listed is None:
            return f"{_LIST.format(number)}: {OTHER}"
        if (wrong := differs(folder, listed)) is not None:
            return ": ".join(wrong)
        number, there = number + 1, listed["workers"]
    return None


def load_checkpoint(folder: Path, state: TrainState, stream: Stream) -> dict[str, Any]:
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
