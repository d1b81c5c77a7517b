"""What a run asks of its corpus: what is validated on, what is trained on, and what is too small."""

from __future__ import annotations

from typing import Any

import pytest

from infocse_ray.corpus.store import TokenStore
from infocse_ray.loop.checks import check_sizes, training_splits, validation_of, warn_of_no_counterparts
from infocse_ray.loop.run import _within_lanes
from infocse_ray.runtime.placement import Placement
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage


def settings(on: str = "auto", **corpus: Any) -> Settings:
    return Settings.model_validate(
        {"name": "r", "corpus": {"source": "a", **corpus}, "encoder": {"model": "m"}, "validate": {"on": on}}
    )


def store(documents: int = 500, labelled: int = 0, train: int = 4000, **more: Any) -> TokenStore:
    summary = {"documents": {"train": train, "valid": documents, "test": 500}, "labelled": {"valid": labelled}}
    return TokenStore(Storage("nowhere"), "f", summary | {"lanes": 64} | more)


@pytest.mark.parametrize(
    ("asked", "labelled", "on"),
    [
        ("auto", 9, "counterpart"),
        ("auto", 0, "sentence"),
        ("halves", 9, "halves"),
        ("sentence", 9, "sentence"),
        ("readings", 9, "readings"),
    ],
)
def test_what_is_validated_on(asked, labelled, on):
    assert validation_of(settings(asked), store(labelled=labelled)) == on


def test_counterparts_that_are_not_there():
    with pytest.raises(ValueError, match=r"^validate\.on = counterpart: .* or set validate.on to sentence$"):
        validation_of(settings("counterpart"), store())


def test_what_validates_without_labels_stays_unseen():
    everything = ["train", "valid", "test"]
    assert training_splits(settings(), "counterpart") == everything
    for on in ("sentence", "halves", "readings"):
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


def said(there: TokenStore, capsys: pytest.CaptureFixture[str], **more: Any) -> str:
    content = settings().model_dump() | {"train": {"batch_size": 2, **more.pop("train", {})}, **more}
    check_sizes(Settings.model_validate(content), there, ["train"], "sentence", 1, trains=True)
    return capsys.readouterr().out


def test_too_few_documents_to_learn_from(capsys):
    assert said(store(train=50), capsys) == ""
    assert "warning: only 49 documents to train on: so few teach" in said(store(train=49), capsys)
    with pytest.raises(ValueError, match=r"^corpus\.source: 1 documents to train on, and the negatives of an example"):
        said(store(train=1), capsys)


def test_a_score_that_so_few_questions_can_not_miss(capsys):
    recall = {"metric": "recall@5"}
    assert "recall@5 of 5 is near 1 whatever the encoder" in said(store(5), capsys, validate=recall)
    assert "whatever the encoder" not in said(store(6), capsys, validate=recall) + said(store(5), capsys)


def test_a_k_that_divides_no_document(capsys):
    warned = said(store(longest=58), capsys, annotate={"k": 1000})
    assert warned == (
        "warning: annotate.k = 1000: the longest document has 58 sentences, so that every document is one cluster, "
        "whatever its sentences say; set it to less than 57 (the paper's is 1)\n"
    )
    assert said(store(longest=58), capsys, annotate={"k": 57})
    for k, longest in ((56, 58), (1, 2)):
        assert said(store(longest=longest), capsys, annotate={"k": k}) == ""
    assert said(store(), capsys, annotate={"k": 1000}) == ""
    assert said(store(longest=58), capsys, annotate={"k": 1000}, train={"method": "cpc"}) == ""


def test_a_first_encoder_where_nothing_is_annotated(capsys):
    first = {"first_encoder": "other"}
    warned = said(store(), capsys, annotate=first, train={"method": "simcse"})
    assert warned == (
        "warning: annotate.first_encoder = 'other': train.method = simcse annotates nothing and doesn't read it; "
        "leave it out\n"
    )
    assert said(store(), capsys, annotate=first) == said(store(), capsys, train={"method": "simcse"}) == ""


def test_tokens_that_the_steps_never_reach(capsys):
    asked: dict[str, Any] = {"batch_size": 10, "max_steps": 100}
    there = store(tokens=60_000, sentences=5_000)
    warned = said(there, capsys, train=asked | {"max_tokens": 40_000})
    assert warned == (
        "warning: train.max_tokens = 40,000: train.max_steps = 100 ends a training after some 24,000 tokens; raise it, "
        "too, or leave train.max_tokens out\n"
    )
    assert said(there, capsys, train=asked | {"max_tokens": 24_000}) == said(there, capsys, train=asked) == ""
    assert said(there, capsys, train=asked | {"max_tokens": 40_000, "method": "ict"}) == "", "whose texts are longer"


def test_a_warm_up_as_long_as_the_training(capsys):
    warned = said(store(), capsys, train={"warmup_steps": 1000, "max_steps": 1000})
    assert warned == (
        "warning: train.warmup_steps = 1000: a training has 1,000 steps at most (train.max_steps), and its learning "
        "rate would rise to its end; lower it\n"
    )
    assert said(store(), capsys, train={"warmup_steps": 999, "max_steps": 1000}) == ""
    assert said(store(), capsys, train={"warmup_steps": 9, "max_steps": 9}, minutes=5) != "", (
        "which has no more of them"
    )


@pytest.mark.parametrize(
    ("asked", "where", "found"),
    [
        ("auto", Placement(8, True, 1), 4),
        ("auto", Placement(3, True, 1), 3),
        ([2, 8], Placement(8, True, 1, 2), 4),
        ([6, 8], Placement(8, True, 1, 6), 8),  # who asks for more than there are lanes is told
        (8, Placement(8, True, 1), 8),
    ],
)
def test_training_is_on_no_more_workers_than_lanes_unless_they_are_asked_for(asked, where, found, capsys):
    given = Settings.model_validate(
        {"name": "x", "encoder": {"model": "m"}, "corpus": {"source": "c"}, "train": {"num_workers": asked}}
    )
    assert _within_lanes(where, given, store(lanes=4)).workers == found
    assert ("training on at most 4 of 8 workers" in capsys.readouterr().out) == (found == 4)


@pytest.mark.parametrize(
    ("counterpart", "labelled", "said"), [("title", 0, True), ("title", 1, False), (None, 0, False)]
)
def test_a_named_column_without_a_text_is_said(
    counterpart: str | None, labelled: int, said: bool, capsys: pytest.CaptureFixture[str]
):
    corpus = settings(**({} if counterpart is None else {"counterpart": counterpart})).corpus
    warn_of_no_counterparts(corpus, store(labelled=labelled))
    out = capsys.readouterr().out
    assert out.startswith("warning: corpus.counterpart = 'title': no document has a text there") if said else not out
