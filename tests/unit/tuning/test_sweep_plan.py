"""What each trial of a sweep is told, and what is refused before any of them runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.settings import Settings
from infocse_ray.settings.command_line import parse
from infocse_ray.tuning.config import Sweep
from infocse_ray.tuning.trials import Trial, plan_trials
from tests.conftest import make_documents, write_jsonl
from tests.unit.sweep_runs import Finder, sweep_of

CONFIG = Path(__file__).parents[3] / "infocse_ray" / "configs" / "sweep.yaml"


def plan(folder: Path, **changes: Any) -> list[Trial]:
    return plan_trials(sweep_of(folder, **changes), Finder())


def values(plan: list[Trial], name: str) -> list[Any]:
    return [trial.values[name] for trial in plan]


def test_every_combination_of_the_grids_is_a_trial_with_its_settings(tmp_path: Path):
    found = plan(tmp_path)
    pairs = [(trial.settings.annotate.k, trial.settings.train.batch_size) for trial in found]
    assert pairs == [(1, 4), (2, 4), (1, 8), (2, 8)]
    assert [trial.number for trial in found] == [1, 2, 3, 4]
    assert {trial.settings.loop.max_iterations for trial in found} == {2}
    assert found[3].values == {"annotate.k": 2, "train.batch_size": 8}
    assert found[3].title == "annotate.k = 2, train.batch_size = 8"
    assert {trial.settings.name for trial in found} == {trial.name for trial in found}


def test_samples_of_grids_alone_are_refused(tmp_path: Path):
    with pytest.raises(
        ValueError, match="samples = 3: all parameters are grids, of which nothing is drawn; leave it out"
    ):
        sweep_of(tmp_path, samples=3)
    drawn = {"annotate.k": {"grid": [1, 2]}, "train.learning_rate": {"loguniform": [1e-5, 1e-4]}}
    assert len(plan(tmp_path, samples=3, parameters=drawn)) == 6


def test_trials_of_one_first_annotation_do_not_start_together(tmp_path: Path):
    grids = {"train.batch_size": {"grid": [4, 8]}, "annotate.k": {"grid": [1, 2, 3]}}
    assert values(plan(tmp_path, parameters=grids), "annotate.k") == [1, 2, 3, 1, 2, 3]


def test_a_trial_is_named_after_its_values_alone(tmp_path: Path):
    names = [trial.name for trial in plan(tmp_path)]
    assert re.fullmatch(r"s-k1-batch_size4-[0-9a-f]{8}", names[0])
    assert len(set(names)) == 4
    more = {"annotate.k": {"grid": [5, 2]}, "train.batch_size": {"grid": [8]}}
    assert plan(tmp_path, parameters=more)[1].name == names[3], "in another grid it is the same run"
    rates = {"train.learning_rate": {"grid": ["1e-5", 0.00001, 3e-5]}}
    assert values(plan(tmp_path, parameters=rates), "train.learning_rate") == [1e-5, 3e-5]
    path = {"encoder.model": {"grid": ["some/very long path/" + "x" * 90, "some/very long path/" + "x" * 91]}}
    for trial in plan(tmp_path, parameters=path):
        Settings.model_validate(trial.settings.model_dump())
        assert len(trial.name) < 80


def test_trials_are_tracked_as_a_group_of_the_sweeps_name_unless_another_is_given(tmp_path: Path):
    assert {trial.settings.tracking.group for trial in plan(tmp_path)} == {"s"}
    settings = sweep_of(tmp_path).settings | {"tracking.group": "ours", "tracking.sinks": ["mlflow"]}
    named = plan(tmp_path, settings=settings)
    assert {trial.settings.tracking.group for trial in named} == {"ours"}
    assert [trial.identity for trial in named] == [trial.identity for trial in plan(tmp_path)]


def test_other_settings_of_all_trials_make_other_identities_under_the_same_names(tmp_path: Path):
    one, other = plan(tmp_path), plan(tmp_path, settings=sweep_of(tmp_path).settings | {"seed": 7})
    assert [trial.name for trial in one] == [trial.name for trial in other]
    assert not {trial.identity for trial in one} & {trial.identity for trial in other}
    assert len({trial.identity for trial in one}) == 4


def test_what_is_drawn_follows_from_the_seed_and_more_samples_keep_those_there(tmp_path: Path):
    parameters = {
        "annotate.k": {"grid": [1, 2]},
        "train.learning_rate": {"loguniform": [1e-5, 1e-4]},
        "train.batch_size": {"randint": [4, 7]},
        "loop.initialization": {"choice": ["none", "simcse"]},
        "train.temperature": {"uniform": [0.01, 0.1]},
        "simcse.temperature": {"uniform": [0.01, 0.1]},
    }
    found = plan(tmp_path, parameters=parameters, samples=40)
    rates = values(found, "train.learning_rate")
    assert len(found) == 80
    assert all(1e-5 <= rate <= 1e-4 for rate in rates)
    assert 10 <= sum(rate < 10**-4.5 for rate in set(rates)) <= 30, "half of them are below the middle of the logarithm"
    assert set(values(found, "train.batch_size")) == {4, 5, 6}, "whole numbers, the upper bound not among them"
    assert set(values(found, "loop.initialization")) == {"none", "simcse"}
    assert all(0.01 <= value <= 0.1 for value in values(found, "train.temperature"))
    assert values(found, "train.temperature") != values(found, "simcse.temperature"), "each draws its own"
    # The whole grid is tried with each draw.
    assert all(one.values | {"annotate.k": 2} == other.values for one, other in zip(*[iter(found)] * 2, strict=True))
    few = plan(tmp_path, parameters=parameters, samples=3)
    assert [trial.name for trial in few] == [trial.name for trial in found[:6]]
    assert values(plan(tmp_path, parameters=parameters, samples=3, seed=1), "train.learning_rate") != rates[:6]


def test_a_choice_drawn_twice_is_one_trial(tmp_path: Path):
    found = plan(tmp_path, parameters={"annotate.k": {"choice": [1, 2]}}, samples=20)
    assert sorted(values(found, "annotate.k")) == [1, 2]


def test_encoders_are_loaded_once_for_all_trials_that_have_them(tmp_path: Path):
    find = Finder()
    plan_trials(sweep_of(tmp_path), find)
    assert len(find.asked) == 1
    find = Finder()
    grids = {"annotate.k": {"grid": [1, 2]}, "encoder.model": {"grid": ["a", "b"]}, "train.method": {"grid": ["idc"]}}
    found = plan_trials(sweep_of(tmp_path, parameters=grids), find)
    assert [settings.encoder.model for settings in find.asked] == ["a", "b"]
    assert len({trial.identity for trial in found}) == 4
    find = Finder()
    plan_trials(sweep_of(tmp_path, parameters={"train.temperature": {"grid": [0.05, 0.05000001]}}), find)
    assert len(find.asked) == 2, "values that look alike in the table aren't"


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "name at least one setting"),
        (
            {"annotate.kk": {"grid": [1]}},
            "annotate.kk is not a setting of `infocse pretrain`: did you mean annotate.k?",
        ),
        (
            {"annotate": {"kk": {"grid": [1]}}},
            "annotate.kk is not a setting of `infocse pretrain`: did you mean annotate.k?",
        ),
        ({"anotate": {"k": {"grid": [1]}}}, "anotate is not a setting of `infocse pretrain`: did you mean annotate"),
        ({"name": {"grid": ["a"]}}, "name can't be swept: it follows from"),
        ({"storage": {"grid": ["a"]}}, "storage can't be swept: it follows from"),
        ({"corpus.valid_fraction": {"grid": [0.1]}}, "corpus.valid_fraction can't be swept: .* different documents"),
        ({"validate.metric": {"grid": ["mrr"]}}, "validate.metric can't be swept: scores couldn't be compared"),
        ({"validate.on": {"grid": ["halves"]}}, "validate.on can't be swept"),
        ({"validate.reading": {"grid": ["both"]}}, "validate.reading can't be swept: scores couldn't be compared"),
        ({"validate.sts": {"grid": ["a.tsv"]}}, "validate.sts can't be swept: it changes no training"),
        ({"train.learning_rate": {"quniform": [0.1, 0.5, 0]}}, "quniform = .*: give numbers, .* and the step"),
        ({"train.learning_rate": {"quniform": [0.1, 0.5, -0.1]}}, "quniform = .*: give numbers, .* and the step"),
        ({"annotate.k": {"qrandint": [1, 10, 0]}}, "qrandint = .*: give whole numbers, .* and the step"),
        ({"train.temperature": {"uniform": [0.1, float("nan")]}}, "uniform = .*: give numbers, the lowest and"),
        ({"train.chunk_tokens": {"grid": [64]}}, "train.chunk_tokens can't be swept: it changes no result"),
        ({"explorer.documents": {"grid": [1]}}, "explorer.documents can't be swept: it changes no result"),
        ({"tracking.group": {"grid": ["a"]}}, "tracking.group can't be swept: it changes no result"),
        ({"finetune.epochs": {"grid": [1]}}, "finetune.epochs can't be swept: `infocse pretrain` doesn't read it"),
        ({"annotate.k": [1, 2]}, r"annotate.k = \[1, 2\]: give one of grid, choice, .* such as {grid"),
        ({"annotate.k": {"gird": [1]}}, "annotate.k = {'gird': .*: give one of grid, choice, uniform, quniform"),
        ({"annotate.k": {"grid": [1], "choice": [2]}}, "give one of grid, choice"),
        ({"annotate.k": {"grid": 3}}, "annotate.k: grid = 3: give a list"),
        ({"annotate.k": {"grid": []}}, r"annotate.k: grid = \[\]: give a list"),
        ({"annotate.k": {"uniform": [1, 2, 3]}}, "annotate.k: uniform = .*: give numbers, the lowest and the highest"),
        ({"annotate.k": {"uniform": ["a", 3]}}, "annotate.k: uniform = .*: give numbers, the lowest and the highest"),
        ({"annotate.k": {"uniform": [3, 1]}}, "annotate.k: uniform = .*: give the lower number first"),
        ({"annotate.k": {"uniform": [1, 3]}}, r"annotate.k = \d\.\d+: .*valid integer.*for whole numbers use randint"),
        ({"annotate.k": {"randint": [1, 2.5]}}, "annotate.k: randint = .*: give whole numbers, the lowest and"),
        ({"annotate.k": {"randint": [3, 1]}}, "annotate.k: randint = .*: give the lower number first"),
        ({"annotate.k": {"uniform": [1, float("inf")]}}, "annotate.k: uniform = .*: give numbers, the lowest and"),
        ({"train.learning_rate": {"loguniform": [0, 1]}}, "loguniform = .*: give numbers, the lower above 0"),
        (
            {"train.learning_rate": {"loguniform": [1e-5, 1e-3, 1e-5]}},
            "give numbers, the lower above 0, the lowest and",
        ),
        ({"train.batch_size": {"lograndint": [8, 512, 8]}}, "give whole numbers, the lowest and the highest"),
        ({"train.learning_rate": {"quniform": [0.1, 0.5]}}, "quniform = .*: give numbers, .* and the step"),
        ({"train.method": {"uniform": [0, 1]}}, r"trial train.method = 0\.\d+: train.method = 0\.\d+: .*'idc'"),
        ({"annotate.k": {"grid": [1, 0]}}, "trial annotate.k = 0: annotate.k = 0: .*greater than or equal to 1"),
        ({"train.batch_size": {"grid": [8, "many"]}}, "train.batch_size = 'many': .*valid integer"),
        (
            {"annotate.clustering": {"grid": ["kmeans"]}, "annotate.kmeans_sample": {"grid": [100, 9]}},
            "trial annotate.clustering = kmeans, annotate.kmeans_sample = 9: annotate.kmeans_sample = 9: fewer",
        ),
    ],
)
def test_parameters_that_do_not_fit_are_refused_in_one_line(tmp_path: Path, parameters: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message) as refusal:
        plan(tmp_path, parameters=parameters)
    if not hasattr(refusal.value, "errors"):  # else the command line makes it one line
        assert "\n" not in str(refusal.value)


def test_seeds_are_swept_where_they_change_no_question(tmp_path: Path):
    config = sweep_of(tmp_path, parameters={"seed": {"grid": [1, 2]}})
    on = {"validate": {"on": "sentence"}}
    with pytest.raises(ValueError, match="parameters: seed: validation takes other sentences out of documents"):
        plan_trials(config.model_copy(update={"settings": config.settings | on}), Finder())
    other = config.model_copy(update={"settings": config.settings | {"validate": {"on": "halves"}}})
    assert values(plan_trials(other, Finder()), "seed") == [1, 2]


@pytest.mark.parametrize(
    ("settings", "parameters", "name"),
    [
        ({}, {"simcse.temperature": {"grid": [0.01, 0.05]}}, "simcse.temperature"),
        ({"annotate.clustering": "kmeans"}, {"annotate.k": {"grid": [1, 2]}}, "annotate.k"),
        ({"train.method": "simcse"}, {"train.distillation": {"grid": [0.0, 0.5]}}, "train.distillation"),
        ({"train.method": "simcse"}, {"annotate.k": {"grid": [1, 2]}}, "annotate.k"),
        ({"train.method": "simcse"}, {"annotate.first_encoder": {"grid": ["a", "b"]}}, "annotate.first_encoder"),
        ({}, {"loop.pilot_steps": {"randint": [10, 99]}, "annotate.k": {"grid": [1, 2]}}, "loop.pilot_steps"),
        ({}, {"train.method": {"grid": ["idc", "ict"]}, "simcse.dropout": {"grid": [0.1, 0.2]}}, "simcse.dropout"),
    ],
)
def test_a_parameter_that_no_trial_reads_is_refused(
    tmp_path: Path, settings: dict[str, Any], parameters: dict[str, Any], name: str
):
    settings = sweep_of(tmp_path).settings | settings
    with pytest.raises(ValueError, match=rf"^parameters: {name} isn't read with these settings; leave it out$"):
        plan(tmp_path, settings=settings, parameters=parameters, samples=3 if name == "loop.pilot_steps" else 1)


@pytest.mark.parametrize(
    "parameters",
    [
        {"train.method": {"grid": ["idc", "simcse"]}, "simcse.temperature": {"grid": [0.01, 0.05]}},
        {"train.method": {"grid": ["idc", "simcse"]}, "annotate.k": {"grid": [1, 2]}},
        {"annotate.clustering": {"grid": ["partition", "kmeans"]}, "annotate.kmeans_clusters": {"grid": [5, 6]}},
        {"minutes": {"grid": [None, 5]}, "train.max_steps": {"grid": [10, 20]}},
        {"minutes": {"grid": [5]}, "train.max_steps": {"grid": [10, 20]}},
        {"simcse.temperature": {"grid": [0.01]}},
        {"encoder.model": {"grid": ["a", "b"]}},
        {"train.interpolation": {"grid": [[], [0.5]]}},
    ],
)
def test_a_parameter_that_some_trials_read_or_that_has_one_value_is_swept(tmp_path: Path, parameters: dict[str, Any]):
    number = 1
    for how in parameters.values():
        number *= len(how["grid"])
    assert len(plan(tmp_path, parameters=parameters)) == number


def test_a_parameter_that_only_a_choice_not_drawn_yet_would_read_is_swept(tmp_path: Path):
    parameters = {
        "train.method": {"choice": ["idc", "simcse"]},
        "simcse.temperature": {"uniform": [0.01, 0.1]},
        "annotate.k": {"randint": [1, 9]},
    }
    for seed in range(9):
        assert plan(tmp_path, parameters=parameters, samples=2, seed=seed)


def test_credentials_are_in_no_name_and_change_none(tmp_path: Path):
    models = [f"s3://AKIAEXAMPLE:{word}@bucket/model" for word in ("supersecretpassword", "anotherlongsecret")]
    names = [plan(tmp_path, parameters={"encoder.model": {"grid": [model]}})[0].name for model in models]
    assert "secret" not in names[0]
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"name": "x"}}, "settings: name follows from `name` of the sweep"),
        ({"name": "a/b"}, "use letters, digits"),
        ({"asha": {"reduction_factor": 3}}, "asha.reduction_factor = 3: no trial is stopped without asha.grace"),
        ({"asha": {"grace_iterations": 2}}, r"asha.grace_iterations = 2: trials have 2 iterations .*; lower it"),
        ({"asha": {"reduction_factor": 1}}, "greater than 1"),
        ({"settings": {"encoder": {"model": "m"}}}, "corpus.source is required"),
    ],
)
def test_a_sweep_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        plan(tmp_path, **changes)


def test_a_mistake_in_all_trials_settings_is_said(tmp_path: Path):
    settings = sweep_of(tmp_path).settings | {"train": {"temperatur": 1.0}}
    with pytest.raises(ValueError, match=r"train.temperatur is not a setting: did you mean .*temperature\?"):
        plan(tmp_path, settings=settings)


def test_parameters_and_settings_of_all_trials_may_have_their_names_of_before(tmp_path: Path):
    settings = sweep_of(tmp_path).settings | {"annotate": {"method": "kmeans"}}
    parameters = {"train": {"strategy": {"grid": ["idc", "simcse"]}}}
    found = plan(tmp_path, settings=settings, parameters=parameters)
    assert values(found, "train.method") == ["idc", "simcse"]
    assert {trial.settings.annotate.clustering for trial in found} == {"kmeans"}


def test_a_space_on_the_command_line_replaces_that_of_the_file(tmp_path: Path):
    space = "--parameters.train.learning_rate={grid: [1e-5, 2e-5]}"
    file = tmp_path / "sweep.yaml"
    file.write_text("name: s\nparameters: {train.learning_rate: {loguniform: [1e-5, 1e-4]}, annotate.k: {grid: [1]}}\n")
    for argv in ([space, f"--config={file}"], [f"--config={file}", "--parameters.train.learning_rate={}", space]):
        found = parse(Sweep, argv, "sweep", "").parameters
        assert found == {"train.learning_rate": {"grid": ["1e-5", "2e-5"]}, "annotate.k": {"grid": [1]}}


def test_text_of_all_trials_settings_is_text_as_pretrain_takes_it():
    argv = ["--name=s", "--parameters.annotate.k={grid: [1]}", "--settings.encoder.query_prompt=query: "]
    argv += ["--settings.corpus.language=no", "--settings.corpus.id=007", "--settings.train.batch_size=64"]
    tree = parse(Sweep, argv, "sweep", "").settings
    assert tree["encoder"] == {"query_prompt": "query: "}
    assert tree["corpus"] == {"language": "no", "id": "007"}
    assert tree["train"] == {"batch_size": 64}


def test_what_a_trial_does_not_find_is_refused_with_its_values(tmp_path: Path):
    def find(settings: Settings) -> Any:
        if settings.encoder.model == "b":
            raise ValueError("encoder.model = 'b': no such folder")
        return Finder()(settings)

    config = sweep_of(tmp_path, parameters={"annotate.k": {"grid": [1]}, "encoder.model": {"grid": ["a", "b"]}})
    with pytest.raises(ValueError, match=r"trial encoder.model = b: encoder.model = 'b': no such folder"):
        plan_trials(config, find)


def test_the_command_line_overrides_the_shipped_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    argv = ["--config", str(CONFIG), "--name", "mine", "--settings.encoder.model", "m", "--max_concurrent", "2"]
    argv += ["--settings.train.max_tokens=99", "--parameters.annotate.k", "{grid: [7]}", "--asha.grace_iterations=1"]
    argv += ["--parameters.train.learning_rate={loguniform: [1e-5, 1e-4]}", "--samples", "2"]
    documents = [{"body": " ".join(d["sentences"]), "title": d["counterpart"]} for d in make_documents(8)]
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    argv += ["--settings.loop.max_iterations", "2", "--settings.corpus.source", str(source)]
    config = parse(Sweep, argv, "sweep.py", "")
    found = plan_trials(config, Finder())
    assert list(config.parameters) == ["annotate.k", "train.batch_size", "train.learning_rate"]
    assert (config.asha.grace_iterations, config.max_concurrent) == (1, 2)
    assert values(found, "annotate.k") == [7] * 4
    assert {trial.settings.train.max_tokens for trial in found} == {99}
    assert found[0].settings.train.similarity == "cosine", "what the file says of the same section holds"
    with pytest.raises(SystemExit):
        parse(Sweep, [*argv, "--parameters.annotate.kk={grid: [1]}"], "sweep.py", "")
    said = capsys.readouterr().err
    assert "parameters: annotate.kk is not a setting of `infocse pretrain`: did you mean annotate.k?" in said
    assert len(said.splitlines()) == 1
