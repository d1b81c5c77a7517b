"""What the tables have in their rows: methods, and which of them each study compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Family = Literal["start", "simcse", "consert", "mirror_bert", "ict", "cpc", "declutr", "conpono", "infocse"]

ITERATIONS_STUDIED = 3

_SURE_PAIRS = {"annotate.min_edge_quantile": 0.75, "train.positive": "self_and_partner"}


class Method(NamedTuple):
    """One way to train: settings on top of those that all cells share."""

    key: str
    label: str
    family: Family
    """Whose overrides in the configuration hold for it, besides its own."""
    settings: Mapping[str, Any] = {}
    """What makes it this method, by dotted name; wins over the configuration."""
    initialization: str = "conpono"
    """InfoCSE only: the strategy that trains the encoder InfoCSE starts from, or "none"."""
    iterations: int | None = None
    """InfoCSE only: how many, where the configuration doesn't say."""


class Row(NamedTuple):
    """A row of a table."""

    key: str
    label: str
    method: str
    iteration: int | None = None
    """Whose encoder is shown; None for the iteration that validation chose."""


class Study(NamedTuple):
    """A table."""

    name: str
    title: str
    rows: tuple[Row, ...]


def _baseline(key: Family, label: str) -> Method:
    return Method(key, label, key, {"train.strategy": key})


def _infocse(suffix: str, label: str, settings: Mapping[str, Any] | None = None, **more: Any) -> Method:
    key = "infocse" + (f"_{suffix}" if suffix else "")
    return Method(key, label, "infocse", {"train.strategy": "idc", **(settings or {})}, **more)


METHODS: dict[str, Method] = {
    method.key: method
    for method in (
        Method("start", "The encoder as it is", "start", {"train.strategy": "none"}),
        _baseline("simcse", "SimCSE"),
        _baseline("consert", "ConSERT"),
        _baseline("mirror_bert", "Mirror-BERT"),
        _baseline("ict", "ICT"),
        _baseline("cpc", "CPC"),
        _baseline("declutr", "DeCLUTR"),
        _baseline("conpono", "CONPONO"),
        _infocse("", "InfoCSE"),
        _infocse("kmeans", "InfoCSE, K-means", {"annotate.method": "kmeans"}),
        _infocse("3_iterations", "InfoCSE, 3 iterations", iterations=ITERATIONS_STUDIED),
        _infocse("simcse", "InfoCSE from SimCSE", initialization="simcse"),
        _infocse("ict", "InfoCSE from ICT", initialization="ict"),
        _infocse("none", "InfoCSE from the encoder as it is", initialization="none"),
        _infocse("first_encoder", "InfoCSE, first annotated by another encoder"),
        _infocse("cluster", "InfoCSE, positive = cluster", {"train.positive": "cluster"}),
        _infocse("mutual", "InfoCSE, mutual edges", {"annotate.mutual": True}),
        _infocse("quantile", "InfoCSE, edges above quantile 0.75", {"annotate.min_edge_quantile": 0.75}),
        _infocse("quantile_partner", "InfoCSE, both 0.75 and self_and_partner", _SURE_PAIRS),
        _infocse(
            "quantile_partner_none", "InfoCSE, both, from the encoder as it is", _SURE_PAIRS, initialization="none"
        ),
        _infocse("quantile_partner_simcse", "InfoCSE, both, from SimCSE", _SURE_PAIRS, initialization="simcse"),
        Method("ict_sentences", "ICT, block = sentences", "ict", {"train.strategy": "ict", "ict.block": "sentences"}),
    )
}

FIRST_ENCODER = "infocse_first_encoder"
"""The method that needs an encoder of the user's."""


def _rows(*keys: str, **labels: str) -> tuple[Row, ...]:
    return tuple(Row(key, labels.get(key, METHODS[key].label), key) for key in (*keys, *labels))


STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study(
            "zero_shot",
            "Zero-shot retrieval",
            _rows("start", "simcse", "consert", "mirror_bert", "ict", "cpc", "declutr", "conpono", "infocse"),
        ),
        Study("clustering", "Clustering", _rows(infocse_kmeans="IDC (K-means)", infocse="IDC (partition)")),
        Study(
            "iterations",
            "Iterations",
            tuple(
                Row(f"iteration_{t}", f"InfoCSE (iteration {t})", "infocse_3_iterations", t)
                for t in range(1, ITERATIONS_STUDIED + 1)
            ),
        ),
        Study(
            "initialization",
            "Initialisation",
            _rows(
                infocse="InfoCSE (CP)",
                infocse_simcse="InfoCSE (SC)",
                infocse_ict="InfoCSE (ICT)",
                infocse_none="InfoCSE (none: the encoder as it is)",
            ),
        ),
        Study(
            "annotator",
            "First annotator",
            _rows(infocse="InfoCSE (the encoder itself)", infocse_first_encoder="InfoCSE (first_encoder)"),
        ),
        Study(
            "options",
            "Options",
            _rows("ict", "ict_sentences")
            + _rows(infocse="InfoCSE (as in the paper)")
            + _rows("infocse_cluster", "infocse_mutual", "infocse_quantile", "infocse_quantile_partner")
            + _rows("infocse_quantile_partner_none", "infocse_quantile_partner_simcse"),
        ),
    )
}


STUDY_NAMES = tuple(STUDIES)


def row_keys() -> list[str]:
    """Every row's key, once, in the order of the tables."""
    return list(dict.fromkeys(row.key for study in STUDIES.values() for row in study.rows))
