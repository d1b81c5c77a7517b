"""An index whose folder is replaced while it is open, and one whose folder can't be written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.errors import IndexReplaced
from infocse_ray.search.index import Index
from infocse_ray.search.server import SearchServer
from infocse_ray.settings.search import Search
from tests.unit.indexes import TEXTS, Text, write_index
from tests.unit.search.test_server import get, running

lance = pytest.importorskip("lance")

MORE = [*TEXTS, Text("isle", ["An island in a storm.", "The tide there."])]


def replace(live: Path, tmp_path: Path, encoder: Path, **settings: Any) -> None:
    """Move the folder away, and one with another document into its place."""
    live.rename(tmp_path / "old")
    shutil.move(write_index(tmp_path / "tonight", encoder, MORE, **settings).path, live)
    shutil.rmtree(tmp_path / "old")


@pytest.mark.parametrize("settings", [{}, {"format": "lance"}, {"sentences": True}])
def test_an_open_index_that_is_replaced_says_so(tmp_path: Path, tiny_encoder: Path, settings: dict[str, Any]):
    live = Path(write_index(tmp_path, tiny_encoder, **settings).path)
    best = 0.5 if settings.get("sentences") else 0.0
    index = Index(live, words=0.5, best_sentence=best)
    assert index.search("tide", top=1)
    replace(live, tmp_path, tiny_encoder, **settings)
    asks: list[Callable[[], Any]] = [
        lambda: index.search("storm"),
        lambda: index.search(["storm"]),
        lambda: index.search("storm", where="doc_id <> 'x'"),
        lambda: index.like("sea"),
        lambda: index.title_of("sea"),
    ]
    for ask in asks:
        with pytest.raises(IndexReplaced, match=r"^index = '.*index': files of it are gone; it was replaced, or"):
            ask()
    again = index.again()
    assert len(again) == len(MORE)
    assert (again.words, again.best_sentence) == (0.5, best)
    with pytest.raises(ValueError, match=r"^where = 'nothing > 1': "):
        again.search("storm", where="nothing > 1")


def test_the_page_goes_on_with_what_took_its_place(tmp_path: Path, tiny_encoder: Path, capsys):
    live = Path(write_index(tmp_path, tiny_encoder).path)
    index = Index(live, words=0.0, best_sentence=0.0)
    settings = Search(index=str(live), serve=True, port=0, top=9)
    with SearchServer([index], settings) as server, running(server):
        assert b'"isle"' not in get(server, "/search?q=tide")[2]
        replace(live, tmp_path, tiny_encoder)
        for path in ("/search?q=tide", "/search?like=isle"):
            status, _, content = get(server, path)
            assert status == 200
            assert b"isle" in content
        assert capsys.readouterr().out.count("opened: open it again; done") == 1
        there = server.indexes
        server.open_again([index])
        assert server.indexes is there, "another request has done that"
        shutil.rmtree(live)
        assert get(server, "/search?q=tide")[0] == 500


@pytest.mark.parametrize("said", ["LanceError(IO): Read-only file system (os error 30), a.rs:1:2", "AccessDenied: 403"])
def test_where_nothing_can_be_written_it_is_said_what_helps(
    tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch, said: str
):
    output = write_index(tmp_path, tiny_encoder)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(said)

    monkeypatch.setattr(lance, "write_dataset", refuse)
    with pytest.raises(ValueError, match=r"^index = '.*': its first search copies .* search it once where it can"):
        Index(str(output))
