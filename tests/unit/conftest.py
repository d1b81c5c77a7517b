from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.unit.passes import Passes, encoder_in

# How long an example takes depends on what else the machine does.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch, tiny_encoder: Path) -> Passes:
    """The annotate stage in this process, with the tiny encoder."""
    return Passes(monkeypatch, encoder_in(tiny_encoder))


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    # On a busy machine many tiny products would mostly wait for each other's threads.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that matplotlib makes from now on."""
    figure = pytest.importorskip("matplotlib.figure")
    kept: list[Any] = []

    class Kept(figure.Figure):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            kept.append(self)

    monkeypatch.setattr(figure, "Figure", Kept)
    return kept
