"""Print figures as Markdown."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from pathlib import Path

import torch

from infocse_ray.encoder.embed import native_bf16


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print Markdown; all columns but the first are figures."""
    print("\n| " + " | ".join(head) + " |\n| --- |" + " ---: |" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def spread(values: list[float], digits: int = 0) -> str:
    """All measurements, in the order they were taken."""
    return ", ".join(f"{value:,.{digits}f}" for value in values)


def notes(*paragraphs: str) -> None:
    """Print how the figures were taken, and the machine."""
    print("", *(f"{paragraph}\n" for paragraph in paragraphs), machine(), sep="\n")


def machine() -> str:
    """Versions and hardware in one line."""
    names = ("infocse-ray", "torch", "transformers", "sentence-transformers", "ray", "numpy")
    versions = ", ".join(f"{name} {_version(name)}" for name in names)
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "the CPU"
    bf16 = "native bf16" if native_bf16(device) else "no native bf16"
    return f"Machine: {cpu}, {cores} cores; device: {name} ({bf16}). Python {platform.python_version()}, {versions}."


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
