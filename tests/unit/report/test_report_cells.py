"""What each cell is told, and what is refused before any of them runs."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.report import cells
from infocse_ray.report.cells import CellPlan, plan_cells
from infocse_ray.report.studies import METHODS, STUDIES, STUDY_NAMES
from infocse_ray.settings import Explorer, Tracking, Train
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents, write_jsonl
from tests.unit.table_runs import tables

ADAPT_YAML = str(Path(__file__).parents[3] / "infocse_ray" / "configs" / "adapt.yaml")


def plan(folder: Path, **changes: Any) -> CellPlan:
    return plan_cells(tables(folder, **changes))


def settings(plan: CellPlan, method: str) -> Any:
    [cell] = plan.at["a", method, 1].cells
    return cell.settings


def asked(plan: CellPlan) -> list[str]:
    return [cell.name for slot in plan.asked for cell in slot.cells]


def test_every_row_trains_on_the_budget(tmp_path: Path):
    found = plan(tmp_path, tables=list(STUDIES), first_encoder="other", tokens=601, validations=3, adapt=ADAPT_YAML)
    assert {slot.place[1] for slot in found.slots} == set(METHODS)
    for method in METHODS:
        run = settings(found, method)
        infocse = method.startswith("infocse") or method == "adapt"
        stages, each = (0, None) if method == "start" else (1, 601)
        if infocse:
            iterations = 3 if method == "infocse_3_iterations" else 2
            assert (run.loop.max_iterations, run.loop.early_stop) == (iterations, False)
            initialised = not (method.endswith("_none") or method.startswith("infocse_default") or method == "adapt")
            assert (run.loop.initialization != "none") == initialised
            stages, each = iterations + initialised, 200 if initialised else 300
        assert run.train.max_tokens == each
        assert run.validate.every_tokens == (each and each // 3)
        assert run.loop.initialization_tokens is None
        if each:  # nothing but tokens ends a stage
            assert min(run.train.max_steps, run.validate.patience) >= each
        assert found.at["a", method, 1].cells[0].tokens == stages * (each or 0)


def test_methods_are_what_they_say(tmp_path: Path):
    found = plan(tmp_path, tables=list(STUDY_NAMES), first_encoder="other")
    methods = {method: settings(found, method).train.method for method in METHODS if method != "adapt"}
    assert methods.pop("start") == "none"
    assert methods.pop("ict_sentences") == "ict"
    assert all(methods.pop(method) == "idc" for method in list(methods) if method.startswith("infocse"))
    assert methods == {method: method for method in methods}
    assert len(methods) == 8
    assert settings(found, "infocse").loop.initialization == "conpono"
    assert settings(found, "infocse_simcse").loop.initialization == "simcse"
    assert settings(found, "infocse_ict").loop.initialization == "ict"
    assert settings(found, "infocse_kmeans").annotate.clustering == "kmeans"
    assert settings(found, "infocse_first_encoder").annotate.first_encoder == "other"
    assert settings(found, "infocse").annotate.first_encoder is None
    assert settings(found, "ict_sentences").ict.block == "sentences"
    assert settings(found, "ict").ict.block == "text"


def test_the_nearest_override_wins(tmp_path: Path):
    source = {"corpus": {"source": str(write_jsonl(tmp_path / "b.jsonl", make_documents(8)))}}
    found = plan(
        tmp_path,
        settings={"train": {"batch_size": 10, "temperature": 0.1}, "encoder.max_length": 16},
        corpora=[{"name": "a", "settings": source | {"train": {"temperature": 0.2}, "validate": {"on": "halves"}}}],
        methods={
            "infocse": {"train.batch_size": 30},
            "infocse_kmeans": {"train": {"batch_size": 40}},
            "conpono": {"conpono": {"temperature": 0.05, "context": 2}, "train": {"batch_size": 50}},
        },
        tables=["zero_shot", "clustering", "initialization"],
    )
    assert {m: settings(found, m).train.batch_size for m in ("simcse", "infocse", "infocse_kmeans", "conpono")} == {
        "simcse": 10,
        "infocse": 30,
        "infocse_kmeans": 40,
        "conpono": 50,
    }
    assert settings(found, "simcse").train.temperature == 0.2
    assert settings(found, "simcse").encoder.max_length == 16
    assert settings(found, "simcse").validate.on == "halves"
    # InfoCSE is initialised by the CONPONO of the table, and SimCSE by its own.
    assert settings(found, "infocse").conpono.temperature == 0.05
    assert settings(found, "infocse").conpono.context == settings(found, "conpono").conpono.context == 2
    assert (
        settings(found, "infocse_simcse").conpono.temperature == settings(found, "simcse").conpono.temperature != 0.05
    )


def test_a_corpus_may_have_an_encoder_of_its_own(tmp_path: Path):
    own = tables(tmp_path).corpora[0].settings | {"encoder.model": "its own"}
    found = plan(tmp_path, encoder=None, settings={"encoder.model": "m"}, corpora=[{"name": "a", "settings": own}])
    assert {cell.settings.encoder.model for cell in found.cells} == {"its own"}


def test_rows_with_the_same_settings_are_one_cell(tmp_path: Path):
    every = plan(tmp_path, tables=["zero_shot", "clustering", "options"])
    # 11 + K-means + 2 options; InfoCSE is in all three tables, ICT and the encoder as it is in two.
    assert len(every.cells) == 14
    three = plan(tmp_path, iterations=3, tables=["zero_shot", "iterations"])
    assert len(three.cells) == 11
    assert three.at["a", "infocse", 1] is three.at["a", "infocse_3_iterations", 1]
    # Its name doesn't depend on which rows are asked for.
    alone = plan(tmp_path, iterations=3, tables=["iterations"])
    assert asked(alone) == ["a-start-1", "a-infocse-1"]


def test_all_of_a_seed_runs_before_the_next(tmp_path: Path):
    found = plan(tmp_path, seeds=[5, 3], only_rows=["simcse", "infocse"])
    assert asked(found) == ["a-simcse-5", "a-infocse-5", "a-simcse-3", "a-infocse-3"]
    assert [slot.cells[0].settings.seed for slot in found.asked] == [5, 5, 3, 3]
    assert found.asked[0].cells[0].settings.name == "t-a-simcse-5"


def test_what_is_asked_for_is_part_of_what_is_shown(tmp_path: Path):
    files = {name: str(write_jsonl(tmp_path / f"{name}.jsonl", make_documents(8))) for name in ("a", "b")}
    corpora = [{"name": name, "settings": {"corpus": {"source": file}}} for name, file in files.items()]
    every = plan(tmp_path, corpora=corpora)
    assert every.asked == every.slots
    found = plan(tmp_path, corpora=corpora, only_corpora=["b"], only_rows=["infocse", "ict"])
    assert found[:2] == every[:2]
    assert asked(found) == ["b-ict-1", "b-infocse-1"]


def test_identity_follows_content(tmp_path: Path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("1")

    def identity(**changes: Any) -> str:
        return plan(tmp_path, encoder=str(model), only_rows=["simcse"], **changes).asked[0].cells[0].identity

    first = identity()
    assert identity(name="other", storage=str(tmp_path / "elsewhere")) == first
    assert identity(tokens=601) != first
    (model / "weights").write_text("22")
    second = identity()
    assert second != first
    stat = (model / "weights").stat()
    (model / "weights").write_text("33")  # of the same size
    os.utime(model / "weights", ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    third = identity()
    assert third not in (first, second)
    write_jsonl(tmp_path / "a.jsonl", make_documents(9))
    assert identity() != third


def test_identity_of_what_is_in_an_object_store_follows_content_and_no_credential(tmp_path: Path):
    store = Storage.open(f"memory://{uuid.uuid4().hex}/model")
    (store / "weights").write_bytes(b"1")

    def identity(encoder: str = store.uri, **validate: str) -> str:
        cell = plan(tmp_path, encoder=encoder, only_rows=["simcse"], settings={"validate": validate}).asked[0].cells[0]
        return cell.identity

    first = identity(sts="s3://me:one@bucket/sts.tsv")
    assert identity(sts="s3://me:two@bucket/sts.tsv") == first
    assert identity(sts="s3://me:one@bucket/other.tsv") != first
    (store / "weights").write_bytes(b"22")
    assert identity(sts="s3://me:one@bucket/sts.tsv") != first


def test_the_encoder_that_annotates_first_names_its_row_alone(tmp_path: Path):
    first = tmp_path / "first"
    first.mkdir()

    def identities() -> list[str]:
        found = plan(tmp_path, tables=["annotator"], first_encoder=str(first))
        return [found.at["a", method, 1].cells[0].identity for method in ("infocse", "infocse_first_encoder")]

    (first / "weights").write_text("1")
    own, of_it = identities()
    (first / "weights").write_text("22")
    again, changed = identities()
    assert again == own
    assert changed != of_it


def test_where_a_run_is_shown_makes_no_other_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shown = {"explorer": Explorer(documents=9), "tracking": Tracking(sinks=["mlflow"])}
    first = plan(tmp_path, only_rows=["simcse"]).asked[0].cells[0].identity
    made = cells.settings_of
    monkeypatch.setattr(cells, "settings_of", lambda *given: made(*given).model_copy(update=shown))
    assert plan(tmp_path, only_rows=["simcse"]).asked[0].cells[0].identity == first


def test_the_annotators_row_needs_an_encoder(tmp_path: Path):
    found = plan(tmp_path, tables=["annotator"])
    assert [cell.method for cell in found.cells] == ["start", "infocse"]
    assert "first_encoder" in found.skipped["infocse_first_encoder"]
    assert plan(tmp_path, tables=["annotator"], first_encoder="x").skipped == {}


@pytest.mark.parametrize(
    ("row", "table", "said"),
    [("adapt", "zero_shot", "adapt isn't set"), ("infocse_first_encoder", "annotator", "first_encoder isn't set")],
)
def test_a_row_that_cannot_run_is_no_row_to_run(tmp_path: Path, row: str, table: str, said: str):
    with pytest.raises(ValueError, match=f"^only_rows: {row}: {said}; name .*, or leave the row out$"):
        plan(tmp_path, tables=[table], only_rows=["start", row])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"methods": {"simcse": {"train": {"learning_rat": 1}}}},
            "corpus a, row SimCSE: train.learning_rat is not a setting: did you mean train.learning_rate?",
        ),
        (
            {"methods": {"simcse": {"train": "batch_size=64"}}},
            "methods: simcse: train = 'batch_size=64': is a section; give its settings by name",
        ),
        ({"settings": {"train": 3}}, "settings: train = 3: is a section"),
        (
            {"methods": {"simcse": {"train.learning_rate": "fast"}}},
            "methods: simcse: train.learning_rate = 'fast': should be a valid number",
        ),
        (
            {"tables": ["options"], "methods": {"infocse_none": {"train.learning_rate": [1e-3]}}},
            "methods: infocse_none: train.learning_rate = [0.001]: should be a valid number",
        ),
        ({"methods": {"infocse": {"train": {"batch_size": 1}}}}, "corpus a, row InfoCSE: train.batch_size = 1: "),
        ({"methods": {"infocse": {"annotate": {"k": True}}}}, "corpus a, row InfoCSE: annotate.k = 'true': "),
        ({"settings": {"train": {"learning_rate": 3}}}, "settings: train.learning_rate follows from `learning_rates`"),
        (
            {"corpora": [{"name": "a", "settings": {"train.learning_rate": 3}}]},
            "corpora: a: settings: train.learning_rate follows from `learning_rates`",
        ),
        ({"methods": {"simcse": {"train.whitened": True}}}, "methods: simcse: train.whitened follows from `tables`"),
        ({"settings": {"train.never_worse": True}}, "settings: train.never_worse follows from `tables`"),
        ({"settings": {"train.interpolation": [0.5]}}, "settings: train.interpolation follows from `tables`"),
        (
            {"methods": {"simcse": {"encoder.whiten": 1.0}}},
            "methods: simcse: encoder.whiten would make rows that can't be compared; set it in `settings`",
        ),
        (
            {"encoder": None, "settings": {"encoder.model": "m"}, "methods": {"simcse": {"encoder": {"model": "n"}}}},
            "methods: simcse: encoder.model would make rows that can't be compared; set it in `settings`",
        ),
        (
            {"corpora": [{"name": "a", "settings": {"encoder.model": "n"}}]},
            "corpora: a: settings: encoder.model gives way to `encoder` = 'model' of the tables; leave one out",
        ),
        ({"adapt": "none.yaml"}, "adapt = 'none.yaml': no such file"),
        ({"settings": {"train": {"max_tokens": 3}}}, "settings: train.max_tokens follows from `tokens`"),
        ({"settings": {"loop.initialization_steps": 3}}, "settings: loop.initialization_steps follows from `tokens`"),
        ({"settings": {"loop.initialization_patience": 3}}, "settings: loop.initialization_patience follows from"),
        ({"settings": {"seed": 3}}, "settings: seed follows from `seeds`"),
        ({"settings": {"recipe": "auto"}}, "settings: recipe follows from `methods`"),
        ({"methods": {"infocse": {"train.distillation": 0.5}}}, "methods: infocse: train.distillation follows from"),
        ({"methods": {"ict": {"corpus.text": "x"}}}, "methods: ict: corpus.text would make rows of different corpora"),
        ({"settings": {"ict": {"block": "text"}}}, "settings: ict.block follows from `tables`"),
        (
            {"methods": {"infocse_kmeans": {"annotate": {"clustering": "partition"}}}},
            "methods: infocse_kmeans: annotate.clustering",
        ),
        ({"settings": {"annotate.clustering": "kmeans"}}, "settings: annotate.clustering follows from `tables`"),
        ({"encoder": None}, "corpus a, row The encoder as it is: encoder.model is required"),
        ({"tokens": 2}, "tokens = 2: InfoCSE has 3 stages"),
        ({"corpora": [{"name": "a"}]}, "corpus a, row The encoder as it is: corpus.source is required"),
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
        ({"learning_rates": []}, "at least one"),
        ({"learning_rates": [1e-5, 1e-5]}, "each once"),
        ({"learning_rates": [0.0]}, "greater than 0"),
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
    every = {slot.place[1] for slot in found.slots}
    assert every >= {f"{m}_{size}" for m in ("start", "simcse", "infocse") for size in (3, 4)}
    assert {"start_3", "start_all"} <= every, "what InfoCSE++ is held against"
    turns = {f"infocse_distillation_none_plusplus_{size}" for size in (3, 4)}
    assert {m for m in every if "plusplus" in m} == {"infocse_plusplus_3", "infocse_plusplus_all", *turns}
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
    assert [study.name for study in found.studies][-4:] == ["few_shot_3", "few_shot_4", "plusplus", "label_share"]


def test_labels_among_pairs_are_held_against_turns_from_the_same_start(tmp_path: Path):
    asked = {"tables": ["label_share"], "label_sizes": [3, "all"], "rounds": 5}
    found = plan(tmp_path, **asked)
    for size in (3, "all"):
        base = "infocse_distillation_none"
        turns, mixed = (settings(found, f"{base}_{how}_{size}") for how in ("plusplus", "mixed"))
        assert (turns.plusplus.label_share, mixed.plusplus.label_share) == (0.0, 0.5)
        update = {section: getattr(turns, section) for section in ("name", "plusplus")}
        assert mixed.model_copy(update=update) == turns, "they differ in nothing else"
        assert (mixed.train.distillation, mixed.loop.initialization, mixed.labels.train_size) == (0.5, "none", size)
        assert mixed.plusplus.max_rounds == turns.plusplus.max_rounds == 5
    # What is set for the row without labels holds with them, too, and what is set for the row itself wins.
    key = "infocse_distillation_none"
    methods = {key: {"train.batch_size": 9, "annotate.k": 4}, f"{key}_mixed_3": {"annotate.k": 5}}
    told = plan(tmp_path, **asked, methods=methods)
    by_row = {row: settings(told, f"{key}_{row}_3") for row in ("plusplus", "mixed")}
    assert {row: (one.train.batch_size, one.annotate.k) for row, one in by_row.items()} == {
        "plusplus": (9, 4),
        "mixed": (9, 5),
    }
    # With labels another learning rate may be best than without.
    chooses = {slot.place[1]: slot.chooses for slot in plan(tmp_path, **asked, learning_rates=[1e-5, 1e-4]).slots}
    assert all(chooses[f"{base}_{how}_3"] for how in ("plusplus", "mixed"))
    [study] = found.studies
    assert study.versus[0] == (f"{base}_mixed_3", f"{base}_plusplus_3")
    assert [row.over for row in study.rows] == ["", "start", "start_3", "start_3", "start", "start_all", "start_all"]


def test_labels_name_another_cell_and_only_one_that_has_them(tmp_path: Path):
    def identities(**changes: Any) -> dict[str, str]:
        return {c.method: c.identity for c in plan(tmp_path, tables=["zero_shot", "few_shot"], **changes).cells}

    few = identities(label_sizes=[3])
    other = identities(label_sizes=[3], settings={"finetune": {"epochs": 5}})
    assert {method for method in few if few[method] != other[method]} == {m for m in few if m.endswith("_3")}


def test_methods_train_as_published_and_a_configuration_as_it_says(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: x\nseed: 9\ncorpus: {min_sentences: 5}\nencoder: {model: other, max_length: 99}\n"
        "validate: {on: halves}\nannotate: {k: 4}\n"
        "train: {distillation: 0.25, temperature: 0.5, batch_size: 7, learning_rate: 1e-3, max_steps: 5, "
        "whitened: true, never_worse: true}\n"
        "loop: {initialization: simcse, initialization_steps: 3, max_iterations: 9, early_stop: true}\n"
    )
    shared = {"train": {"temperature": 0.05}}
    found = plan(tmp_path, tables=["zero_shot", "initialization"], adapt=str(file), settings=shared)
    default = Train.model_fields["interpolation"].default
    for slot in found.slots:
        [cell] = slot.cells
        train, ours = cell.settings.train, cell.method == "adapt"
        assert (train.whitened, train.never_worse) == (ours, ours)
        assert train.interpolation == (default if ours else [])
    mine, simcse = settings(found, "adapt"), settings(found, "simcse")
    assert (mine.annotate.k, mine.train.distillation) == (4, 0.25)
    assert (mine.train.temperature, mine.train.batch_size) == (0.05, 7), "settings of the tables win, else the file's"
    same = ("corpus", "encoder", "validate", "storage", "seed", "labels", "finetune")
    assert [getattr(mine, name) for name in same] == [
        getattr(simcse, name) if name != "validate" else simcse.validate.model_copy(update=mine_budget(mine))
        for name in same
    ]
    assert (mine.train.learning_rate, mine.train.max_tokens) == (2e-5, 200)
    assert (mine.loop.initialization, mine.loop.max_iterations, mine.loop.early_stop) == ("simcse", 2, False)
    assert mine.loop.initialization_steps is None
    [study, _] = found.studies
    assert study.rows[-1].label == "InfoCSE, as mine.yaml has it"
    # What is set for InfoCSE's rows is not for this one.
    found = plan(tmp_path, adapt=str(file), methods={"infocse": {"annotate.k": 2}, "adapt": {"train.batch_size": 8}})
    assert (settings(found, "adapt").annotate.k, settings(found, "adapt").train.batch_size) == (4, 8)


def mine_budget(run: Any) -> dict[str, Any]:
    return {name: getattr(run.validate, name) for name in ("every_tokens", "patience")}


@pytest.mark.parametrize(
    ("text", "tokens", "label"),
    [
        ("loop: {initialization: none}", 600, "InfoCSE, as mine.yaml has it"),
        ("train: {method: none}", 0, "The encoder as it is, as mine.yaml has it"),
        ("train: {method: simcse}", 600, "SimCSE, as mine.yaml has it"),
        ("", 600, "InfoCSE, as mine.yaml has it"),
    ],
)
def test_a_configuration_of_any_strategy_is_a_row(tmp_path: Path, text: str, tokens: int, label: str):
    (tmp_path / "mine.yaml").write_text(f"encoder: {{max_length: 32}}\n{text}")
    found = plan(tmp_path, adapt=str(tmp_path / "mine.yaml"), learning_rates=[1e-5, 2e-5], only_rows=["adapt"])
    assert [(cell.tokens, cell.label) for cell in found.asked[0].cells] == [(tokens, label)] * (2 if tokens else 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "is no YAML mapping of settings"),
        ("train: 3", "is no YAML mapping of settings"),
        ("a: [", "is no YAML: line 1"),
        ("train: {method: xyz}", "train.method = 'xyz' is no method"),
        ("train: {method: ict}\nloop: {initialization: simcse}", "loop.initialization = 'simcse'"),
        ("annotate: {kk: 3}", "annotate.kk is not a setting"),
    ],
)
def test_a_configuration_with_a_mistake_is_refused(tmp_path: Path, text: str, said: str):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(said)):
        plan(tmp_path, adapt=str(tmp_path / "mine.yaml"))


def test_every_method_has_a_cell_for_each_learning_rate(tmp_path: Path):
    rates = [1e-5, 2e-5, 5e-5]
    own = {"ict": {"train.learning_rate": 3e-4}, "infocse_kmeans": {"train.learning_rate": 1e-3}}
    tables = ["zero_shot", "clustering", "initialization", "options"]
    found = plan(tmp_path, seeds=[4, 5], learning_rates=rates, tables=tables, methods=own)
    for seed in (4, 5):
        slot = found.at["a", "simcse", seed]
        assert [cell.settings.train.learning_rate for cell in slot.cells] == rates
        assert [cell.name for cell in slot.cells] == [f"a-simcse-{seed}-{rate!r}" for rate in rates]
        assert {cell.settings.name for cell in slot.cells} == {f"t-{cell.name}" for cell in slot.cells}
        assert (slot.chooses, slot.runs) == ((True, 3) if seed == 4 else (False, 1))
    assert found.at["a", "simcse", 4].cells[1].title == "a / SimCSE / seed 4 / learning rate 2e-05"
    # One that has its own keeps it, in all rows of the method, and the encoder as it is has none.
    for method, rate in (("ict", 3e-4), ("ict_sentences", 3e-4), ("infocse_kmeans", 1e-3), ("start", 2e-5)):
        [cell] = found.at["a", method, 4].cells
        assert (cell.name, cell.settings.train.learning_rate) == (f"a-{method}-4", rate)
    # Variants of a row take over the row's.
    assert found.at["a", "infocse_simcse", 4].chosen_by == ("a", "infocse", 4)
    assert found.at["a", "infocse_none", 5].chosen_by == ("a", "infocse_none", 4)


def test_what_chooses_a_learning_rate_is_asked_for_too(tmp_path: Path):
    changes: dict[str, Any] = {"seeds": [4, 5], "learning_rates": [1e-5, 2e-5], "label_sizes": [3]}
    found = plan(tmp_path, **changes, tables=["few_shot"], only_rows=["simcse_3", "start_3"])
    assert [slot.place for slot in found.asked] == [
        ("a", "simcse", 4),
        ("a", "start_3", 4),
        ("a", "simcse_3", 4),
        ("a", "start_3", 5),
        ("a", "simcse_3", 5),
    ]
    for seed in (4, 5):
        base, tuned = found.at["a", "simcse", seed], found.at["a", "simcse_3", seed]
        assert tuned.chosen_by == ("a", "simcse", 4)
        for one, other in zip(base.cells, tuned.cells, strict=True):
            assert one.settings.train == other.settings.train, "so that stages are shared"
            assert one.settings.finetune == other.settings.finetune


def test_one_reading_for_all_cells_names_them_only_where_it_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(cells, "fingerprint", lambda *parts: found.append(parts[1]) or repr(parts))
    plan(tmp_path, settings={"validate": {"reading": "sentences"}})
    assert found
    assert not any("reading" in content["validate"] for content in found)
    found.clear()
    plan(tmp_path)
    assert {content["validate"]["reading"] for content in found} == {"both"}
    with pytest.raises(ValueError, match=r"methods: simcse: validate\.reading would make rows that can't be compared"):
        plan(tmp_path, methods={"simcse": {"validate.reading": "whole"}})


def test_a_variant_has_the_learning_rate_that_its_row_has_of_its_own(tmp_path: Path):
    methods = {"infocse_none": {"train.learning_rate": 1e-3}}
    for rates in ([1e-5, 2e-5], [1e-5]):
        found = plan(tmp_path, methods=methods, tables=["options"], learning_rates=rates)
        for method in ("infocse_none", "infocse_distillation_none"):
            assert settings(found, method).train.learning_rate == 1e-3
            assert found.at["a", method, 1].chosen_by is None


def test_inner_products_that_are_not_whitened_are_refused_before_anything_runs(tmp_path: Path):
    dot = {"train": {"similarity": "dot"}}
    with pytest.raises(ValueError, match=r"corpus a: train.similarity = dot: inner products aren't whitened"):
        plan(tmp_path, settings=dot)
    assert not plan(tmp_path, settings=dot | {"encoder": {"whiten": "off"}}).whitened
    with pytest.raises(ValueError, match=r"train\.similarity"):
        plan(tmp_path, methods={"simcse": dot})


def test_a_configuration_of_minutes_is_one_and_what_has_no_method_says_so(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("minutes: 30\nannotate: {k: 4}\n")
    found = plan(tmp_path, adapt=str(file))
    assert (settings(found, "adapt").annotate.k, settings(found, "adapt").minutes) == (4, None)
    for text, said in (("recipe: auto", "name the method that it chose"), ("train: {method: [a]}", "is no method")):
        file.write_text(text)
        with pytest.raises(ValueError, match=said):
            plan(tmp_path, adapt=str(file))


def test_labels_that_are_fewer_than_a_batch_are_refused_before_the_first_cell(tmp_path: Path):
    few = {"tables": ["few_shot"], "label_sizes": [40], "methods": {"simcse_40": {"finetune.batch_size": 64}}}
    with pytest.raises(ValueError, match=r"^label_sizes: 40 labelled examples .* = 64, a / SimCSE, fine-tuned"):
        plan(tmp_path, **few)
    plan(tmp_path, **few, only_rows=["start_40"])  # of what is asked for
    plan(tmp_path, **few | {"label_sizes": [64], "methods": {"simcse_64": {"finetune.batch_size": 64}}})  # as many
