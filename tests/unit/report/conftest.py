import pytest

from infocse_ray.report import runner, writer


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots are empty files: drawn after every cell they would take most of the time."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(writer, "plot", lambda *_: b"")


@pytest.fixture(autouse=True)
def encoders_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoders are names alone, which nobody looks for."""
    monkeypatch.setattr(runner, "resolve_encoder", lambda *_: None)
