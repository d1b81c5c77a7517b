"""Running out of GPU memory: told apart from other errors, and said in one line that names the setting to lower."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from infocse_ray.errors import OutOfMemory

_ELSEWHERE = (
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",  # for which there was no room
    "CUDA error: out of memory",  # a kernel's code, say, that is loaded when it is first used
    "Triton Error [CUDA]: out of memory",  # likewise
)
"""What is said of it by those that allocate for themselves, in errors of no kind of their own."""

MORE = "take a smaller encoder.model, or GPUs with more memory"
"""What helps where no setting does."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a computation failed because memory ran out."""
    return isinstance(error, torch.OutOfMemoryError) or any(name in str(error) for name in _ELSEWHERE)


@contextlib.contextmanager
def advised(what: str, advice: str) -> Iterator[None]:
    """Say what to do where the block runs out of memory.

    Args:
        what: that was too much.
        advice: the setting to change, and how.

    Raises:
        OutOfMemory: in place of torch's error.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(f"out of GPU memory: {what}; {advice}") from error
