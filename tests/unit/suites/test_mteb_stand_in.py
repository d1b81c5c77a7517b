"""The suite mteb as far as it is ours, with a stand-in for the package, which is an extra of its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.runtime.cluster import Placement
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.storage.folder import Storage
from infocse_ray.suites import mteb_tasks
from infocse_ray.suites.judged import Judged


def task(name: str = "Tiny", modalities: str = "text", **more: Any) -> Any:
    dataset = {"path": "nowhere/tiny", "revision": "1"}
    about = {"name": name, "modalities": [modalities], "dataset": dataset, "type": "Retrieval"}
    one: dict[str, Any] = {"eval_splits": ["test"], "hf_subsets": ["default"], "load_data": lambda: None}
    return SimpleNamespace(metadata=SimpleNamespace(**about), **(one | more))


@pytest.fixture
def mteb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in, which knows two tasks."""
    known = {one.metadata.name: one for one in (task(), task("Pictures", "image"))}
    package = SimpleNamespace(__version__="2.0", get_task=known.__getitem__, get_tasks=lambda: [*known.values()])
    monkeypatch.setattr(mteb_tasks, "require_mteb", lambda: package)
    return package


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """The folders that a task was run on, with the device; the score is that of the folder's name."""
    done: list[tuple[str, str | None]] = []

    def run(_: Any, folder: Path, device: str | None) -> dict[str, Any]:
        done.append((folder.name, device))
        return {"score": {"after": 0.75, "before": 0.5}[folder.name], "measure": "ndcg_at_10", "result": {"of": "it"}}

    monkeypatch.setattr(mteb_tasks, "run_task", run)
    return done


def judged(tmp_path: Path, *names: str, **more: Any) -> Judged:
    settings = Evaluate(model="m", suite=["mteb"], tasks=["Tiny"], **more)
    encoders: Any = {
        whose: SimpleNamespace(fingerprint=name, folder=name, local=lambda name=name: Path(name))
        for whose, name in zip(("model", "compare"), names, strict=False)
    }
    return Judged(settings, Storage.open(str(tmp_path)), Placement(1, False, 1), encoders)


def test_a_row_has_both_scores_and_the_records_are_kept(tmp_path: Path, mteb: Any, ran: list[Any]):
    row, files = mteb_tasks.judge_task(judged(tmp_path, "after", "before"), task())
    assert (row.suite, row.dataset, row.read_as, row.measure) == ("mteb", "Tiny", "Retrieval", "ndcg_at_10")
    assert row.before is not None
    assert (row.before.value, row.after.value, row.difference) == (0.5, 0.75, None)
    assert files.keys() == {"model", "compare"}
    assert all(Storage.open(file).read_json() == {"of": "it"} for file in files.values())
    row, _ = mteb_tasks.judge_task(judged(tmp_path, "after"), task())
    assert (row.before, row.after.value) == (None, 0.75)
    assert ran == [("after", None), ("before", None)], "the same is done once"


def test_what_changes_a_score_names_it_and_the_device_is_the_settings(tmp_path: Path, mteb: Any, ran: list[Any]):
    mteb_tasks.judge_task(judged(tmp_path, "after", use_gpu=False), task())
    assert ran == [("after", "cpu")]
    other = task(eval_splits=["dev"]), task(hf_subsets=["en"]), task("Other"), task()
    other[3].metadata.dataset["revision"] = "2"
    for number, one in enumerate(other, 2):
        mteb_tasks.judge_task(judged(tmp_path, "after"), one)
        assert len(ran) == number
    mteb.__version__ = "3.0"
    mteb_tasks.judge_task(judged(tmp_path, "after"), task())
    assert len(ran) == 6


def test_tasks_that_cannot_be_run_are_refused_before_any_data_is_loaded(mteb: Any, capsys: pytest.CaptureFixture[str]):
    for name, said in (
        ("Tyny", r"^tasks = 'Tyny': mteb 2\.0 has no such task: did you mean Tiny\?$"),
        ("zzz", r"^tasks = 'zzz': mteb 2\.0 has no such task; mteb\.get_tasks\(\) lists them$"),
        ("Pictures", r"^tasks = 'Pictures': is about image, not text alone$"),
    ):
        with pytest.raises(ValueError, match=said):
            mteb_tasks.find_tasks(["Tiny", name])
        assert "loading" not in capsys.readouterr().out
    assert [one.metadata.name for one in mteb_tasks.find_tasks(["Tiny"])] == ["Tiny"]
    assert capsys.readouterr().out == "Tiny: loading its data\n"


def test_data_that_cannot_be_had_is_told_in_a_line():
    def fail() -> None:
        raise ConnectionError("Couldn't reach it.\nA second line.")

    said = r"^tasks = 'Tiny': its data \(nowhere/tiny\) is neither in .*\(HF_HOME\) nor to be had from there: Couldn't"
    with pytest.raises(ValueError, match=said) as error:
        mteb_tasks.load(task(load_data=fail))
    assert str(error.value).endswith("reach it.")
