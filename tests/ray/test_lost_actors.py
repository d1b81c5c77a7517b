"""Actors that die every time they are asked: they are started again so often, and then it is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.annotate import actor
from infocse_ray.annotate.actor import in_actors
from infocse_ray.annotate.annotator import Annotator
from infocse_ray.runtime.failures import process_lost
from infocse_ray.runtime.placement import Placement
from tests.unit.passes import encoder_in

pytestmark = pytest.mark.usefixtures("ray_cluster")


def dies(annotator: Annotator, group: list[int]) -> list[dict[str, Any]]:
    """As one whose memory a node doesn't have."""
    os._exit(1)


def test_it_comes_to_an_end(tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(actor, "_RESTARTS", 1)
    encoder = encoder_in(tiny_encoder)
    with pytest.raises(Exception) as lost:  # noqa: PT011
        list(in_actors([[0]], encoder, "fp32", Placement(1, False, 1), dies))  # pyright: ignore
    assert process_lost(lost.value)
