import pytest

from infocse_ray.report import writer


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots are empty files: drawn after every cell they would take most of the time."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(writer, "plot", lambda *_: b"")
