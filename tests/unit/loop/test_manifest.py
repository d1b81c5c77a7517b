"""What a run's manifest says, to whom, and what it tells the user of stages that are stale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infocse_ray.annotate.share import Share
from infocse_ray.errors import LeaseLost
from infocse_ray.loop.manifest import Manifest, read_manifest
from infocse_ray.loop.stale import may_draw, stale
from infocse_ray.settings import Settings
from infocse_ray.stages.lease import Lease
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.folder import Storage

INPUTS = {"corpus": "c1", "encoder": "e1", "tokenizer": "t1", "first_encoder": None}
STAGES = ("corpus", "iteration_0/encoder", "iteration_1/annotations", "iteration_1/examples", "iteration_1/train")


@pytest.fixture
def run(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path)) / "news"


def settings(**sections: Any) -> Settings:
    content: dict[str, Any] = {"name": "news", "corpus": {"source": "a.jsonl"}, "encoder": {"model": "m"}}
    for section, values in sections.items():
        content[section] = content.get(section, {}) | values if isinstance(values, dict) else values
    return Settings.model_validate(content)


def finished(run: Storage, identity: str = "i") -> None:
    manifest = Manifest(run)
    manifest.begin("pretrain", settings().model_dump(mode="json"), dict(INPUTS))
    for name in STAGES:
        manifest.add(name, Stage(name, "f", run / name, {"seconds": 1.0}))
    (run / "model" / "model.safetensors").write_bytes(b"weights")
    (run / "metrics.json").write_json({"recall": 0.5})
    manifest.finish(identity, ["model.safetensors"])


def told(run: Storage, now: Settings, draws: bool = False, **inputs: str) -> list[str]:
    return stale(Manifest(run).before, now, INPUTS | inputs, draws)


def test_folders_are_relative_so_that_a_moved_storage_is_read(run, tmp_path):
    finished(run)
    assert str(tmp_path) not in (run / "manifest.json").read_bytes().decode()
    tmp_path.rename(moved := tmp_path.with_name(tmp_path.name + "-moved"))
    root = Storage.open(str(moved))
    assert str(Manifest(root / "news").folder(root, "iteration_1/train")) == f"{moved}/news/iteration_1/train"
    assert Manifest(root / "news").finished("i")


def test_a_manifest_of_a_version_with_whole_folders_is_read(run):
    (run / "manifest.json").write_json({"settings": {}, "stages": {"corpus": {"folder": "/runs/corpora/c"}}})
    assert str(Manifest(run).folder(Storage("/runs"), "corpus")) == "/runs/corpora/c"
    assert Manifest(run).job == "pretrain"


def test_no_flipped_byte_makes_a_run_of_it_that_was_not_there(run, capsys):
    finished(run)
    before = Manifest(run).before
    good = (run / "manifest.json").read_bytes()
    for place in range(0, len(good), 11):
        (run / "manifest.json").write_bytes(good[:place] + bytes([good[place] ^ 0x11]) + good[place + 1 :])
        found = Manifest(run)
        assert found.before in (before, {"settings": {}, "inputs": {}, "stages": {}}), place
    assert "manifest.json is damaged (its content isn't what was written)" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["metrics.json", "model/model.safetensors"])
def test_a_run_whose_export_is_damaged_is_not_finished(run, capsys, name):
    finished(run)
    assert Manifest(run).finished("i")
    assert not Manifest(run).finished("another")
    good = (run / name).read_bytes()
    (run / name).write_bytes(bytes([good[0] ^ 1]) + good[1:])
    assert not Manifest(run).finished("i")
    (run / name).delete()
    assert not Manifest(run).finished("i")
    said = capsys.readouterr().out
    assert f"{run / name} is damaged (its content isn't what was written)" in said
    assert f"{run / name} is damaged (it is missing)" in said


def test_a_finished_run_stays_so_where_other_settings_are_refused(run):
    finished(run)
    before = (run / "manifest.json").read_bytes()
    manifest = Manifest(run)
    manifest.begin("pretrain", settings(train={"batch_size": 9}).model_dump(mode="json"), dict(INPUTS))
    assert not Manifest(run).finished("i")
    manifest.take_back()
    assert (run / "manifest.json").read_bytes() == before
    assert Manifest(run).finished("i")


def test_a_training_that_began_is_that_of_its_settings_alone(run):
    def begin(**sections: Any) -> Manifest:
        manifest = Manifest(run)
        manifest.begin("pretrain", settings(**sections).model_dump(mode="json"), dict(INPUTS))
        return manifest

    begin().begin_training("iteration_1", Stage("train", "f", run / "iteration_1" / "train"))
    noted = {"iteration_1": {"folder": "news/iteration_1/train", "fingerprint": "f"}}
    assert read_manifest(run)["begun"] == noted
    begin()
    assert read_manifest(run)["begun"] == noted, "the same command goes on with it"
    begin(train={"batch_size": 9})
    assert read_manifest(run)["begun"] == {}
    finished(run)
    assert "begun" not in read_manifest(run)


def test_what_is_refused_first_stays_as_far_as_it_came(run):
    manifest = Manifest(run)
    manifest.begin("pretrain", settings().model_dump(mode="json"), dict(INPUTS))
    manifest.take_back()
    assert Manifest(run).job == "pretrain"


def test_nothing_is_committed_to_a_run_that_another_driver_took_over(run):
    with Lease(run / "driver.lease", "name = 'news'") as lease:
        lease.take()
        manifest = Manifest(run, lease)
        manifest.begin("pretrain", {}, {})
        before = (run / "manifest.json").read_bytes()
        (run / "driver.lease").write_bytes(b'{"token": "another\'s"}')
        commits = (
            lambda: manifest.begin("pretrain", {}, {}),
            lambda: manifest.add("corpus", Stage("prepare", "f", run, {"seconds": 1.0})),
            lambda: manifest._write(),
        )
        for commit in commits:
            with pytest.raises(LeaseLost, match="name = 'news': its lease was taken by another driver"):
                commit()
    assert (run / "manifest.json").read_bytes() == before


def test_a_first_run_and_one_with_the_same_inputs_are_told_nothing(run):
    assert told(run, settings()) == []
    finished(run)
    assert told(run, settings()) == []
    assert told(run, settings(storage="s3://elsewhere", train={"num_workers": 2, "max_failures": 9})) == []
    assert told(run, settings(loop={"max_iterations": 9})) == [], "more of the same"


def test_other_pilots_make_no_iteration_stale(run):
    manifest = Manifest(run)
    manifest.begin("pretrain", settings(recipe="auto").model_dump(mode="json"), dict(INPUTS))
    for name in ("pilot_simcse_1/train", "iteration_1/train"):
        manifest.add(name, Stage(name, "f", run / name, {"seconds": 1.0}))
    [said] = told(run, settings(recipe="auto", loop={"pilot_steps": 7}))
    assert "Stale: pilot_simcse_1/train and what is made of these" in said


def test_another_share_of_labels_makes_stale_what_has_them(run):
    finished(run)
    assert told(run, settings(plusplus={"label_share": 0.5})) == [], "training without labels has none"
    Manifest(run).add("labels", Stage("labels", "f", run / "labels", {"seconds": 1.0}))
    [said] = told(run, settings(plusplus={"label_share": 0.5}))
    assert "plusplus.label_share = 0.5, was 0.0. Stale: iteration_1/train and what is made of these" in said
    assert told(run, settings(plusplus={"max_rounds": 9})) == []


def test_a_corpus_that_changed_makes_all_stale_that_reads_it(run):
    finished(run)
    [line] = told(run, settings(), corpus="c2")
    assert "the corpus' files" in line
    assert "Stale: corpus and what is made of these, unless the documents turn out to be the same;" in line


def test_changed_settings_are_named_with_what_they_were_and_the_stages_that_read_them(run):
    finished(run)
    [line] = told(run, settings(train={"learning_rate": 0.5}))
    assert "train.learning_rate = 0.5, was " in line
    assert "Stale: iteration_1/train and" in line
    [line] = told(run, settings(annotate={"k": 3}))
    assert "annotate.k = 3, was 1" in line
    assert "Stale: iteration_1/annotations and" in line
    [line] = told(run, settings(annotate={"k": 3}, train={"learning_rate": 0.5}), encoder="e2")
    assert "the encoder, annotate.k = 3" in line
    assert "Stale: iteration_0/encoder, iteration_1/annotations, iteration_1/train and" in line
    for name in ("result/valid", "result/test", "result/sts"):
        Manifest(run).add(name, Stage(name, "f", run / name, {"seconds": 1.0}))
    [line] = told(run, settings(validate={"reading": "sentences"}))
    assert line.endswith(
        "Stale: iteration_1/train, result/test, result/valid and what is made of these; they are made anew, beside the "
        "old ones"
    )
    [line] = told(run, settings(corpus={"unlabelled": "train"}))
    assert "corpus," not in line.partition("Stale")[2]
    assert "iteration_1/annotations" in line


def test_what_this_run_does_not_read_makes_nothing_stale(run):
    finished(run)
    assert told(run, settings(simcse={"temperature": 0.07})) == []
    assert told(run, settings(annotate={"kmeans_clusters": 20})) == []
    assert told(run, settings(recipe="auto", simcse={"temperature": 0.07})) != []


def test_where_a_share_may_be_annotated_another_may_make_annotations_stale(run):
    finished(run)
    for changed in ({"seed": 7}, {"train": {"max_steps": 9}}):
        [before], [line] = told(run, settings(**changed)), told(run, settings(**changed), draws=True)
        assert "nnotations" not in before
        assert (
            line
            == f"{before}. Annotations are, too, where another share of the corpus is annotated now (annotate.share)"
        )
    assert "Annotations are" not in told(run, settings(annotate={"k": 2}), draws=True)[0]
    both = told(run, settings(annotate={"k": 2}, seed=7), draws=True)[0]
    assert "iteration_1/annotations" in both
    assert "Annotations are" not in both, "they are for certain"


def test_whether_a_share_may_be_annotated_is_read_of_the_stages(run):
    root = Storage.open(run.root)
    few, many = ({"documents": {"train": count, "valid": 96}} for count in (4_000, 4_001))
    for name, stage, summary, draws in (
        ("gone", "iteration_1/annotations", None, False),
        ("all", "iteration_1/annotations", {}, False),
        ("share", "iteration_1/annotations", Share(4, 0, 1).summary(), True),
        ("few", "corpus", few, False),
        ("many", "corpus", many, True),
        ("other", "iteration_1/train", many, False),
    ):
        folder = run / name
        if summary is not None:
            run_stage(root, folder, "annotate", name, lambda _, summary=summary: summary)
        assert may_draw({"stages": {stage: {"folder": folder.relative}}}, root) == draws
