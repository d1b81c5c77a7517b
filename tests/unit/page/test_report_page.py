"""The page of a run: complete, of a part of a run, of an earlier version's, and of a hostile corpus."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pyarrow as pa
import pytest

from infocse_ray.corpus.schema import rejected_schema
from infocse_ray.page import write
from infocse_ray.page.told import text_of
from infocse_ray.page.write import _joined, end_with_page, write_comparison, write_page
from infocse_ray.storage.checksums import checked, read_checked, verified
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import write_parquet
from tests.unit.page.runs import CORPUS, EVIL, VERDICT, scores, settings, write_run

DIFFER = "Their validation questions differ"


class Page(HTMLParser):
    """The text of a page by section, its tags, and what it links to."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.sections: dict[str, str] = {"": ""}
        self.tags: list[str] = []
        self.links: list[str] = []
        self._at = ""
        self.feed(content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        if tag == "section":
            self._at = given["id"] or ""
            self.sections[self._at] = ""
        self.links += [given[name] or "" for name in ("href", "src", "xlink:href") if name in given]

    def handle_data(self, data: str) -> None:
        self.sections[self._at] += data


@pytest.fixture
def root(tmp_path) -> Storage:
    return Storage.open(str(tmp_path))


def page(root: Storage, name: str = "news") -> Page:
    return Page(write_page(root, name).read_bytes())


def test_a_finished_run_has_every_section(root):
    write_run(root)
    found = page(root)
    text = found.sections
    assert list(text) == [
        *("", "verdict", "warnings", "scores", "moved", "training", "whitening", "pairs", "corpus", "time"),
        *("settings", "versions"),
    ]
    assert "WIN" in text[""]
    assert "+0.0200 to +0.2000" in text["verdict"]
    for name in ("as it came", "whitened only", "iteration 1", "iteration 2"):
        assert name in text["scores"]
    assert "standard error" in text["scores"]
    assert "Of 30 validation questions 2 rank better" in text["moved"]
    assert "▼ worse two3, rank 1 to 9" in text["moved"]
    for title in ("Training loss", "Norm of the gradient", "Validation Recall@5"):
        assert title in text["training"]
    for title in ("Spectrum before whitening", "By power", "By dimensions"):
        assert title in text["whitening"]
    assert "Power 0.75, fitted on 70 sentences and 9 whole documents; vectors have 4 dimensions." in text["whitening"]
    assert "Pairs by similarity, iteration 2" in text["pairs"]
    assert "Documents by length" in text["corpus"]
    assert "not JSON" in text["corpus"]
    assert "iteration_2/traintraining12.53.812.5%" in "".join(text["time"].split())
    assert "2.60.0" in text["versions"]
    assert found.links.count("explorer.html") == 2
    assert found.tags.count("figure") == found.tags.count("svg") == 14


def test_texts_of_the_corpus_are_shown_and_not_obeyed(root):
    write_run(root)
    file = write_page(root, "news")
    assert b"<script" not in file.read_bytes().lower()
    found = Page(file.read_bytes())
    for section, text in (
        ("moved", "another "),
        ("moved", "one "),
        ("warnings", "only 31 questions "),
        ("corpus", "a"),
    ):
        assert f"{text}{EVIL}" in found.sections[section]
    assert f"docs/{EVIL}.jsonl" in found.sections["settings"]


def test_it_is_one_small_file_that_asks_for_nothing_and_is_the_same_each_time(root):
    write_run(root, trainings=12)
    content = write_page(root, "news").read_bytes()
    assert len(content) < 5e6
    assert {link for link in Page(content).links if not link.startswith("#")} == {"explorer.html", "data:,"}
    for forbidden in ("default-src", "base-uri", "form-action"):
        assert f"{forbidden} 'none'".encode() in content
    assert not re.search(rb"@import|url\((?!#)", content)
    written = Path(root.root, "news", "report.html").stat().st_mtime_ns
    file = write_page(root, "news")
    assert file.read_bytes() == content
    assert Path(file.path).stat().st_mtime_ns == written, "there was nothing to do"


def test_every_plot_says_what_it_shows_and_has_its_figures_behind_it(root):
    write_run(root)
    content = write_page(root, "news").read_bytes().decode()
    figures = re.findall(r"<figure>.*?</figure>", content, flags=re.DOTALL)
    for figure in figures:
        assert re.search(r'<svg [^>]*role="img" aria-label="[^"]{20,}"', figure)
        assert "<td>" in figure
    ids = re.findall(r' id="([^"]+)"', content)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', content))
    assert {one or other for one, other in used} <= set(ids)
    assert "#0a0b" not in content


@pytest.mark.usefixtures("undrawn")
def test_steps_that_no_sink_kept_are_said_to_be_so(root):
    write_run(root)
    write_run(root, "quiet", tracking={"sinks": []})
    assert "its event files are gone" in page(root).sections["training"]
    assert "tracking.sinks was without tensorboard" in page(root, "quiet").sections["training"]


def test_plots_have_room_beside_the_names_of_many_trainings(root):
    write_run(root, trainings=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "iteration 40" in page(root).sections["training"]


def test_plots_are_the_same_whatever_a_notebook_made_of_its_own(root):
    write_run(root, trainings=1)
    content = write_page(root, "news").read_bytes()
    style: dict[Any, Any] = {"text.usetex": True, "axes.facecolor": "black", "axes.prop_cycle": "cycler(color=['r'])"}
    with mpl.rc_context(style):
        assert write_page(root, "news").read_bytes() == content
        assert mpl.rcParams["text.usetex"]


@pytest.mark.usefixtures("undrawn")
def test_an_unfinished_run_shows_what_there_is(root):
    write_run(root, finished=False, trainings=1)
    text = page(root).sections
    assert "not finished" in text[""]
    assert "No verdict yet" in text["verdict"]
    assert "iteration 1" in text["scores"]
    assert "iteration 2" not in text["scores"]
    assert "Training loss" in text["training"]
    assert "Warnings are kept when a run is finished" in text["warnings"]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("content", [None, b'{"name": '])
def test_a_finished_run_without_its_metrics_is_not_said_to_be_unfinished(root, content):
    folder = write_run(root)
    (folder / "metrics.json").delete() if content is None else (folder / "metrics.json").write_bytes(content)
    found = write_page(root, "news")
    text, why = Page(found.read_bytes()).sections, "its metrics.json is gone or damaged"
    assert "n't finished" not in "".join(text.values())
    for section in ("", "verdict", "warnings", "versions"):
        assert why in text[section]
    assert "not finished" not in text[""]
    write_run(root, "small")
    text = Page(write_comparison(root, ["news", "small"]).read_bytes()).sections
    assert why in text["verdicts"]
    assert "isn't finished" not in text["scores"]


def test_a_runs_own_folder_is_said_to_be_no_storage(root):
    folder = write_run(root)
    with pytest.raises(ValueError, match=f"folder of a run itself, and storage is the one that it is in, {root}$"):
        write_page(folder, "news")


@pytest.mark.usefixtures("undrawn")
def test_an_interval_of_the_best_of_several_is_said_to_be_one(root):
    folder = write_run(root)
    assert "of the best of" not in page(root).sections["verdict"]
    metrics = (folder / "metrics.json").read_json()
    metrics["verdict"]["validation"]["chosen_among"] = 10
    (folder / "metrics.json").write_json(metrics)
    assert "+0.0200 to +0.2000, of the best of 10" in page(root).sections["verdict"]


@pytest.mark.usefixtures("undrawn")
def test_a_training_under_way_has_its_steps_and_annotations(root):
    write_run(root, finished=False, trainings=1, begun=1)
    content = write_page(root, "news").read_bytes()
    text = Page(content).sections
    assert "iteration 2" in text["training"]
    assert b"Training loss by step: iteration 1 from 3 to 2.5; iteration 2 from 3 to 0.125." in content
    assert b"iteration 2 best 0.5000" in content
    assert "iteration 2" in text["pairs"]
    assert "iteration 2" not in text["scores"]


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_just_began_has_its_settings(root):
    content = {"format": 2, "job": "finetune", "settings": settings("news"), "inputs": {}, "stages": {}}
    (root / "news" / "manifest.json").write_json(checked(content))
    text = page(root).sections
    assert "corpus.source" in text["settings"]
    for section, line in {
        "scores": "No encoder is scored yet",
        "training": "Nothing is trained yet",
        "whitening": "Nothing is whitened yet",
        "corpus": "isn't read yet",
        "time": "No stage is finished yet",
    }.items():
        assert line in text[section]


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_chose_its_training_says_so(root):
    folder = write_run(root)
    without = page(root).sections
    manifest = verified((folder / "manifest.json").read_bytes())
    assert manifest is not None
    for part in ("annotations", "train"):
        manifest["stages"][f"pilot_infocse_1/{part}"] = manifest["stages"][f"iteration_1/{part}"]
    (folder / "manifest.json").write_json(checked(manifest))
    pilots = {"infocse": {"validation": scores(0.61), "steps": 7}, "simcse": {"left_out": "no dropout"}}
    metrics = (folder / "metrics.json").read_json()
    metrics["recipe"] = {"chosen": "infocse", "start": scores(0.5), "pilots": pilots}
    (folder / "metrics.json").write_json(metrics)
    found = page(root).sections
    assert "(infocse): infocse validated best" in found["verdict"]
    assert all(said in found["verdict"] for said in ("0.6100", "0.5000", "no dropout"))
    assert "Short trainings" not in without["verdict"]
    for section in ("scores", "training", "pairs"):
        assert found[section] == without[section], "pilots are no iterations"


@pytest.mark.usefixtures("undrawn")
def test_of_an_earlier_versions_run_what_it_kept(root):
    folder = write_run(root)
    for name in ("moved.json", "explorer.json", "iteration_0/whitening/whitening.json"):
        (folder / name).delete()
    metrics = (folder / "metrics.json").read_json()
    del metrics["warnings"], metrics["verdict"]
    (folder / "metrics.json").write_json(metrics)
    text = page(root).sections
    for section in ("moved", "warnings", "verdict", "whitening"):
        assert "an earlier version" in text[section].lower()
    assert "No similarities of pairs" in text["pairs"]
    assert "By power" in text["whitening"]


@pytest.mark.usefixtures("undrawn")
def test_an_explorer_of_other_annotations_is_not_this_runs(root):
    folder = write_run(root)
    explorer = (folder / "explorer.json").read_json()
    explorer["iterations"][1]["annotations"] = "those of other settings"
    (folder / "explorer.json").write_json(explorer)
    found = page(root)
    assert "explorer.html" not in found.links
    assert "No similarities of pairs" in found.sections["pairs"]


@pytest.mark.usefixtures("undrawn")
def test_what_is_damaged_leaves_its_section_out_and_no_other(root):
    folder = write_run(root)
    (folder / "moved.json").write_json({"questions": "none"})
    (folder / "iteration_1" / "train" / "stage.json").write_bytes(b'{"summary": {"history": 7}')
    (root / "corpora" / "c" / "rejected" / "shard-000000.parquet").write_bytes(b"no parquet")
    text = page(root).sections
    assert "This part can't be made" in text["moved"]
    assert "The rows can't be read" in text["corpus"]
    assert "iteration 2" in text["training"]


def test_credentials_in_what_a_run_left_are_not_shown(root):
    folder = write_run(root)
    metrics = (folder / "metrics.json").read_json()
    metrics["warnings"] = ["s3://user:swordfish@bucket/a is slow"]
    (folder / "metrics.json").write_bytes(json.dumps(metrics).encode())
    assert b"swordfish" not in write_page(root, "news").read_bytes()


def few_shot(folder: Storage) -> None:
    """Make it a run of `plusplus` of two rounds."""
    metrics = (folder / "metrics.json").read_json()
    one = metrics["iterations"][1]
    fine = {"validation": one["validation"], "test": one["test"]}
    rounds = [{"round": n, "iterations": [one], "zero_shot": fine, "fine_tuned": fine} for n in (1, 2)]
    for name in ("iterations", "best_iteration"):
        del metrics[name]
    (folder / "metrics.json").write_json(metrics | {"rounds": rounds, "best_round": 2})


@pytest.mark.usefixtures("undrawn")
def test_rounds_of_plusplus(root):
    few_shot(write_run(root))
    text = page(root).sections["scores"]
    assert "round 1, before fine-tuning" in text
    assert "The run returns the encoder “round 2, fine-tuned”" in text


@pytest.mark.usefixtures("undrawn")
def test_what_plusplus_returns_is_told_as_it_is(root):
    """Its start, where no round was better; and nothing is the best that isn't."""
    folder = write_run(root)
    few_shot(folder)
    metrics = (folder / "metrics.json").read_json()
    (folder / "metrics.json").write_json(metrics | {"best_round": 0})
    assert "The run returns the encoder “whitened only”" in page(root).sections["scores"]
    better = metrics["start"]["validation"] | {metrics["settings"]["validate"]["metric"]: 1.0}
    metrics["start"] = metrics["start"] | {"validation": better}
    (folder / "metrics.json").write_json(metrics)
    text = page(root).sections["scores"]
    assert "“round 2, fine-tuned”, which was chosen among what it trained; “as it came” has a better" in text


def test_a_run_that_returned_its_start_says_so(root):
    folder = write_run(root)
    write_run(root, "small")
    metrics = (folder / "metrics.json").read_json()
    (folder / "metrics.json").write_json(metrics | {"best_iteration": 0})
    text = page(root).sections["scores"]
    assert "The run returns the encoder “whitened only”" in text
    assert "whitened only ★" in text
    compared = Page(write_comparison(root, ["news", "small"]).read_bytes()).sections["scores"]
    assert "news: whitened only" in compared
    assert "news: iteration" not in compared
    assert "infocse evaluate --model A --compare B --corpus.source FILES" in compared


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_left_whitening_out_says_so(root):
    folder = write_run(root)
    assert "Left out" not in page(root).sections["whitening"]
    metrics = (folder / "metrics.json").read_json()
    metrics["settings"]["encoder"]["whiten"] = "off"  # as settled
    (folder / "metrics.json").write_json(metrics | {"best_iteration": 0})
    text = page(root).sections
    assert "Left out: by validation the encoder as it came was better than whitened." in text["whitening"]
    assert "The run returns the encoder “as it came”" in text["scores"]


@pytest.mark.usefixtures("undrawn")
def test_settings_that_a_job_doesnt_read_are_no_difference(root):
    write_run(root, "news", finetune={"epochs": 3})
    tuned = write_run(
        root, "tuned", train={"max_steps": 7}, finetune={"epochs": 8}, encoder={"model": "m", "max_length": 16}
    )
    manifest = read_checked(tuned / "manifest.json")
    (tuned / "manifest.json").write_json(checked(manifest | {"job": "finetune"}))
    text = Page(write_comparison(root, ["news", "tuned"]).read_bytes()).sections["settings"]
    assert "encoder.max_length" in text
    assert "train.max_steps" not in text, "of fine-tuning"
    assert "finetune.epochs" not in text, "of a run without labels"
    write_run(root, "more", train={"max_steps": 9})
    text = Page(write_comparison(root, ["news", "tuned", "more"]).read_bytes()).sections["settings"]
    assert "train.max_steps" in text
    assert "not read" in text


@pytest.mark.usefixtures("undrawn")
def test_runs_side_by_side(root):
    write_run(root, "news")
    write_run(root, "small", train={"batch_size": 7})
    write_run(root, "begun", finished=False, trainings=1)
    write_page(root, "news")
    file = write_comparison(root, ["news", "small", "begun"])
    assert file.name == "report-news+small+begun.html"
    found = Page(file.read_bytes())
    settings_text = found.sections["settings"]
    assert "train.batch_size" in settings_text
    assert "128" in settings_text
    assert "loop.max_iterations" not in settings_text
    for name in ("news: whitened only", "small: iteration 1", "begun: iteration 1"):
        assert name in found.sections["scores"]
    assert "not finished" in found.sections["verdicts"]
    assert "news/report.html" in found.links
    assert "small/report.html" not in found.links


def test_a_plot_of_runs_tells_their_encoders_apart_however_long_their_names_are(root):
    names = [f"tables-zero_shot-of-the-news-{method}-1" for method in ("infocse", "simcse")]
    for name in names:
        write_run(root, name, trainings=1)
    content = write_comparison(root, names).read_bytes().decode()
    [plot, *_] = re.findall(r"<figure>.*?</figure>", content, flags=re.DOTALL)
    lines = re.findall(r"<text[^>]*>([^<]*)</text>", plot)
    for run in ("tables-zero_s…news-infocse-1", "tables-zero_s…-news-simcse-1"):
        assert [lines[at + 1] for at, line in enumerate(lines) if line == run] == ["whitened only", "iteration 1"]


@pytest.mark.usefixtures("undrawn")
def test_a_page_that_fails_is_a_warning_and_no_failure(root, monkeypatch, capsys):
    write_run(root)
    assert end_with_page(root.root, "news") == f"{root.root}/news/report.html"
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {root.root}/news/report.html"

    def fails(record: Any) -> bytes:
        raise RuntimeError("no more ink")

    monkeypatch.delenv("INFOCSE_TRACEBACK", raising=False)
    monkeypatch.setattr(write, "page_of", fails)
    assert end_with_page(root.root, "news") is None
    said = capsys.readouterr().out
    assert "warning: the report page wasn't written: RuntimeError: no more ink" in said
    assert f"infocse report news --storage {root.root}" in said


def test_pages_of_several_runs_have_names_of_their_own():
    # Dashes are in many names: those of tables' cells have several.
    assert _joined(["a-b", "c"]) != _joined(["a", "b-c"])
    long = ["x" * 70, "y" * 70]
    assert _joined(long) != _joined([long[0], long[0]])
    assert len(_joined(long)) < 140


@pytest.mark.usefixtures("undrawn")
def test_what_ran_under_the_name_before_lends_a_run_no_curves(root):
    folder = write_run(root, finished=False, trainings=0, begun=2)
    for name in (folder / "events").files():  # as an earlier version wrote them, which noted no beginnings
        (folder / "events" / name.rpartition(".")[0]).write_bytes((folder / "events" / name).read_bytes())
        (folder / "events" / name).delete()
    assert "iteration 1" in page(root).sections["training"]
    manifest = folder / "manifest.json"
    content = {name: value for name, value in manifest.read_json().items() if name not in ("checksum", "finished")}
    train = (folder / "iteration_1" / "train").relative
    manifest.write_json(checked(content | {"stages": {}, "earlier": [train]}))
    assert "iteration 1" not in page(root).sections["training"]
    assert "iteration 2" in page(root).sections["training"], "it may be under way now"
    # A training that another stage finished, beside the one whose steps are there.
    (folder / "beside" / "stage.json").write_json(checked({"kind": "train", "fingerprint": "g", "summary": {}}))
    beside = {"kind": "train", "fingerprint": "g", "folder": (folder / "beside").relative, "seconds": 1.0}
    manifest.write_json(checked(content | {"stages": {"iteration_2/train": beside}}))
    assert "iteration 2" not in page(root).sections["training"]


@pytest.mark.usefixtures("undrawn")
def test_a_training_that_has_not_begun_has_no_curves_of_one_that_was_cut_off(root):
    folder = write_run(root, finished=False, trainings=0, begun=1)
    manifest = folder / "manifest.json"
    content = {name: value for name, value in manifest.read_json().items() if name != "checksum"}
    # Other settings: their training will take the place of the one that was cut off.
    manifest.write_json(checked(content | {"begun": {}}))
    assert "iteration 1" not in page(root).sections["training"]
    its = {"folder": (folder / "iteration_1" / "train").relative, "fingerprint": "of_iteration_1"}
    manifest.write_json(checked(content | {"begun": {"iteration_1": its}}))
    assert "iteration 1" in page(root).sections["training"]
    # It did, and is shown to nobody (tracking.sinks).
    manifest.write_json(checked(content | {"begun": {"iteration_1": its | {"fingerprint": "another"}}}))
    assert "iteration 1" not in page(root).sections["training"]


@pytest.mark.usefixtures("undrawn")
def test_a_whitening_whose_summary_is_lost_is_shown_by_what_it_kept(root):
    folder = write_run(root)
    (folder / "iteration_0" / "whitening" / "stage.json").delete()
    assert "Power 0.75" in page(root).sections["whitening"]


def side_by_side(root: Storage, validate: dict[str, Any], on: str, settled: dict[str, Any] | None = None) -> str:
    """The scores of a run as others are, and of one with other settings, in place of which some were settled."""
    for name, asked, came_to in (("news", {}, {}), ("small", validate, settled or {})):
        folder = write_run(root, name, validate=asked)
        metrics = (folder / "metrics.json").read_json() | {"validate_on": on}
        metrics["settings"]["validate"] |= came_to
        (folder / "metrics.json").write_json(metrics)
    return Page(write_comparison(root, ["news", "small"]).read_bytes()).sections["scores"]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("asked", [{"max_documents": 107}, {"max_candidates": 109}, {"reading": "whole"}])
def test_runs_that_ask_otherwise_are_said_to(root, monkeypatch, asked):
    monkeypatch.setitem(CORPUS, "labelled", {"train": 0, "valid": 110, "test": 0})
    assert DIFFER not in side_by_side(root, {}, "counterpart")
    assert DIFFER in side_by_side(root, asked, "counterpart")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("on", "asked"),
    [
        ("counterpart", {"max_documents": 107, "max_candidates": 109}),  # there are five
        ("sentence", {"max_documents": 107}),
        ("sentence", {"reading": "whole", "max_candidates": 109}),  # counterparts alone are read, and ranked, so
    ],
)
def test_settings_that_leave_no_question_out_are_no_difference(root, on, asked):
    assert DIFFER not in side_by_side(root, asked, on)


@pytest.mark.usefixtures("undrawn")
def test_runs_are_asked_as_minutes_settled(root, monkeypatch):
    monkeypatch.setitem(CORPUS, "documents", {"train": 0, "valid": 3_000, "test": 0})
    fewer = {"max_documents": 1_000}
    assert DIFFER in side_by_side(root, {}, "sentence", fewer)
    assert DIFFER not in side_by_side(root, fewer, "sentence", {"max_documents": 2_000})


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("validate", "differ"), [({}, False), ({"on": "halves"}, True)])
def test_a_run_under_way_asks_what_a_finished_one_did_unless_it_is_told_otherwise(root, validate, differ):
    folder = write_run(root, "news")  # its validation documents have counterparts
    (folder / "metrics.json").write_json((folder / "metrics.json").read_json() | {"validate_on": "counterpart"})
    write_run(root, "begun", finished=False, trainings=1, validate=validate)
    text = Page(write_comparison(root, ["news", "begun"]).read_bytes()).sections["scores"]
    assert (DIFFER in text) == differ


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("on", "differ"), [("sentence", True), ("counterpart", False)])
def test_a_seed_asks_other_questions_only_where_it_draws_them(root, on, differ):
    for name, seed in (("news", 42), ("small", 43)):
        folder = write_run(root, name, seed=seed)
        (folder / "metrics.json").write_json((folder / "metrics.json").read_json() | {"validate_on": on})
    text = Page(write_comparison(root, ["news", "small"]).read_bytes()).sections["scores"]
    assert (DIFFER in text) == differ


@pytest.mark.usefixtures("undrawn")
def test_trainings_that_were_asked_otherwise_are_said_to(root):
    folder, said = write_run(root, trainings=2), "not all asked the same questions"
    assert said not in page(root).sections["training"]
    write_run(root, "begun", finished=False, trainings=1, begun=1)
    assert said not in Page(write_page(root, "begun").read_bytes()).sections["training"], "of one it isn't known"
    place = folder / "iteration_2" / "train" / "stage.json"
    content = place.read_json()
    del content["checksum"]
    content["summary"]["history"] = [one | {"queries": 7} for one in content["summary"]["history"]]
    place.write_json(checked(content))
    assert said in page(root).sections["training"]


def changed_metrics(folder: Storage, **changes: Any) -> None:
    (folder / "metrics.json").write_json((folder / "metrics.json").read_json() | changes)


def changed_manifest(folder: Storage, change: Callable[[dict[str, Any]], object]) -> None:
    content = {name: value for name, value in (folder / "manifest.json").read_json().items() if name != "checksum"}
    change(content)
    (folder / "manifest.json").write_json(checked(content))


@pytest.mark.usefixtures("undrawn")
def test_an_initialised_encoder_that_comes_back_is_no_start(root):
    folder = write_run(root, trainings=1)
    assert "initialised" not in page(root).sections["scores"]
    folder = write_run(root, trainings=1, loop={"initialization": "ict"})
    changed_metrics(folder, best_iteration=0)
    text = page(root).sections["scores"]
    assert "The run returns the encoder “initialised”" in text


@pytest.mark.usefixtures("undrawn")
def test_a_verdict_says_over_what_and_by_which_questions(root):
    folder = write_run(root, trainings=1)
    assert (
        "Before is the encoder as it came, whitened. The validation questions decide" in page(root).sections["verdict"]
    )
    test = VERDICT["validation"] | {"difference": -0.25, "low": -0.5, "high": -0.125, "documents": 12}
    changed_metrics(folder, verdict=VERDICT | {"over": "start", "judged_on": "test", "test": test})
    text = page(root).sections["verdict"]
    assert "Before is the encoder as it came. The test questions decide" in text
    for said in ("-0.2500", "-0.5000 to -0.1250", "30 of 12 documents", "+0.1000"):
        assert said in text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("said", "shown"), [("WIN", "win"), ("LOSS", "loss"), ("START RETURNED", "level")])
def test_the_verdict_has_a_colour_of_its_own_and_is_said_once(root, said, shown):
    folder = write_run(root, trainings=1)
    changed_metrics(folder, verdict=VERDICT | {"label": said, "line": f"{said}, against the start"})
    content = write_page(root, "news").read_bytes().decode()
    assert f'<span class="label {shown}">{said}</span> against the start</p>' in content


@pytest.mark.usefixtures("undrawn")
def test_what_an_earlier_run_of_the_name_came_to_says_nothing_of_one_under_way(root):
    folder = write_run(root, trainings=1)
    changed_manifest(folder, lambda content: content.pop("finished"))
    text = page(root).sections
    assert "No verdict yet" in text["verdict"]
    assert "WIN" not in "".join(text.values())
    assert "isn't finished" in text["moved"]


@pytest.mark.usefixtures("undrawn")
def test_iterations_are_in_the_order_of_their_numbers(root):
    folder = write_run(root, trainings=10)
    explorer = (folder / "explorer.json").read_json()
    explorer["histogram"] |= {"10": explorer["histogram"]["2"]}
    (folder / "explorer.json").write_json(explorer)
    text = page(root).sections
    named = re.findall(r"iteration_\d+/train", text["time"])
    assert named == [f"iteration_{number}/train" for number in range(1, 11)]
    drawn = re.findall(r"Pairs by similarity, (iteration \d+): the figures", text["pairs"])
    assert drawn == ["iteration 1", "iteration 10"], "the first and the last"


@pytest.mark.usefixtures("undrawn")
def test_a_stage_that_two_names_refer_to_is_counted_once(root):
    folder = write_run(root, trainings=1)
    before = page(root).sections["time"]
    counted = Page(write_comparison(root, ["news", "news"]).read_bytes()).sections["time"]

    def again(content: dict[str, Any]) -> None:
        content["stages"]["iteration_2/annotations"] = content["stages"]["iteration_1/annotations"]

    changed_manifest(folder, again)
    assert page(root).sections["time"] == before
    assert Page(write_comparison(root, ["news", "news"]).read_bytes()).sections["time"] == counted
    assert "news75 s12 s" in "".join(counted.splitlines()), "of six stages, of which one trained"


@pytest.mark.usefixtures("undrawn")
def test_runs_of_other_files_or_other_documents_of_them_are_said_to_be(root):
    files, documents = "did not read the same files", "made other documents or splits of the same files"

    def said() -> tuple[bool, bool]:
        text = Page(write_comparison(root, ["news", "small"]).read_bytes()).sections["scores"]
        return files in text, documents in text

    write_run(root, "news", trainings=1)
    folder = write_run(root, "small", trainings=1)
    assert said() == (False, False)
    own = root / "other" / "stage.json"
    own.write_json(checked({"kind": "prepare", "fingerprint": "d", "summary": CORPUS | {"content": "other"}}))
    changed_manifest(folder, lambda content: content["stages"]["corpus"].update(folder="other"))
    assert said() == (False, True)
    for summary in ({"content": "other", "questions": "q"}, {"content": "c", "questions": "q"}):
        own.write_json(checked({"kind": "prepare", "fingerprint": "d", "summary": CORPUS | summary}))
        mine = {"kind": "prepare", "fingerprint": "e", "summary": CORPUS | {"content": "c", "questions": "q"}}
        (root / "mine" / "stage.json").write_json(checked(mine))
        changed_manifest(root / "news", lambda content: content["stages"]["corpus"].update(folder="mine"))
        assert said() == (False, False), "other tokens of the same documents"
    own.write_json(
        checked({"kind": "prepare", "fingerprint": "d", "summary": CORPUS | {"content": "c", "questions": "others"}})
    )
    assert said() == (False, True)
    changed_manifest(folder, lambda content: content["inputs"].update(corpus="c2"))
    assert said() == (True, False)


@pytest.mark.usefixtures("undrawn")
def test_figures_in_tables_are_what_they_are_called(root, monkeypatch):
    write_run(root, trainings=1, train={"batch_size": 7})
    text = page(root).sections
    assert "0.0459" in text["scores"], "an interval of 0.18 is 2 * 1.96 standard errors"
    assert "3 to 4" in text["pairs"]
    assert "The first 1 of them" in text["corpus"]
    differing, _, every = text["settings"].partition("All settings")
    assert "train.batch_size" in differing
    assert "loop.max_iterations" not in differing
    assert "loop.max_iterations" in every
    monkeypatch.setitem(CORPUS, "rejected", {"not JSON": 1})
    write_run(root, trainings=1)
    assert "All of them" in page(root).sections["corpus"]


def test_a_number_of_many_digits_is_told_with_all_of_them():
    assert list(map(text_of, [2e-05, 0.5, 1.0, 1.23456789e-05, 1234567.5])) == [
        "2e-05",
        "0.5",
        "1",
        "1.23456789e-05",
        "1234567.5",
    ], "settings that differ in the last are told as different"


def test_an_id_that_is_a_whole_text_is_shown_in_part(root):
    write_run(root)
    rows = [{"doc_id": "a text " * 9_000, "file": "a.jsonl", "row": 3, "reason": "not JSON"}]
    rejected = root / "corpora" / "c" / "rejected" / "shard-000000.parquet"
    write_parquet(rejected, pa.Table.from_pylist(rows, rejected_schema()), [1])
    page = write_page(root, "news").read_bytes()
    assert 0 < page.count(b"a text") < 100
