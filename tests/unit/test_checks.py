"""What a run asks of its corpus: what is validated on, what is trained on, and what is too small."""

from __future__ import annotations

from typing import Any

import pytest

from infocse_ray.corpus.store import TokenStore
from infocse_ray.loop.checks import check_sizes, training_splits, validation_of
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage


def settings(on: str = "auto", **corpus: Any) -> Settings:
    return Settings.model_validate(
        {"name": "r", "corpus": {"source": "a", **corpus}, "encoder": {"model": "m"}, "validate": {"on": on}}
    )


def store(documents: int = 500, labelled: int = 0) -> TokenStore:
    summary = {"documents": {"train": 4000, "valid": documents, "test": 500}, "labelled": {"valid": labelled}}
    return TokenStore(Storage("nowhere"), "f", summary | {"lanes": 64})


@pytest.mark.parametrize(
    ("asked", "labelled", "on"),
    [("auto", 9, "counterpart"), ("auto", 0, "sentence"), ("halves", 9, "halves"), ("sentence", 9, "sentence")],
)
def test_what_is_validated_on(asked, labelled, on):
    assert validation_of(settings(asked), store(labelled=labelled)) == on


def test_counterparts_that_are_not_there():
    with pytest.raises(ValueError, match=r"^validate\.on = counterpart: .* or set validate.on to sentence$"):
        validation_of(settings("counterpart"), store())


def test_what_validates_without_labels_stays_unseen():
    everything = ["train", "valid", "test"]
    assert training_splits(settings(), "counterpart") == everything
    for on in ("sentence", "halves"):
        assert training_splits(settings(), on) == ["train", "test"]
    assert training_splits(settings(unlabelled="train"), "sentence") == ["train"]


def test_a_validation_that_is_too_small(capsys):
    def check(there: TokenStore, on: Any) -> str:
        check_sizes(settings(), there, ["train"], on, 1, trains=True)
        return capsys.readouterr().out

    assert check(store(100), "sentence") == check(store(2, 100), "counterpart") == ""
    said = "warning: only 40 validation {}: recall is known to about ± 0.15\n"
    assert check(store(40), "sentence") == said.format("documents")
    assert check(store(500, 40), "counterpart") == said.format("questions")
    with pytest.raises(ValueError, match=r"^corpus\.valid_fraction = 0\.1: 1 documents or counterparts"):
        check(store(1), "sentence")
