"""The modules of sentence-transformers that may stand between pooling and the sentence vector."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

_ACTIVATIONS = {
    *("Identity", "Tanh", "ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish"),
    *("Sigmoid", "LogSigmoid", "Softplus", "Softsign", "Tanhshrink", "Hardtanh", "Hardsigmoid", "Hardswish"),
}
"""Activations of torch.nn without weights; sentence-transformers keeps their names and no options."""


class Dense(nn.Module):
    """A linear layer and an activation, float32 [n, d] to [n, d_out].

    Attributes:
        linear: with or without a bias.
        activation: one of torch.nn that has no weights.
    """

    def __init__(self, linear: nn.Linear, activation: nn.Module) -> None:
        super().__init__()
        self.linear = linear
        self.activation = activation

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Vectors of the other dimension."""
        return self.activation(self.linear(vectors))

    def save(self, folder: Path) -> None:
        """Write the module's folder as sentence-transformers does."""
        write_dense(folder, self.linear.weight, self.linear.bias, type(self.activation).__name__)

    @classmethod
    def load(cls, folder: Path, where: str) -> Dense:
        """Read a module's folder.

        Args:
            folder: with `config.json` and `model.safetensors`.
            where: what error messages begin with.

        Raises:
            ValueError: it computes what this library doesn't, or has no safetensors that fit its configuration.
        """
        if not (folder / "config.json").exists():
            raise ValueError(f"{where}: {folder.name}/config.json, of a Dense module, is missing")
        config = json.loads((folder / "config.json").read_text())
        path = config.get("activation_function", "torch.nn.modules.activation.Tanh")  # the library's default
        package, _, activation = path.rpartition(".")
        if not package.startswith("torch.nn.") or activation not in _ACTIVATIONS:
            raise ValueError(f"{where}: activation {path} of {folder.name}/ is not supported; Tanh, GELU and such are")
        if config.get("use_residual"):
            raise ValueError(f"{where}: {folder.name}/ adds its input to its output, which is not supported")
        linear = nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
        try:
            weights = load_file(folder / "model.safetensors")
            linear.load_state_dict({name.removeprefix("linear."): weight.float() for name, weight in weights.items()})
        except (OSError, RuntimeError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{where}: the weights of {folder.name}/ can't be loaded as safetensors: {reason}; save the encoder "
                "again with SentenceTransformer(...).save_pretrained(...)"
            ) from error
        return cls(linear, getattr(nn, activation)())


class Normalize(nn.Module):
    """Vectors scaled to length 1."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Of the same shape."""
        return nn.functional.normalize(vectors, dim=-1)

    def save(self, folder: Path) -> None:
        """Write the module's folder as sentence-transformers does."""
        # An object store has no empty folders; the module itself has nothing to configure.
        write_json(folder / "config.json", {})


def write_dense(folder: Path, weight: torch.Tensor, bias: torch.Tensor | None, activation: str) -> None:
    """Write a Dense module's folder: weight float [d_out, d], bias float [d_out], the name of an activation."""
    linear = nn.modules.linear if activation == "Identity" else nn.modules.activation
    config = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": bias is not None,
        "activation_function": f"{linear.__name__}.{activation}",
    }
    write_json(folder / "config.json", config)
    tensors = {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias})
    save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, folder / "model.safetensors")


def write_json(path: Path, value: object) -> None:
    """Write a file of a module, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")
