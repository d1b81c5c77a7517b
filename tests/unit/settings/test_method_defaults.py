"""Each method's section has the published defaults: what is given here is as the publications have it."""

from __future__ import annotations

from typing import Any

import pytest

from infocse_ray.settings.methods import MethodSections

PUBLISHED: dict[str, dict[str, Any]] = {
    "simcse": {"temperature": 0.05, "dropout": 0.1},
    "consert": {"first": "feature_cutoff", "second": "shuffle", "cutoff": 0.2, "temperature": 0.1},
    "mirror_bert": {"span": 5, "shortest": 30, "temperature": 0.04, "dropout": 0.1},
    "ict": {
        "block": "text",
        "query_tokens": 64,
        "block_tokens": 288,
        "keep_query": 0.1,
        "projection": 128,
        "temperature": None,
    },
    "cpc": {"context": 3, "ahead": 3, "temperature": None},
    "declutr": {
        "anchors": 2,
        "positives": 2,
        "min_tokens": 32,
        "max_tokens": 512,
        "mask": 0.15,
        "temperature": 0.05,
    },
    "conpono": {"context": None, "offsets": 4, "targets": 4, "form": "softmax", "margin": 1.0, "temperature": None},
    "tsdae": {"deleted": 0.6},
}


@pytest.mark.parametrize("method", MethodSections.model_fields)
def test_defaults_are_the_published_ones(method: str) -> None:
    assert getattr(MethodSections(), method).model_dump() == PUBLISHED[method]


@pytest.mark.parametrize(
    ("method", "values", "said"),
    [
        ("simcse", {"dropout": 0}, "greater than 0"),
        ("simcse", {"dropout": 1}, "less than 1"),
        ("mirror_bert", {"temperature": 0}, "greater than 0"),
        ("ict", {"keep_query": 1.5}, "less than or equal to 1"),
        ("cpc", {"temperature": 0}, "greater than 0"),
        ("declutr", {"max_tokens": 31}, r"declutr.min_tokens = 32: is more than declutr.max_tokens = 31; lower it"),
        ("tsdae", {"deleted": 1}, "less than 1"),
    ],
)
def test_what_no_method_can_do_is_refused(method: str, values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MethodSections.model_validate({method: values})
