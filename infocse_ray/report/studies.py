"""What the tables have in their rows: methods, and which of them each study compares.

Every table begins with the encoder as it is, which is what its other rows are held against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

Family = Literal["start", "simcse", "consert", "mirror_bert", "ict", "cpc", "declutr", "conpono", "tsdae", "infocse"]

LabelSize = int | Literal["all"]

ITERATIONS_STUDIED = 3

_DEFAULT = "infocse_distillation_none"
"""The loss that `infocse pretrain` has where nothing else is said, from the encoder as it is."""


class TableMethod(NamedTuple):
    """One way to train: settings on top of those that all cells share."""

    key: str
    label: str
    family: Family
    """Whose overrides in the configuration hold for it, besides its own; a comparison with the strongest other row is
    with one of another family."""
    settings: Mapping[str, Any] = {}
    """What makes it this method, by dotted name; wins over the configuration."""
    initialization: str = "conpono"
    """InfoCSE only: the method that trains the encoder InfoCSE starts from, or "none"."""
    iterations: int | None = None
    """InfoCSE only: how many, where the configuration doesn't say."""
    base: str | None = None
    """The method without labels that this one goes on from; its overrides hold too."""
    labels: LabelSize | None = None
    """How many labelled examples it is then fine-tuned on; None: it isn't."""
    alternates: bool = False
    """Whether fine-tuning and training without labels take turns, as in InfoCSE++."""
    rate_of: str | None = None
    """The method whose learning rate it takes over: that which it varies or goes on from; None: its own is chosen."""
    defaults: Mapping[str, Any] = {}
    """Settings, nested, over which those that all cells share win."""


class TableRow(NamedTuple):
    """A row of a table."""

    key: str
    label: str
    method: str
    iteration: int | None = None
    """Whose encoder is shown; None for the iteration that validation chose."""
    over: str = "start"
    """The row of its table that it is held against: what it adds to; "": none."""


class Study(NamedTuple):
    """A table."""

    name: str
    title: str
    rows: tuple[TableRow, ...]
    kind: str = ""
    """What the configuration calls it, where that is several tables, one a number of labels; else its name."""
    versus: tuple[tuple[str, str], ...] = ()
    """Rows whose difference is tested besides: the first, and another, or "" for the strongest of another family."""


def _baseline(key: Family, label: str) -> TableMethod:
    return TableMethod(key, label, key, {"train.method": key})


def _infocse(suffix: str, label: str, settings: Mapping[str, Any] | None = None, **more: Any) -> TableMethod:
    key = "infocse" + (f"_{suffix}" if suffix else "")
    more = {"rate_of": "infocse" if suffix else None} | more
    return TableMethod(
        key, label, "infocse", {"train.method": "idc", "train.distillation": 0.0, **(settings or {})}, **more
    )


METHODS: dict[str, TableMethod] = {
    method.key: method
    for method in (
        TableMethod("start", "The encoder as it is", "start", {"train.method": "none"}),
        _baseline("simcse", "SimCSE"),
        _baseline("consert", "ConSERT"),
        _baseline("mirror_bert", "Mirror-BERT"),
        _baseline("ict", "ICT"),
        _baseline("cpc", "CPC"),
        _baseline("declutr", "DeCLUTR"),
        _baseline("conpono", "CONPONO"),
        _baseline("tsdae", "TSDAE"),
        _infocse("", "InfoCSE"),
        _infocse("kmeans", "InfoCSE, K-means", {"annotate.clustering": "kmeans"}),
        _infocse("3_iterations", "InfoCSE, 3 iterations", iterations=ITERATIONS_STUDIED),
        _infocse("simcse", "InfoCSE from SimCSE", initialization="simcse"),
        _infocse("ict", "InfoCSE from ICT", initialization="ict"),
        _infocse("none", "InfoCSE from the encoder as it is", initialization="none", rate_of=None),
        TableMethod("adapt", "InfoCSE, as adapt.yaml has it", "infocse", initialization="none"),
        _infocse("first_encoder", "InfoCSE, first annotated by another encoder"),
        _infocse(
            "distillation_none",
            "InfoCSE, distillation = 0.5, from the encoder as it is",
            {"train.distillation": 0.5},
            initialization="none",
            rate_of="infocse_none",
        ),
        TableMethod(
            "ict_sentences",
            "ICT, block = sentences",
            "ict",
            {"train.method": "ict", "ict.block": "sentences"},
            rate_of="ict",
        ),
    )
}

FIRST_ENCODER = "infocse_first_encoder"
"""The method that needs an encoder of the user's."""

ADAPT = "adapt"
"""The method that needs a configuration of `infocse pretrain`: see `report/adapt.py`."""

START = TableRow("start", METHODS["start"].label, "start", over="")


def _rows(*keys: str, **labels: str) -> tuple[TableRow, ...]:
    return tuple(TableRow(key, labels.get(key, METHODS[key].label), key) for key in (*keys, *labels))


_BASELINES = ("simcse", "consert", "mirror_bert", "ict", "cpc", "declutr", "conpono")
_COMPARED = (*_BASELINES, "infocse")
"""What the paper compares, without the encoder as it is."""

FEW_SHOT, PLUS_PLUS, LABEL_SHARE = "few_shot", "plusplus", "label_share"


def _study(name: str, title: str, rows: tuple[TableRow, ...], **more: Any) -> Study:
    return Study(name, title, (START, *rows), **more)


STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        _study(
            "zero_shot",
            "Zero-shot retrieval",
            _rows(*_BASELINES, "tsdae", infocse="InfoCSE as in the paper (from CONPONO)")
            + _rows("infocse_none", ADAPT),
            versus=(("infocse", ""), (ADAPT, "")),
        ),
        _study("clustering", "Clustering", _rows(infocse_kmeans="IDC (K-means)", infocse="IDC (partition)")),
        _study(
            "iterations",
            "Iterations",
            tuple(
                TableRow(f"iteration_{t}", f"InfoCSE (iteration {t})", "infocse_3_iterations", t)
                for t in range(1, ITERATIONS_STUDIED + 1)
            ),
        ),
        _study(
            "initialization",
            "Initialisation",
            _rows(
                infocse="InfoCSE (CP)",
                infocse_simcse="InfoCSE (SC)",
                infocse_ict="InfoCSE (ICT)",
                infocse_none="InfoCSE (none: the encoder as it is)",
            ),
        ),
        _study(
            "annotator",
            "First annotator",
            _rows(infocse="InfoCSE (the encoder itself)", infocse_first_encoder="InfoCSE (first_encoder)"),
        ),
        _study(
            "options",
            "Options",
            _rows("ict", "ict_sentences")
            + _rows(infocse="InfoCSE (as in the paper)")
            + _rows("infocse_distillation_none"),
        ),
        _study(
            "cost",
            "What it costs",
            (
                *_rows("simcse"),
                TableRow("first_iteration", "InfoCSE with distillation, its first iteration", _DEFAULT, 1),
                TableRow(_DEFAULT, "InfoCSE with distillation, all iterations", _DEFAULT),
            ),
            versus=(("first_iteration", "simcse"), (_DEFAULT, "first_iteration"), (_DEFAULT, "simcse")),
        ),
    )
}


STUDY_NAMES = (*STUDIES, FEW_SHOT, PLUS_PLUS, LABEL_SHARE)

_MIXED = 0.5
"""Of a batch's examples those that are labelled, in the row that mixes."""


def tuned_key(method: str, size: LabelSize, alternates: bool = False) -> str:
    """The key of a method and of its row, fine-tuned on so many labelled examples."""
    return f"{method}_plusplus_{size}" if alternates else f"{method}_{size}"


def mixed_key(size: LabelSize) -> str:
    """The key of the row that has so many labelled examples among its pairs, too."""
    return f"{_DEFAULT}_mixed_{size}"


def methods_with(sizes: Sequence[LabelSize]) -> dict[str, TableMethod]:
    """All methods by key, those that are fine-tuned on so many labelled examples among them."""
    rows = dict(METHODS)
    for size in dict.fromkeys((*sizes, "all")):
        for key in ("start", *_COMPARED):
            base = METHODS[key]
            settings = {**base.settings, "labels.train_size": size}
            for alternates in (False, True) if key == "infocse" else (False,):
                name = tuned_key(key, size, alternates)
                label = f"{base.label}{'++' if alternates else ', fine-tuned'} ({shown_size(size)})"
                tuned = base._replace(key=name, label=label, settings=settings, base=key, labels=size)
                rows[name] = tuned._replace(alternates=alternates, rate_of=None if key == "start" else key)
    for size in dict.fromkeys(sizes):
        base = METHODS[_DEFAULT]
        settings = {**base.settings, "labels.train_size": size}
        # The rate that suits training without labels is too low for one with them: each chooses its own.
        turns = base._replace(base=_DEFAULT, labels=size, alternates=True, rate_of=None, settings=settings)
        in_turns, mixed = tuned_key(_DEFAULT, size, alternates=True), mixed_key(size)
        rows[in_turns] = turns._replace(key=in_turns, label=f"InfoCSE++ from the encoder as it is ({shown_size(size)})")
        rows[mixed] = turns._replace(
            key=mixed,
            label=f"InfoCSE++, label_share = {_MIXED:g}, from the encoder as it is ({shown_size(size)})",
            settings=settings | {"plusplus.label_share": _MIXED},
        )
    return rows


def studies_with(names: Sequence[str], sizes: Sequence[LabelSize]) -> list[Study]:
    """The tables of these names; a few-shot table for each number of labelled examples."""
    studies: list[Study] = []
    for name in names:
        if name == FEW_SHOT:
            studies += [_few_shot(size) for size in sizes]
        elif name == PLUS_PLUS:
            studies.append(_plus_plus(list(dict.fromkeys((sizes[0], "all")))))
        elif name == LABEL_SHARE:
            studies.append(_label_share(list(sizes), methods_with(sizes)))
        else:
            studies.append(STUDIES[name])
    return studies


def _tuned_start(size: LabelSize, note: str) -> TableRow:
    """What rows fine-tuned on so many labels are held against: the same labels, nothing trained before."""
    key = tuned_key("start", size)
    return TableRow(key, f"{METHODS['start'].label}, fine-tuned{note}", key)


def _few_shot(size: LabelSize) -> Study:
    start = _tuned_start(size, "")
    rows = [TableRow(tuned_key(k, size), f"{METHODS[k].label}, fine-tuned", tuned_key(k, size)) for k in _COMPARED]
    return _study(
        f"{FEW_SHOT}_{size}",
        f"Few-shot retrieval, {shown_size(size)} labelled examples",
        (start, *(row._replace(over=start.key) for row in rows)),
        kind=FEW_SHOT,
        versus=((tuned_key("infocse", size), ""),),
    )


def _plus_plus(sizes: Sequence[LabelSize]) -> Study:
    rows, versus = [], []
    for size in sizes:
        start = _tuned_start(size, f" ({shown_size(size)})")
        tuned, plus = tuned_key("infocse", size), tuned_key("infocse", size, alternates=True)
        rows += [start, TableRow(tuned, f"InfoCSE, fine-tuned ({shown_size(size)})", tuned, over=start.key)]
        rows += [TableRow(plus, f"InfoCSE++ ({shown_size(size)})", plus, over=start.key)]
        versus.append((plus, tuned))
    return _study(PLUS_PLUS, "InfoCSE++", tuple(rows), versus=tuple(versus))


def _label_share(sizes: list[LabelSize], methods: Mapping[str, TableMethod]) -> Study:
    rows, versus = [], []
    for size in sizes:
        start = _tuned_start(size, f" ({shown_size(size)})")
        turns, mixed = tuned_key(_DEFAULT, size, alternates=True), mixed_key(size)
        rows += [start, *(TableRow(key, methods[key].label, key, over=start.key) for key in (turns, mixed))]
        versus.append((mixed, turns))
    return _study(LABEL_SHARE, "Labels among the pairs", tuple(rows), versus=tuple(versus))


def row_keys(names: Sequence[str], sizes: Sequence[LabelSize]) -> list[str]:
    """Keys of the rows of these tables, each once, in their order."""
    return list(dict.fromkeys(row.key for study in studies_with(names, sizes) for row in study.rows))


def shown_size(size: LabelSize) -> str:
    """A number of labelled examples, for people."""
    return size if isinstance(size, str) else f"{size:,}"
