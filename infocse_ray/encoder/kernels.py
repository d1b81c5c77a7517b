"""Which of torch's attention kernels padded batches may use on GPUs."""

from __future__ import annotations

import torch


def leave_out_cudnn_attention(device: torch.device) -> None:
    """Take cuDNN's kernel out of this process's choice, where the device is a GPU.

    torch prefers it on H100s where its cuDNN is recent, and it plans each shape that it hasn't seen, for hundreds of
    milliseconds: batches cut by length are of ever new ones. It may round dropout's probability, too. What is left,
    flash and memory-efficient attention, takes any shape as it comes.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
