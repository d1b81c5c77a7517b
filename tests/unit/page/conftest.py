import pytest
from matplotlib.figure import Figure


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots have nothing in them: a page's fourteen take most of the time."""
    monkeypatch.setattr(Figure, "savefig", lambda _, out, **__: out.write("<svg></svg>"))
