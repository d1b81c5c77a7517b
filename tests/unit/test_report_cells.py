"""What each cell is told, and what is refused before any of them runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.report.cells import Plan, plan_cells
from infocse_ray.report.studies import METHODS, STUDIES, STUDY_NAMES
from tests.conftest import make_documents, write_jsonl
from tests.unit.table_runs import tables


def plan(folder: Path, **changes: Any) -> Plan:
    return plan_cells(tables(folder, **changes))


def settings(plan: Plan, method: str) -> Any:
    return plan.by_row["a", method, 1].settings


def test_every_row_trains_on_the_budget(tmp_path: Path):
    found = plan(tmp_path, tables=list(STUDIES), first_encoder="other", tokens=601, validations=3)
    assert {method for _, method, _ in found.by_row} == set(METHODS)
    for method in METHODS:
        run = settings(found, method)
        infocse = method.startswith("infocse")
        stages, each = (0, None) if method == "start" else (1, 601)
        if infocse:
            iterations = 3 if method == "infocse_3_iterations" else 2
            assert (run.loop.max_iterations, run.loop.early_stop) == (iterations, False)
            initialised = not method.endswith("_none")
            assert (run.loop.initialization != "none") == initialised
            stages, each = iterations + initialised, 200 if initialised else 300
        assert run.train.max_tokens == each
        assert run.validate.every_tokens == (each and each // 3)
        assert run.loop.initialization_tokens is None
        if each:  # nothing but tokens ends a stage
            assert min(run.train.max_steps, run.validate.patience) >= each
        assert found.by_row["a", method, 1].tokens == stages * (each or 0)


def test_methods_are_what_they_say(tmp_path: Path):
    found = plan(tmp_path, tables=list(STUDY_NAMES), first_encoder="other")
    strategies = {method: settings(found, method).train.strategy for method in METHODS}
    assert strategies.pop("start") == "none"
    assert strategies.pop("ict_sentences") == "ict"
    assert all(strategies.pop(method) == "idc" for method in list(strategies) if method.startswith("infocse"))
    assert strategies == {method: method for method in strategies}
    assert len(strategies) == 7
    assert settings(found, "infocse").loop.initialization == "conpono"
    assert settings(found, "infocse_simcse").loop.initialization == "simcse"
    assert settings(found, "infocse_ict").loop.initialization == "ict"
    assert settings(found, "infocse_kmeans").annotate.method == "kmeans"
    assert settings(found, "infocse_first_encoder").annotate.first_encoder == "other"
    assert settings(found, "infocse").annotate.first_encoder is None
    assert settings(found, "infocse_cluster").train.positive == "cluster"
    assert settings(found, "infocse_mutual").annotate.mutual is True
    both = settings(found, "infocse_quantile_partner")
    assert (both.annotate.min_edge_quantile, both.train.positive) == (0.75, "self_and_partner")
    for start in ("none", "simcse"):
        also = settings(found, f"infocse_quantile_partner_{start}")
        assert (also.annotate, also.train.positive) == (both.annotate, both.train.positive)
        assert also.loop.initialization == start
    assert settings(found, "infocse_quantile").train.positive == "sentence"
    assert settings(found, "ict_sentences").ict.block == "sentences"
    assert settings(found, "ict").ict.block == "text"


def test_the_nearest_override_wins(tmp_path: Path):
    source = {"corpus": {"source": str(write_jsonl(tmp_path / "b.jsonl", make_documents(8)))}}
    found = plan(
        tmp_path,
        settings={"train": {"batch_size": 10, "learning_rate": 0.1}, "encoder.max_length": 16},
        corpora=[{"name": "a", "settings": source | {"train": {"learning_rate": 0.2}, "validate": {True: "halves"}}}],
        methods={
            "infocse": {"train.batch_size": 30},
            "infocse_kmeans": {"train": {"batch_size": 40}},
            "conpono": {"conpono": {"temperature": 0.05}, "train": {"batch_size": 50}},
        },
        tables=["zero_shot", "clustering", "initialization"],
    )
    assert {m: settings(found, m).train.batch_size for m in ("simcse", "infocse", "infocse_kmeans", "conpono")} == {
        "simcse": 10,
        "infocse": 30,
        "infocse_kmeans": 40,
        "conpono": 50,
    }
    assert settings(found, "simcse").train.learning_rate == 0.2
    assert settings(found, "simcse").encoder.max_length == 16
    assert settings(found, "simcse").validate.on == "halves"
    # InfoCSE is initialised by the CONPONO of the table, and SimCSE by its own.
    assert settings(found, "infocse").conpono.temperature == 0.05
    assert (
        settings(found, "infocse_simcse").conpono.temperature == settings(found, "simcse").conpono.temperature != 0.05
    )


def test_rows_with_the_same_settings_are_one_cell(tmp_path: Path):
    every = plan(tmp_path, tables=["zero_shot", "clustering", "options"])
    # 9 + K-means + 7 options; InfoCSE is in all three tables, ICT in two.
    assert len(every.cells) == 17
    three = plan(tmp_path, iterations=3, tables=["zero_shot", "iterations"])
    assert len(three.cells) == 9
    assert three.by_row["a", "infocse", 1] is three.by_row["a", "infocse_3_iterations", 1]
    # Its name doesn't depend on which rows are asked for.
    alone = plan(tmp_path, iterations=3, tables=["iterations"])
    assert [cell.name for cell in alone.cells] == ["a-infocse-1"]


def test_all_of_a_seed_runs_before_the_next(tmp_path: Path):
    found = plan(tmp_path, seeds=[5, 3], only_rows=["simcse", "infocse"])
    assert [cell.name for cell in found.asked] == ["a-simcse-5", "a-infocse-5", "a-simcse-3", "a-infocse-3"]
    assert [cell.settings.seed for cell in found.asked] == [5, 5, 3, 3]
    assert found.asked[0].settings.name == "t-a-simcse-5"


def test_what_is_asked_for_is_part_of_what_is_shown(tmp_path: Path):
    files = {name: str(write_jsonl(tmp_path / f"{name}.jsonl", make_documents(8))) for name in ("a", "b")}
    corpora = [{"name": name, "settings": {"corpus": {"source": file}}} for name, file in files.items()]
    every = plan(tmp_path, corpora=corpora)
    assert every.asked == every.cells
    found = plan(tmp_path, corpora=corpora, only_corpora=["b"], only_rows=["infocse", "ict"])
    assert found[:2] == every[:2]
    assert [cell.name for cell in found.asked] == ["b-ict-1", "b-infocse-1"]


def test_identity_follows_content(tmp_path: Path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("1")

    def identity(**changes: Any) -> str:
        return plan(tmp_path, encoder=str(model), only_rows=["simcse"], **changes).asked[0].identity

    first = identity()
    assert identity(name="other", storage=str(tmp_path / "elsewhere")) == first
    assert identity(tokens=601) != first
    (model / "weights").write_text("22")
    second = identity()
    assert second != first
    write_jsonl(tmp_path / "a.jsonl", make_documents(9))
    assert identity() != second


def test_the_annotators_row_needs_an_encoder(tmp_path: Path):
    found = plan(tmp_path, tables=["annotator"])
    assert [cell.method for cell in found.cells] == ["infocse"]
    assert "first_encoder" in found.skipped["infocse_first_encoder"]
    assert plan(tmp_path, tables=["annotator"], first_encoder="x").skipped == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"methods": {"simcse": {"train": {"learning_rat": 1}}}},
            "corpus a, row SimCSE: train.learning_rat is not a setting: did you mean train.learning_rate?",
        ),
        ({"methods": {"infocse": {"train": {"batch_size": 1}}}}, "corpus a, row InfoCSE: train.batch_size = 1: "),
        ({"methods": {"infocse": {"annotate": {"k": True}}}}, "corpus a, row InfoCSE: annotate.k = 'true': "),
        ({"settings": {"train": {"max_tokens": 3}}}, "settings: train.max_tokens follows from `tokens`"),
        ({"settings": {"seed": 3}}, "settings: seed follows from `seeds`"),
        ({"methods": {"ict": {"corpus.text": "x"}}}, "methods: ict: corpus.text would make rows of different corpora"),
        ({"settings": {"ict": {"block": "text"}}}, "settings: ict.block follows from `tables`"),
        ({"methods": {"infocse": {"train.positive": "cluster"}}}, "methods: infocse: train.positive follows from"),
        ({"methods": {"infocse_mutual": {"annotate": {"mutual": False}}}}, "methods: infocse_mutual: annotate.mutual"),
        ({"settings": {"annotate.min_edge_quantile": 0.5}}, "settings: annotate.min_edge_quantile follows from"),
        ({"settings": {"annotate.method": "kmeans"}}, "settings: annotate.method follows from `tables`"),
        ({"encoder": None}, "corpus a, row The encoder as it is: encoder is required"),
        ({"tokens": 2}, "tokens = 2: InfoCSE has 3 stages"),
        ({"corpora": [{"name": "a"}]}, "corpus a, row The encoder as it is: corpus is required"),
        (
            {"corpora": [{"name": "a", "settings": {"corpus": {"source": "none.jsonl"}}}]},
            "corpus a: corpus.source = 'none.jsonl': no such file",
        ),
    ],
)
def test_mistakes_are_refused_in_one_line(tmp_path: Path, changes: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=re.escape(said)) as refused:
        plan(tmp_path, **changes)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_a_corpus_with_nothing_to_find_is_refused(tmp_path: Path):
    rows = [{k: v for k, v in row.items() if k != "counterpart"} for row in make_documents(8)]
    write_jsonl(tmp_path / "a.jsonl", rows)
    with pytest.raises(ValueError, match=r"^corpus a: corpus.counterpart: no such column"):
        plan(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", make_documents(8))
    with pytest.raises(ValueError, match=r"^corpus a: corpus.test_fraction = 0.0"):
        plan(tmp_path, settings={"corpus": {"test_fraction": 0.0}})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"only_rows": ["infocs"]}, "did you mean infocse?"),
        ({"only_rows": ["start", "iteration_1"]}, "only_rows: iteration_1 is in none of the tables zero_shot"),
        ({"only_corpora": ["b"]}, "only_corpora: b is not a corpus of the tables, which are a"),
        ({"only_corpora": []}, "at least one"),
        ({"methods": {"simsce": {}}}, "did you mean simcse?"),
        ({"tables": ["zero_shots"]}, "did you mean zero_shot?"),
        ({"seeds": [1, 1]}, "each once"),
        ({"seeds": []}, "at least one"),
        ({"seeds": [-1]}, "from 0"),
        ({"corpora": [{"name": "a"}, {"name": "a", "like": "news"}]}, "two corpora are named a"),
        ({"corpora": [{"name": "a/b"}]}, "letters, digits"),
    ],
)
def test_mistakes_in_the_tables_are_refused(tmp_path: Path, changes: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        tables(tmp_path, **changes)


def test_few_shot_cells_are_those_without_labels_and_labels(tmp_path: Path):
    changes = {"tables": list(STUDY_NAMES), "label_sizes": [3, 4], "rounds": 5, "first_encoder": "other"}
    methods = {"simcse": {"train.batch_size": 9}, "simcse_3": {"finetune.epochs": 7}, "infocse": {"annotate.k": 3}}
    found = plan(tmp_path, **changes, methods=methods)
    every = {method for _, method, _ in found.by_row}
    assert every >= {f"{m}_{size}" for m in ("start", "simcse", "infocse") for size in (3, 4)}
    assert {m for m in every if "plusplus" in m} == {"infocse_plusplus_3", "infocse_plusplus_all"}
    for key in ("start", "simcse", "infocse"):
        alone, tuned = settings(found, key), settings(found, f"{key}_4")
        assert tuned.labels.train_size == 4
        assert tuned.plusplus.max_rounds == 1
        update = {section: getattr(alone, section) for section in ("name", "labels", "plusplus")}
        assert tuned.model_copy(update=update) == alone, "so that stages are shared"
    assert settings(found, "simcse_3").train.batch_size == 9
    assert (settings(found, "simcse_3").finetune.epochs, settings(found, "simcse_4").finetune.epochs) == (7, 20)
    plus = settings(found, "infocse_plusplus_all")
    assert (plus.plusplus.max_rounds, plus.labels.train_size, plus.annotate.k) == (5, "all", 3)
    cells = {cell.method: cell for cell in found.cells}
    assert {cell.labelled for name, cell in cells.items() if name in METHODS} == {False}
    assert {cell.labelled for name, cell in cells.items() if name not in METHODS} == {True}
    assert [study.name for study in found.studies][-3:] == ["few_shot_3", "few_shot_4", "plusplus"]


def test_labels_name_another_cell_and_only_one_that_has_them(tmp_path: Path):
    def identities(**changes: Any) -> dict[str, str]:
        return {c.method: c.identity for c in plan(tmp_path, tables=["zero_shot", "few_shot"], **changes).cells}

    few = identities(label_sizes=[3])
    other = identities(label_sizes=[3], settings={"finetune": {"epochs": 5}})
    assert {method for method in few if few[method] != other[method]} == {m for m in few if m.endswith("_3")}
