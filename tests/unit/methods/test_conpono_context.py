"""CONPONO as a baseline encodes passages, as published; what initialises InfoCSE encodes sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import offsets_of
from infocse_ray.loop.inputs import check
from infocse_ray.methods.conpono import CONPONO
from infocse_ray.methods.registry import Use, method_of
from infocse_ray.settings import CONPONOSettings, Settings, Train
from tests.conftest import make_documents, write_jsonl
from tests.unit.stores import SPEC
from tests.unit.trainees import document, ragged, views_of


def conpono(initializes: bool, context: int | None = None) -> CONPONO:
    return CONPONO(CONPONOSettings(context=context), Train(), SPEC, initializes)


@pytest.mark.parametrize(("initializes", "expected"), [(False, 4), (True, 1)])
def test_the_default_depends_on_the_use(initializes: bool, expected: int):
    method = conpono(initializes)
    doc = document([[n] for n in range(12)])
    passage, *targets = views_of(method, method.open(doc), 5)
    assert passage == (0, list(range(5, 5 + expected)))
    assert len(targets) == 4
    assert method.open(doc).examples.tolist() == [12 - expected + 1]
    assert method.short.startswith(f"fewer than {2 * expected} sentences")
    # As if it had been set.
    set_so = conpono(not initializes, expected)
    assert method.identity() == set_so.identity()
    assert method.count_identity() == set_so.count_identity()


def test_a_sentence_predicts_its_neighbours():
    method = CONPONO(CONPONOSettings(targets=8, offsets=1), Train(), SPEC, initializes=True)
    assert views_of(method, method.open(document([[n] for n in range(12)])), 5) == [(0, [5]), (1, [6]), (2, [4])]


@pytest.mark.parametrize("context", [1, 2, 4])
def test_what_is_set_holds_for_both_uses(context: int):
    for initializes in (False, True):
        method = conpono(initializes, context)
        assert views_of(method, method.open(document([[n] for n in range(12)])), 0)[0] == (0, list(range(context)))


def test_what_is_counted_is_what_is_dealt():
    sizes = [2, 3, 7, 8, 12]
    for initializes in (False, True):
        method = conpono(initializes)
        opened = [method.open(document([[n] for n in range(size)])) for size in sizes]
        rows = ragged([[0]] * sum(sizes))
        documents = Documents(pa.array([]), np.arange(len(sizes)), offsets_of(np.array(sizes)), rows)
        found = method.count(documents)
        assert found.examples.tolist() == [int(one.examples[0]) for one in opened]
        assert found.short.any() == (not initializes)


@pytest.mark.parametrize(
    ("train", "loop", "section", "expected"),
    [
        ("idc", {"initialization": "conpono"}, {}, (1, None)),
        ("idc", {"initialization": "conpono"}, {"context": 3}, (3, None)),
        ("conpono", {}, {}, (None, 4)),
        ("conpono", {}, {"context": 3}, (None, 3)),
        ("conpono", {"initialization": "conpono"}, {}, (1, 4)),
        ("conpono", {"initialization": "conpono"}, {"context": 2}, (2, 2)),
    ],
)
def test_runs_start_with_sentences_and_train_on_passages(
    tiny_encoder: Path, tmp_path: Path, train: Any, loop: dict, section: dict, expected: tuple
):
    settings = Settings.model_validate(
        {
            "name": "run",
            "corpus": {"source": str(write_jsonl(tmp_path / "docs.jsonl", make_documents(9)))},
            "encoder": {"model": str(tiny_encoder), "max_length": 16},
            "train": {"method": train},
            "loop": loop,
            "conpono": section,
        }
    )
    inputs = check(settings)
    found = (inputs.initialization, inputs.method)
    assert tuple(one.context if isinstance(one, CONPONO) else None for one in found) == expected
    named = method_of("conpono", settings, SPEC, Use(initializes=True))
    assert isinstance(named, CONPONO)
    assert named.context == (section.get("context") or 1)
