"""What trainings have in common that make an encoder to compare with, outside this library's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from infocse_ray.encoder.embed import native_bf16


def make_empty(folder: str) -> None:
    """Make a folder, and write over nothing: that it can't be written is no news after hours of training.

    Raises:
        ValueError: something is there, or it can't be made.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        there = any(Path(folder).iterdir())
    except FileExistsError:
        there = True
    except OSError as error:
        raise ValueError(f"--to {folder}: can't be written ({error.strerror}); name another folder") from None
    if there:
        raise ValueError(f"--to {folder}: is there already; name another folder")


def take_step(loss_of: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, device: torch.device) -> float:
    """One step, gradients clipped to norm 1, in bf16 where the device has it.

    Args:
        loss_of: computes the loss, a scalar.
        optimizer: of all that it depends on.
        device: that it is computed on.

    Returns:
        The loss.
    """
    with torch.autocast(device.type, torch.bfloat16, enabled=native_bf16(device)):
        loss = loss_of()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)
    optimizer.step()
    return loss.item()
