"""What a run keeps of the questions that moved, for its page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from infocse_ray.loop import outcome
from infocse_ray.retrieval.examples import Texts
from infocse_ray.storage.folder import Storage
from tests.unit.retrieval.test_examples import key, ranks, tokenizer, written
from tests.unit.stores import write_store


def test_more_is_kept_than_is_said(tmp_path, monkeypatch, capsys):
    root = Storage.open(str(tmp_path))
    store = write_store(root / "store", written(), 2)
    x, y, z = (key(label) for label in "xyz")
    before = ranks(root, "before", {("d0", x): (9, y), ("d1", y): (300, x), ("d2", z): (2, z)})
    after = ranks(root, "after", {("d0", x): (1, x), ("d1", y): (200, x), ("d2", z): (40, y)})
    monkeypatch.setattr(outcome, "_SAID", 1)
    run = cast(Any, SimpleNamespace(folder=root / "news"))
    outcome._show_moves(run, before, after, Texts(store, tokenizer(), "test", "counterpart"))
    kept = (root / "news" / "moved.json").read_json()
    assert kept["questions"] == {"up": 2, "down": 1, "same": 0}
    assert [one["doc_id"] for one in kept["moved"]] == ["d2", "d0", "d1"]
    assert kept["moved"][1]["tops"][1] == [{"text": "x", "true": True}]
    assert (kept["split"], kept["on"]) == ("test", "counterpart")
    said = capsys.readouterr().out
    assert "d2: " in said
    assert "d0: " not in said


def test_nothing_moved(tmp_path, capsys):
    root = Storage.open(str(tmp_path))
    store = write_store(root / "store", written(), 2)
    same = ranks(root, "before", {("d0", key("x")): (9, key("y"))})
    run = cast(Any, SimpleNamespace(folder=root / "news"))
    outcome._show_moves(run, same, same, Texts(store, tokenizer(), "test", "counterpart"))
    assert (root / "news" / "moved.json").read_json()["moved"] == []
    assert capsys.readouterr().out == ""
