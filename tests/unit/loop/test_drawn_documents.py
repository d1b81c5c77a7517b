"""Drawn labels have a copy of their documents, which is what is trained on; a whole corpus of labels has none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.loop import drawn_documents as module
from infocse_ray.loop.drawn_documents import drawn_examples
from infocse_ray.loop.identity import labelled_documents_identity
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.sampling.shards import Shards
from infocse_ray.storage.folder import Storage
from tests.unit.stores import SPEC


@pytest.mark.parametrize(
    ("size", "share", "expected"),
    [
        (9, 0.0, "copied"),
        (9, 0.5, "copied"),
        (10, 0.0, None),
        (10, 0.5, "counted"),
        ("all", 0.5, "counted"),
        ("all", 0.0, None),
    ],
)
def test_labels_of_many_documents_are_not_copied(
    size: int | str, share: float, expected: str | None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
):
    """They would be the corpus again; their documents are those of the train split, as they are."""
    last = None if size == "all" else 5
    root, corpus = Storage.open(str(tmp_path)), Shards(Storage("corpus"), "store", 6, 3, ["train", "test"], True)
    run: Any = SimpleNamespace(
        settings=SimpleNamespace(plusplus=SimpleNamespace(label_share=share), labels=SimpleNamespace(train_size=size)),
        store=SimpleNamespace(fingerprint="store", summary={"lanes": 3, "documents": {"train": 99}}),
        iteration_stages=SimpleNamespace(root=root, labelled=lambda: corpus),
        folder=root / "run",
        manifest=SimpleNamespace(add=lambda *_: None),
        inputs=SimpleNamespace(encoder=None),
    )
    summaries = {name: {"documents": 3, "said": name} for name in ("copied", "counted")}
    monkeypatch.setattr(module, "copy_labelled", lambda *_: summaries["copied"])
    monkeypatch.setattr(module, "count_examples", lambda *_: summaries["counted"])
    monkeypatch.setattr(module.EncoderSpec, "of", lambda _: SPEC)
    examples = drawn_examples(run, LabelSample(1, last))
    if expected is None:
        assert examples is None, "fine-tuning counts them itself"
        return
    assert examples is not None
    assert examples.summary["said"] == expected
    source = examples.source
    assert (source.splits, source.labels) == (["train"], True)
    assert (source.fingerprint == "store") == (source.shards == 6) == (expected == "counted")


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_copies_other_documents_where_it_draws(seed: int):
    def named(store: str, of: int, last: int | None, copied: bool = True) -> str:
        return labelled_documents_identity(store, LabelSample(of, last), copied)

    assert named("store", seed, None, False) == named("store", 7, None, False) != named("other", 7, None, False)
    different = [(seed, None, False), (7, 5, True), (seed, 5, True), (seed, 6, True), (seed, 5, False)]
    assert len({named("store", *of) for of in different}) == len(different)
