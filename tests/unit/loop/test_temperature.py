"""A temperature that is high for an encoder whose similarities lie close together is warned of."""

from __future__ import annotations

from typing import Any

import pytest

from infocse_ray.loop.temperature import temperature_doubts
from infocse_ray.settings import Settings


def settings_of(**train: Any) -> Settings:
    content = {"name": "x", "encoder": {"model": "m"}, "corpus": {"source": "s"}, "train": train}
    return Settings.model_validate(content)


def test_it_is_warned_of_where_it_is_twice_what_fits():
    [line] = temperature_doubts(settings_of(), 0.028)
    assert line.startswith("train.temperature = 0.05 is high for this encoder")
    assert "is 0.028): 0.014 is as sharp" in line
    assert temperature_doubts(settings_of(), 0.05)
    assert not temperature_doubts(settings_of(), 0.051)
    assert not temperature_doubts(settings_of(temperature=0.02), 0.028)
    assert temperature_doubts(settings_of(temperature=0.03), 0.028)


@pytest.mark.parametrize(
    "train",
    [
        {"similarity": "dot"},
        {"method": "simcse"},
        {"method": "none"},
        {"whitened": True},
    ],
)
def test_nothing_is_said_where_it_divides_something_else_or_nothing(train: dict[str, Any]):
    assert not temperature_doubts(settings_of(**train), 0.028)


def test_nothing_is_said_of_what_is_not_known_or_of_vectors_that_are_all_one():
    assert not temperature_doubts(settings_of(), None)
    assert not temperature_doubts(settings_of(), 0.0)
