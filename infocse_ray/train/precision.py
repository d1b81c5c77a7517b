"""The precision of training: which it is, and whether a backbone can compute in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from infocse_ray.encoder.embed import native_bf16
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.tokenizer import first_line
from infocse_ray.settings import Settings


def autocast_for(settings: Settings, device: torch.device) -> Callable[[], Any]:
    """bf16 autocast where asked for or native to the device; weights stay fp32."""
    precision = settings.encoder.precision
    if precision == "bf16" or (precision == "auto" and native_bf16(device)):
        return lambda: torch.autocast(device.type, torch.bfloat16)
    return contextlib.nullcontext


def check_precision(encoder: SentenceEncoder, settings: Settings) -> None:
    """Try a text in the precision of training, before anything is trained.

    Raises:
        ValueError: the backbone fails in bf16 and not in fp32, as DeBERTa's does under autocast.
    """
    if (autocast := autocast_for(settings, encoder.device)) is contextlib.nullcontext:
        return
    ids = torch.zeros(1, 4, dtype=torch.int64, device=encoder.device)
    try:
        with torch.inference_mode(), autocast():
            encoder.hidden(ids, torch.ones_like(ids))
    except RuntimeError as error:
        with torch.inference_mode():  # what fails so, too, such as a device that is broken or full, isn't bf16's fault
            encoder.hidden(ids, torch.ones_like(ids))
        raise ValueError(
            f"encoder.precision = {settings.encoder.precision}: a {encoder.backbone.config.model_type} model can't be "
            f"trained in bf16 ({first_line(error)}); set it to fp32"
        ) from error
