"""Cells run once, failures stop nothing, and the same command goes on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.errors import Interrupted, LeaseLost, RunInUse, TrainingStopped
from infocse_ray.report import leads, runner, writer
from infocse_ray.report.cells import plan_cells
from infocse_ray.report.config import Tables
from infocse_ray.report.runner import reproduce, run_few_shot, run_without_labels
from infocse_ray.retrieval.bootstrap import paired_bootstrap
from infocse_ray.runtime.interrupts import listening
from infocse_ray.settings import Settings
from infocse_ray.settings.command_line import parse
from infocse_ray.stages.lease import Lease
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents, write_jsonl
from tests.unit.stages.test_lease import of_another_machine
from tests.unit.table_runs import Runs, tables

pytestmark = pytest.mark.usefixtures("undrawn")

JOBS = Path(__file__).parents[3] / "jobs"
NO_ADAPT = "skipped: adapt isn't set; name a configuration of `infocse pretrain`, such as `adapt`"
THREE = {"only_rows": ["start", "simcse", "infocse"]}


@pytest.fixture
def runs() -> Runs:
    return Runs(lambda method, seed, t: [1, 30] if method == "infocse" else [7, 30])


def content(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "runs" / "t" / "tables.json").read_text())


def test_finished_cells_never_run_again(tmp_path: Path, runs: Runs):
    assert reproduce(tables(tmp_path, **THREE), runs) == 0
    assert runs.calls == ["a-start-1", "a-simcse-1", "a-infocse-1"]
    first = content(tmp_path)
    assert reproduce(tables(tmp_path, **THREE), runs) == 0
    assert len(runs.calls) == 3
    assert content(tmp_path) == first
    # Another seed runs alone; other settings run anew, but only the cells they are for.
    reproduce(tables(tmp_path, seeds=[1, 2], **THREE), runs)
    assert runs.calls[3:] == ["a-start-2", "a-simcse-2", "a-infocse-2"]
    reproduce(tables(tmp_path, methods={"simcse": {"train.learning_rate": 1e-3}}, **THREE), runs)
    assert runs.calls[6:] == ["a-simcse-1"]


def test_a_cell_whose_record_is_damaged_runs_again(tmp_path: Path, runs: Runs):
    reproduce(tables(tmp_path, **THREE), runs)
    first = content(tmp_path)
    file = tmp_path / "runs" / "t" / "cells" / "a-simcse-1.json"
    file.write_bytes(file.read_bytes()[:-9])
    assert reproduce(tables(tmp_path, **THREE), runs) == 0
    assert runs.calls[3:] == ["a-simcse-1"]
    assert content(tmp_path) == first


def test_a_cell_of_several_tables_runs_once(tmp_path: Path, runs: Runs):
    reproduce(tables(tmp_path, tables=["zero_shot", "clustering", "annotator"], only_rows=["infocse"]), runs)
    assert runs.calls == ["a-infocse-1"]
    found = content(tmp_path)["corpora"]["a"]["tables"]
    shown = {
        (name, row["key"]): row["metrics"]["whitened"]["recall@5"]["mean"]
        for name, rows in found.items()
        for row in rows
    }
    assert {place for place, mean in shown.items() if mean == 0.5} == {(name, "infocse") for name in found}
    assert set(shown.values()) == {0.5, None}


def test_a_failed_cell_stops_nothing_and_is_tried_again(tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]):
    runs.failing["a-simcse-1"] = RuntimeError("the workers failed\nin two lines")
    assert reproduce(tables(tmp_path, **THREE), runs) == 1
    assert runs.calls == ["a-start-1", "a-simcse-1", "a-infocse-1"]
    cell = content(tmp_path)["cells"]["a-simcse-1"]
    assert (cell["state"], cell["reason"]) == ("failed", "RuntimeError: the workers failed")
    said = capsys.readouterr().out
    assert "[2/3] a / SimCSE / seed 1\n  failed: RuntimeError: the workers failed\n[3/3] a / InfoCSE / seed 1\n" in said
    assert "2 of 3 cells are finished; 1 failed, and the same command tries them again" in said
    runs.failing.clear()
    assert reproduce(tables(tmp_path, **THREE), runs) == 0
    assert runs.calls[3:] == ["a-simcse-1"]
    assert content(tmp_path)["cells"]["a-simcse-1"]["state"] == "finished"


def test_a_credential_in_the_reason_of_a_failure_is_kept_back(
    tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
):
    runs.failing["a-start-1"] = OSError("s3://reader:swordfish@bucket/news is out of reach")
    assert reproduce(tables(tmp_path, only_rows=["start"]), runs) == 1
    assert "s3://***@bucket/news is out of reach" in content(tmp_path)["cells"]["a-start-1"]["reason"]
    kept = [file.read_bytes() for file in (tmp_path / "runs" / "t").rglob("*") if file.is_file()]
    assert not any(b"swordfish" in file for file in kept)
    assert "swordfish" not in capsys.readouterr().out


def test_tables_show_what_other_commands_ran(tmp_path: Path, runs: Runs):
    reproduce(tables(tmp_path, only_rows=["simcse"]), runs)
    reproduce(tables(tmp_path, only_rows=["infocse"]), runs)
    assert runs.calls == ["a-simcse-1", "a-infocse-1"]
    cells = content(tmp_path)["cells"]
    assert len(cells) == 11
    assert {name for name, cell in cells.items() if cell["state"] == "finished"} == {"a-simcse-1", "a-infocse-1"}


@pytest.mark.parametrize(
    ("error", "ended"),
    [(TrainingStopped("workers"), True), (RuntimeError("lost"), True), (ValueError("a setting"), False)],
)
def test_a_ray_that_may_be_broken_is_ended(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch, error: Exception, ended: bool
):
    up, calls = [True], []
    monkeypatch.setattr(runner.ray, "is_initialized", lambda: up[0])
    monkeypatch.setattr(runner.ray, "shutdown", lambda: (calls.append(list(runs.calls)), up.clear(), up.append(False)))
    runs.failing |= {"a-start-1": error, "a-simcse-1": error}
    assert reproduce(tables(tmp_path, **THREE), runs) == 2
    # Once, before the next cell; Ray isn't started here again.
    assert calls == ([["a-start-1"]] if ended else [])


def test_tables_are_there_after_every_cell(tmp_path: Path, runs: Runs):
    seen = []

    def watched(settings: Any) -> dict[str, Any]:
        cells = content(tmp_path)["cells"]
        seen.append([cells[name]["state"] for name in ("a-start-1", "a-simcse-1", "a-infocse-1")])
        return runs(settings)

    reproduce(tables(tmp_path, **THREE), watched)
    assert seen == [["to do"] * 3, ["finished", "to do", "to do"], ["finished", "finished", "to do"]]


def test_a_run_without_test_scores_is_a_failure(tmp_path: Path, runs: Runs):
    def untested(settings: Any) -> dict[str, Any]:
        metrics = runs(settings)
        for entry in metrics["iterations"]:
            del entry["test"]
        return metrics

    assert reproduce(tables(tmp_path, only_rows=["start"]), untested) == 1
    assert "no test document has a counterpart" in content(tmp_path)["cells"]["a-start-1"]["reason"]


@pytest.mark.parametrize("how", ["raised", "failed", "lost"])
def test_a_stopped_cell_stops_the_report_and_the_same_command_goes_on(tmp_path: Path, runs: Runs, how: str):
    def stopped(settings: Any) -> dict[str, Any]:
        if settings.name != "t-a-simcse-1":
            return runs(settings)
        with contextlib.nullcontext() if how == "raised" else contextlib.suppress(Interrupted):
            os.kill(os.getpid(), signal.SIGTERM)
        if how == "failed":
            raise RuntimeError("the controller is gone")
        return runs(settings)

    with listening(), pytest.raises(Interrupted):
        reproduce(tables(tmp_path, **THREE), stopped)
    finished = ["a-start-1", "a-simcse-1"] if how == "lost" else ["a-start-1"]
    assert runs.calls == finished
    assert [n for n, c in content(tmp_path)["cells"].items() if c["state"] != "to do"] == sorted(finished)
    assert reproduce(tables(tmp_path, **THREE), runs) == 0
    assert runs.calls == ["a-start-1", "a-simcse-1", "a-infocse-1"]


def test_the_plan_runs_nothing(tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]):
    reproduce(tables(tmp_path, only="plan", **THREE), runs)
    assert runs.calls == []
    assert not (tmp_path / "runs").exists()
    assert capsys.readouterr().out.splitlines() == [
        "[1/3] a / The encoder as it is / seed 1: to do (0 tokens)",
        "[2/3] a / SimCSE / seed 1: to do (600 tokens)",
        "[3/3] a / InfoCSE / seed 1: to do (600 tokens)",
        NO_ADAPT,
        "3 cells, 0 finished; to go: 3, at most 1,200 tokens of training (stages that cells share are trained once)",
        "how long that takes isn't known yet; the first finished cell will tell",
    ]
    runs.failing["a-simcse-1"] = ValueError("too small")
    reproduce(tables(tmp_path, **THREE), runs)
    capsys.readouterr()
    reproduce(tables(tmp_path, only="plan", **THREE), runs)
    said = capsys.readouterr().out
    assert "[2/3] a / SimCSE / seed 1: failed, to be tried again: too small (600 tokens)" in said
    assert "[3/3] a / InfoCSE / seed 1: finished" in said
    assert "to go: 1, at most 600 tokens" in said
    assert said.splitlines()[-1].endswith(", by what 1 finished cell took")


def test_a_users_own_folder_is_no_tables(tmp_path: Path, runs: Runs):
    (tmp_path / "runs" / "t").mkdir(parents=True)
    (tmp_path / "runs" / "t" / "docs.jsonl").write_text("mine")
    with pytest.raises(ValueError, match=r"^name = 't': .* has docs.jsonl, which no run made"):
        reproduce(tables(tmp_path), runs)


def test_a_run_is_not_overwritten_by_tables_of_its_name(tmp_path: Path, runs: Runs):
    (tmp_path / "runs" / "t").mkdir(parents=True)
    (tmp_path / "runs" / "t" / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match=r"^name = 't': .* is a run; give the tables another name$"):
        reproduce(tables(tmp_path), runs)
    assert not runs.calls
    assert [file.name for file in (tmp_path / "runs" / "t").iterdir()] == ["manifest.json"]


def test_a_mistake_is_refused_before_any_cell(tmp_path: Path, runs: Runs):
    with pytest.raises(ValueError, match=r"row InfoCSE, K-means: train\.batch_size = 1"):
        reproduce(tables(tmp_path, methods={"infocse_kmeans": {"train": {"batch_size": 1}}}), runs)
    assert runs.calls == []
    assert not (tmp_path / "runs").exists()


def test_an_encoder_that_isnt_there_is_refused_before_any_cell(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
):
    reproduce(tables(tmp_path, **THREE), runs)
    first = content(tmp_path)
    monkeypatch.setattr(runner, "resolve_encoder", resolve_encoder)
    gone = str(tmp_path / "gone")
    with pytest.raises(ValueError, match=f"^encoder.model = '{gone}': no such folder"):
        reproduce(tables(tmp_path, encoder=gone, **THREE), runs)
    with pytest.raises(ValueError, match=f"^annotate.first_encoder = '{gone}': no such folder"):
        reproduce(
            tables(
                tmp_path,
                encoder=str(tmp_path),
                first_encoder=gone,
                tables=["annotator"],
                only_rows=["infocse_first_encoder"],
                learning_rates=[1e-5, 2e-5],  # the row waits for the choice of another
            ),
            runs,
        )
    assert len(runs.calls) == 3
    assert reproduce(tables(tmp_path, **THREE), runs) == 0, "what is finished needs no encoder"
    assert len(runs.calls) == 3
    assert content(tmp_path) == first


def test_the_shipped_config_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").symlink_to(JOBS)
    file = JOBS.parent / "infocse_ray" / "configs" / "tables.yaml"
    argv = ["--config", str(file), "--encoder", "model", "--settings.train.batch_size", "64", "--seeds=[7]"]
    argv += ["--settings.train.chunk_tokens=99", "--methods.ict.train.learning_rate", "1e-3"]
    config = parse(Tables, argv, "reproduce.py", "")
    columns = {
        "bbc_news": {"body": "title"},
        "wikiqa": {"sentences": "title"},
        "amazon_office": {"body": "title"},
        "wikispeedia": {"history": "target"},
    }
    for corpus in config.corpora:
        source = Path(corpus.settings["corpus"]["source"])
        source.parent.mkdir(parents=True)
        [(text, counterpart)] = columns[corpus.name].items()
        rows = [{text: " ".join(d["sentences"]), counterpart: d["counterpart"]} for d in make_documents(8)]
        write_jsonl(source.with_suffix(""), rows)
        corpus.settings["corpus"]["source"] = str(source.with_suffix(""))
    plan = plan_cells(config)
    assert {cell.settings.validate.reading for cell in plan.cells} == {"sentences"}  # as in the paper
    assert {cell.seed for cell in plan.cells} == {7}
    assert {cell.corpus for cell in plan.cells} == set(columns)
    # Without the row that needs first_encoder; nine rows for each of two sizes, all labels, and InfoCSE++.
    assert set(plan.skipped) == {"infocse_first_encoder"}
    assert len(plan.slots) == 4 * (18 + 2 * 9 + 4)
    run = plan.at["bbc_news", "simcse", 7].cells[0].settings
    assert (run.train.batch_size, run.train.chunk_tokens) == (64, 99)
    assert run.train.similarity == "cosine", "what the file says of the same section holds"
    assert (run.validate.on, run.validate.metric, run.encoder.whiten) == ("sentence", "mrr", "auto")  # pyright: ignore
    [ict] = plan.at["bbc_news", "ict", 7].cells
    assert (ict.settings.train.learning_rate, ict.settings.train.batch_size) == (1e-3, 16)
    assert len(plan.at["bbc_news", "adapt", 7].cells) == len(config.learning_rates) == 3
    given = yaml.safe_load(file.read_text())
    assert given["tokens"] == config.tokens == plan.at["bbc_news", "simcse", 7].cells[0].tokens
    assert given["seeds"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--settings.train.batch_size"], "--settings.train.batch_size: expected a value"),
        (["--settings.train.batch_size", "--encoder", "m"], "--settings.train.batch_size: expected a value"),
        (["--settings.train.batch_size=[1"], "--settings.train.batch_size = '[1': not a YAML value"),
        (["--encoder.model=m"], "encoder.model is not a setting: did you mean settings.encoder.model?"),
        (["--seed=3"], "seed is not a setting: did you mean seeds?"),
    ],
)
def test_an_option_that_is_none_or_lacks_its_value_is_refused(
    option: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as stopped:
        parse(
            Tables,
            ["--config", str(JOBS.parent / "infocse_ray" / "configs" / "tables.yaml"), *option],
            "reproduce.py",
            "",
        )
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("whiten", ["off", "auto", 0.5])
def test_cells_are_tested_without_their_whitening_too(monkeypatch: pytest.MonkeyPatch, whiten: Any):
    asked: list[Any] = []
    note: Any = lambda job: lambda settings, **more: asked.append((job, more))  # noqa: E731
    for name in ("run_pretrain", "finetune", "plusplus"):
        monkeypatch.setattr(runner, name, note(name))
    for run, method in ((run_without_labels, "idc"), (run_few_shot, "none"), (run_few_shot, "ict")):
        content = {"name": "x", "corpus": {"source": "x"}, "encoder": {"model": "m", "whiten": whiten}}
        run(Settings.model_validate(content | {"train": {"method": method}}))
    also = {"also_plain": whiten != "off"}
    # A row with labels fine-tunes what its method trained, were it worse than its start.
    assert asked == [
        ("run_pretrain", also | {"tested": True}),
        ("finetune", also),
        ("plusplus", also | {"fall_back": False}),
    ]


RATES = {"learning_rates": [1e-5, 2e-5, 5e-5], "only_rows": ["start", "simcse"], "seeds": [1, 2]}


def test_validation_chooses_the_learning_rate_with_the_first_seed(tmp_path: Path, runs: Runs):
    # By the test, which isn't asked, every learning rate is the same.
    runs.liked = {1e-5: 0.5, 2e-5: 0.7, 5e-5: 0.6}
    assert reproduce(tables(tmp_path, **RATES), runs) == 0
    assert runs.calls == [
        "a-start-1",
        "a-simcse-1-1e-05",
        "a-simcse-1-2e-05",
        "a-simcse-1-5e-05",
        "a-start-2",
        "a-simcse-2-2e-05",
    ]
    found = content(tmp_path)
    [row] = [row for row in found["corpora"]["a"]["tables"]["zero_shot"] if row["key"] == "simcse"]
    assert row["learning_rate"] == {"chosen": 2e-5, "tried": {"1e-05": 0.5, "2e-05": 0.7, "5e-05": 0.6}}
    assert row["ranks"]["whitened"] == {
        "1": "t-a-simcse-1-2e-05/iteration_1-test",
        "2": "t-a-simcse-2-2e-05/iteration_1-test",
    }
    rates = {name: cell["learning_rate"] for name, cell in found["cells"].items() if cell["state"] == "finished"}
    assert rates["a-simcse-1-5e-05"] == 5e-5
    text = (tmp_path / "runs" / "t" / "tables.md").read_text()
    assert "and with seed 1 the learning rate among 1e-05, 2e-05, 5e-05, with the best validation score are" in text
    assert rates["a-start-1"] is None
    assert len(rates) == 6
    # Nothing is looked at again; another learning rate runs alone, and what it changes.
    assert reproduce(tables(tmp_path, **RATES), runs) == 0
    assert len(runs.calls) == 6
    runs.liked[1e-4] = 0.8
    assert reproduce(tables(tmp_path, **(RATES | {"learning_rates": [1e-5, 2e-5, 5e-5, 1e-4]})), runs) == 0
    assert runs.calls[6:] == ["a-simcse-1-0.0001", "a-simcse-2-0.0001"]


def test_a_learning_rate_that_fails_is_left_out_until_it_works(tmp_path: Path, runs: Runs):
    runs.liked = {1e-5: 0.5, 2e-5: 0.4, 5e-5: 0.6}
    runs.failing["a-simcse-1-5e-05"] = RuntimeError("the loss is not finite")
    assert reproduce(tables(tmp_path, **RATES), runs) == 1
    assert runs.calls[-1] == "a-simcse-2-1e-05"
    text = (tmp_path / "runs" / "t" / "tables.md").read_text()
    assert "1. SimCSE, a: the learning rate 5e-05 failed and wasn't chosen among" in text
    runs.failing.clear()
    assert reproduce(tables(tmp_path, **RATES), runs) == 0
    assert runs.calls[6:] == ["a-simcse-1-5e-05", "a-simcse-2-5e-05"]


def test_without_a_learning_rate_there_is_no_row(tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]):
    for rate in ("1e-05", "2e-05", "5e-05"):
        runs.failing[f"a-simcse-1-{rate}"] = ValueError("too small")
    assert reproduce(tables(tmp_path, **RATES), runs) == 4
    assert runs.calls[-1] == "a-start-2"
    why = "all learning rates failed with seed 1: too small"
    assert f"[6/6] a / SimCSE / seed 2\n  left out: {why}\n2 of 6 cells are finished; 4" in capsys.readouterr().out
    [row] = [row for row in content(tmp_path)["corpora"]["a"]["tables"]["zero_shot"] if row["key"] == "simcse"]
    assert row["failures"] == {"1": why, "2": why}


def test_the_plan_counts_every_learning_rate(tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]):
    reproduce(tables(tmp_path, only="plan", **RATES), runs)
    assert capsys.readouterr().out.splitlines() == [
        "[1/6] a / The encoder as it is / seed 1: to do (0 tokens)",
        "[2/6] a / SimCSE / seed 1 / learning rate 1e-05: to do (600 tokens)",
        "[3/6] a / SimCSE / seed 1 / learning rate 2e-05: to do (600 tokens)",
        "[4/6] a / SimCSE / seed 1 / learning rate 5e-05: to do (600 tokens)",
        "[5/6] a / The encoder as it is / seed 2: to do (0 tokens)",
        "[6/6] a / SimCSE / seed 2: to do, with the learning rate chosen for a / SimCSE / seed 1 (600 tokens)",
        NO_ADAPT,
        "6 cells, 0 finished; to go: 6, at most 2,400 tokens of training (stages that cells share are trained once)",
        "how long that takes isn't known yet; the first finished cell will tell",
    ]
    runs.liked = {5e-5: 0.95}
    reproduce(tables(tmp_path, **(RATES | {"seeds": [1]})), runs)
    capsys.readouterr()
    reproduce(tables(tmp_path, only="plan", **RATES), runs)
    assert capsys.readouterr().out.splitlines()[2:] == [
        "[3/6] a / SimCSE / seed 1 / learning rate 2e-05: finished (600 tokens)",
        "[4/6] a / SimCSE / seed 1 / learning rate 5e-05: finished, chosen (600 tokens)",
        "[5/6] a / The encoder as it is / seed 2: to do (0 tokens)",
        "[6/6] a / SimCSE / seed 2 / learning rate 5e-05: to do (600 tokens)",
        NO_ADAPT,
        "6 cells, 4 finished; to go: 2, at most 600 tokens of training (stages that cells share are trained once)",
        "at most about 30 s, by what 3 finished cells took",  # 100 tokens in 5 seconds each
    ]


def test_the_plan_counts_the_tokens_of_every_round(tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]):
    changes = {"tables": ["zero_shot", "plusplus", "label_share"], "label_sizes": [3], "rounds": 3}
    rows = ["simcse", "infocse_3", "infocse_plusplus_3", "infocse_distillation_none_mixed_3"]
    reproduce(tables(tmp_path, **changes, only_rows=rows[1:], only="plan"), runs, runs.few_shot)
    assert [line for line in capsys.readouterr().out.splitlines() if line != NO_ADAPT] == [
        "[1/3] a / InfoCSE, fine-tuned (3) / seed 1: to do (600 tokens)",
        # 200 in the initialisation, and 200 in each of two iterations of three rounds; without it 300.
        "[2/3] a / InfoCSE++ (3) / seed 1: to do (1,400 tokens)",
        "[3/3] a / InfoCSE++, label_share = 0.5, from the encoder as it is (3) / seed 1: to do (1,800 tokens)",
        "3 cells, 0 finished; to go: 3, at most 3,800 tokens of training, fine-tuning apart (stages that cells share "
        "are trained once)",
        "how long that takes isn't known yet; the first finished cell will tell",
    ]
    reproduce(tables(tmp_path, only_rows=rows[:1]), runs)
    capsys.readouterr()
    reproduce(tables(tmp_path, **changes, only_rows=rows[2:3], only="plan"), runs, runs.few_shot)
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "at most about 70 s, fine-tuning apart, by what 1 finished cell took"
    )


def test_rows_with_labels_take_over_the_learning_rate(tmp_path: Path, runs: Runs):
    runs.liked = {5e-5: 0.95}
    config = tables(tmp_path, **(RATES | {"only_rows": ["simcse_3"], "tables": ["few_shot"], "label_sizes": [3]}))
    assert reproduce(config, runs, runs.few_shot) == 0
    assert runs.calls == [
        "a-simcse-1-1e-05",
        "a-simcse-1-2e-05",
        "a-simcse-1-5e-05",
        "a-simcse_3-1-5e-05",
        "a-simcse_3-2-5e-05",
    ]


def test_what_a_stopped_choice_has_done_is_kept(tmp_path: Path, runs: Runs):
    def stopped(settings: Any) -> dict[str, Any]:
        if settings.name == "t-a-simcse-1-5e-05":
            raise Interrupted(signal.SIGTERM)
        return runs(settings)

    with pytest.raises(Interrupted):
        reproduce(tables(tmp_path, **RATES), stopped)
    states = {name: cell["state"] for name, cell in content(tmp_path)["cells"].items() if "simcse" in name}
    assert states == {
        "a-simcse-1-1e-05": "finished",
        "a-simcse-1-2e-05": "finished",
        "a-simcse-1-5e-05": "to do",
        "a-simcse-2": "to do",
    }
    assert reproduce(tables(tmp_path, **RATES), runs) == 0
    assert runs.calls[3:] == ["a-simcse-1-5e-05", "a-start-2", "a-simcse-2-1e-05"]


def test_only_what_changed_is_compared_and_drawn_again(tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch):
    drawn, compared = [], []
    monkeypatch.setattr(writer, "plot", lambda study, tables: drawn.append(study.name) or b"")
    monkeypatch.setattr(leads, "paired_bootstrap", lambda *given: compared.append(1) or paired_bootstrap(*given))
    config = tables(tmp_path, tables=["zero_shot", "clustering"], only_rows=["start", "simcse", "infocse"])
    reproduce(config, runs)
    # Before any cell, then with those that each of them shows.
    assert drawn == ["zero_shot", "clustering", "zero_shot", "clustering", "zero_shot", "zero_shot", "clustering"]
    # SimCSE and, in two tables and as the strongest other row again, InfoCSE over the encoder as it is, in R@5 and MRR.
    assert len(compared) == 4


def test_a_driver_whose_tables_another_took_over_stops(tmp_path: Path, runs: Runs):
    config = tables(tmp_path, **THREE)
    file = Storage.open(config.storage) / config.name / "driver.lease"

    def taken(settings: Any) -> dict[str, Any]:
        if settings.name == "t-a-simcse-1":
            of_another_machine(file)
            raise LeaseLost("name = 't-a-simcse-1': taken")
        return runs(settings)

    with pytest.raises(LeaseLost, match=r"name = 't': .*taken by another driver"):
        reproduce(config, taken)
    assert runs.calls == ["a-start-1"]
    assert not (tmp_path / "runs" / "t" / "cells" / "a-simcse-1.json").exists(), (
        "its record is the other driver's to write"
    )


def test_a_second_command_of_the_same_tables_is_refused(tmp_path: Path, runs: Runs):
    config = tables(tmp_path)
    with Lease(Storage.open(config.storage) / config.name / "driver.lease", "tables") as lease:
        lease.take()
        with pytest.raises(RunInUse, match="name = 't': another driver is at work on it"):
            reproduce(config, runs)
    assert not runs.calls
    assert reproduce(config, runs) == 0
