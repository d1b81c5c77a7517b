"""An encoder in a folder that this machine hasn't."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.storage.folder import Storage


def test_a_node_without_the_storage_says_so_and_not_that_the_encoder_is_none(tmp_path: Path) -> None:
    gone = EncoderFolder(Storage.open(str(tmp_path / "runs" / "model")), "f", 16)
    with pytest.raises(
        ValueError, match=r"^storage: /.*/runs/model isn't there on .*; mount one folder under this path"
    ):
        gone.load()
