"""A run's explorer, of a run in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infocse_ray.annotate import enough
from infocse_ray.corpus.schema import shard_of, stable_hash
from infocse_ray.explorer import explore as module
from infocse_ray.explorer.annotations import annotated_run
from infocse_ray.explorer.drawn import Drawn, draw
from infocse_ray.explorer.explore import explore, explore_after
from infocse_ray.loop.infocse import pretrain
from infocse_ray.loop.manifest import read_manifest
from infocse_ray.runtime.cluster import Placement
from infocse_ray.settings import Settings
from infocse_ray.settings.command_line import parse
from infocse_ray.settings.explorer import Explorer, ExploreRun
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from tests.unit import runs_here
from tests.unit.passes import Passes, encoder_in, small_store, written_clusters
from tests.unit.runs_here import settings_here


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Settings:
    """Of a finished run of two iterations, each of which trains."""
    with pytest.MonkeyPatch.context() as patched:
        Passes(patched, encoder_in(tiny_encoder))
        settings = with_sections(
            settings_here(tmp_path_factory.mktemp("finished"), tiny_encoder, patched),
            train={"never_worse": False, "interpolation": []},
            loop={"max_iterations": 2, "early_stop": False},
            explorer={"documents": 9},
        )
        pretrain(settings)
    return settings


@pytest.fixture
def settings(finished: Settings, passes: Passes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a copy of that run, whose explorer is made in this process."""
    monkeypatch.setattr(module, "in_actors", passes._in_actors)
    monkeypatch.setattr(module, "connect", lambda: None)
    monkeypatch.setattr(module, "placement", lambda *_: Placement(1, False, 1))
    shutil.copytree(finished.storage, tmp_path / "copied")
    return finished.model_copy(update={"storage": str(tmp_path / "copied")})


def with_sections(settings: Settings, **sections: dict[str, Any]) -> Settings:
    content = settings.model_dump()
    for name, values in sections.items():
        content[name] |= values
    return Settings.model_validate(content)


def read(settings: Settings) -> dict[str, Any]:
    return json.loads((Path(settings.storage) / settings.name / "explorer.json").read_text())


def some_id(run: Path) -> str:
    """Of a document that is in the shard where its hash puts it; the store of these tests deals them in turn."""
    splits = annotated_run(Storage.open(str(run.parent)), run.name).documents
    for shard in range(6):
        for documents in splits.own(shard):
            for doc_id in documents.doc_ids.to_pylist():
                if shard_of(stable_hash(doc_id), 6) == shard:
                    return doc_id
    raise AssertionError("none is")


def test_a_run_ends_with_its_clusters_iteration_by_iteration(settings, passes, capsys):
    page = explore_after(settings)
    assert page is not None
    content = read(settings)
    assert str(page) in capsys.readouterr().out
    assert [one["iteration"] for one in content["iterations"]] == [1, 2]
    assert len(content["documents"]) == 9
    store = annotated_run(Storage.open(settings.storage), "run").documents.store
    for iteration in ("1", "2"):
        written = written_clusters(store, Path(settings.storage) / "run" / f"iteration_{iteration}" / "annotations")
        pairs = 0
        for document in content["documents"]:
            found = document["iterations"][iteration]
            assert found["clusters"] == written[stable_hash(document["id"])]
            assert found["same"]  # so it is the encoder that annotated this iteration, not the other
            assert len(document["sentences"]) == len(found["clusters"])
            nodes = len(found["clusters"]) - len(found["copies"])
            pairs += nodes * (nodes - 1) // 2
        assert sum(sum(content["histogram"][iteration][kind]) for kind in ("kept", "chained", "dropped")) == pairs
    assert any(
        one["iterations"]["1"]["edges"] != one["iterations"]["2"]["edges"] for one in content["documents"]
    )  # the encoder has changed
    passes.works.clear()
    explore_after(settings)
    assert passes.works == []  # it is there
    explore_after(with_sections(settings, explorer={"documents": 4}))
    assert len(read(settings)["documents"]) == 4


def test_iterations_that_annotated_a_share_show_what_all_of_them_did(passes, tmp_path, tiny_encoder, monkeypatch):
    def one_lane(folder: Path) -> Any:
        store = small_store(folder)
        return store._replace(summary=store.summary | {"lanes": 1})

    monkeypatch.setattr(runs_here, "small_store", one_lane)
    monkeypatch.setattr(enough, "most_open", lambda _: 1)
    settings = with_sections(
        settings_here(tmp_path, tiny_encoder, monkeypatch),
        annotate={"share": 0.5},
        train={"never_worse": False, "interpolation": []},
        loop={"max_iterations": 2, "early_stop": False},
        explorer={"documents": 1_000},
    ).model_copy(update={"seed": 4})
    pretrain(settings)
    monkeypatch.setattr(module, "in_actors", passes._in_actors)
    monkeypatch.setattr(module, "connect", lambda: None)
    monkeypatch.setattr(module, "placement", lambda *_: Placement(1, False, 1))
    assert explore_after(settings) is not None
    run = annotated_run(Storage.open(settings.storage), "run")
    common = run.documents.shards
    assert len(common) == 2
    for one in run.annotations:
        assert len(one.documents.shards) == 4
        assert set(common) < set(one.documents.shards)
    content, own = read(settings), run.documents._replace(draws=()).own
    ids = [id for shard in common for part in run.documents.own(shard) for id in part.doc_ids.to_pylist()]
    assert sorted(one["id"] for one in content["documents"]) == sorted(ids)
    assert all(one["iterations"][t]["same"] for one in content["documents"] for t in ("1", "2"))
    assert 0 < len(ids) < len([id for shard in common for part in own(shard) for id in part.doc_ids])
    part = 0.75 / 4 + (1 - 0.75 / 4) * (0.75 * 3 / 4 / (1 - 0.75 / 4)) ** 2  # in every draw, and in both of these
    assert f"of the {2 / 6 * part:.1%} that all did" in content["rule"]
    elsewhere = next(
        id
        for shard in set(range(6)) - set(common)
        for part in run.documents.own(shard)
        for id in part.doc_ids.to_pylist()
        if shard_of(stable_hash(id), 6) == shard
    )
    said = rf"ids = '{elsewhere}': no document that was clustered in every iteration \(annotate\.share\) has such an id"
    with pytest.raises(ValueError, match=said):
        explore(ExploreRun(name="run", storage=settings.storage, ids=[elsewhere]))


def test_the_command_adds_documents_and_they_stay(settings, passes):
    doc_id = some_id(Path(settings.storage) / "run")
    explore(ExploreRun(name="run", storage=settings.storage, documents=0, ids=[doc_id]))
    assert [(one["id"], one["named"]) for one in read(settings)["documents"]] == [(doc_id, True)]
    explore(ExploreRun(name="run", storage=settings.storage, ids=[doc_id]))
    ids = [one["id"] for one in read(settings)["documents"]]
    assert ids[0] == doc_id
    assert len(set(ids)) == len(ids) >= 9
    explore(ExploreRun(name="run", storage=settings.storage, documents=3))
    passes.works.clear()
    assert explore_after(settings) is not None
    assert passes.works == []
    before = read(settings)
    assert len(before["documents"]) == 3
    with pytest.raises(ValueError, match=r"ids = 'nowhere': no document that was clustered has such an id"):
        explore(ExploreRun(name="run", storage=settings.storage, ids=["nowhere"]))
    assert read(settings) == before


def test_the_runs_seed_draws_the_documents(settings, monkeypatch):
    seen: list[tuple[int, int]] = []

    def noted(documents: Any, count: int, seed: int) -> list[Drawn]:
        seen.append((count, seed))
        return draw(documents, count, seed)

    monkeypatch.setattr(module, "draw", noted)
    explore_after(settings)
    assert settings.seed
    assert seen == [(9, settings.seed)]


def test_a_credential_in_a_text_is_not_shown(settings, monkeypatch):
    made = module._content

    def with_one(*given: Any) -> dict[str, Any]:
        content = made(*given)
        content["documents"][0]["sentences"][0] = "it lies in s3://reader:swordfish@bucket/news"
        return content

    monkeypatch.setattr(module, "_content", with_one)
    page = explore_after(settings)
    assert page is not None
    assert b"s3://***@bucket/news" in page.read_bytes()
    assert b"swordfish" not in page.read_bytes()
    assert "swordfish" not in json.dumps(read(settings))


def test_documents_are_clustered_again_by_what_computed_the_backbone_then_and_by_one_process_where_one_did(
    settings, monkeypatch
):
    run = annotated_run(Storage.open(settings.storage), "run")
    drawn, asked, graph = draw(run.documents, 2, 0), [], object()

    def in_actors(*_: Any, **named: Any) -> list[dict[str, Any]]:
        asked.append(named)
        return [{"key": one.key, "pairs": np.zeros((3, 40), int)} for one in drawn]

    monkeypatch.setattr(module, "in_actors", in_actors)
    module._found(run, run.annotations[0]._replace(engine=graph), drawn)  # pyright: ignore[reportArgumentType]
    of_actors = run._replace(settings=with_sections(run.settings, annotate={"num_workers": 2}))
    module._found(of_actors, run.annotations[0], drawn)
    tokens = run.annotations[0].documents.tokens
    assert asked == [{"engine": graph, "tokens": tokens}, {"engine": run.annotations[0].engine, "tokens": None}]


def test_a_page_stays_small(settings, monkeypatch, capsys):
    monkeypatch.setattr(module, "_MOST_BYTES", 2_000)
    explore_after(settings)
    assert 0 < len(read(settings)["documents"]) < 9
    assert "of 9 documents: it stays under 5 MB" in capsys.readouterr().out


def test_failing_it_fails_no_run(settings, monkeypatch, capsys):
    def broken(*_: object) -> None:
        raise RuntimeError("no room\nmore of it")

    monkeypatch.setattr(module, "draw", broken)
    assert explore_after(settings) is None
    said = [line for line in capsys.readouterr().out.splitlines() if "explorer" in line]
    assert said == [
        "warning: the run is finished, its cluster explorer isn't: RuntimeError: no room; `infocse explorer run "
        f"--storage {settings.storage}` makes it"
    ]
    explored = explore_after(with_sections(settings, explorer={"documents": 0}))
    assert explored is None
    assert capsys.readouterr().out == ""


def test_a_page_that_was_made_of_something_else_is_made_again(settings, passes):
    explore_after(settings)
    content = read(settings)
    file = Path(settings.storage) / settings.name / "explorer.json"
    file.write_text(json.dumps(content | {"made_of": "what an earlier version made pages of"}))
    passes.works.clear()
    explore_after(settings)
    assert passes.works
    assert read(settings) == content


def test_a_page_of_other_annotations_goes_also_where_none_is_made(settings):
    folder = Path(settings.storage) / settings.name
    none = with_sections(settings, explorer={"documents": 0})
    explore_after(settings)
    explore_after(none)
    assert (folder / "explorer.html").exists()  # of this run
    content = read(settings)
    content["iterations"][1]["annotations"] = "of other settings"
    (folder / "explorer.json").write_text(json.dumps(content))
    explore_after(none)
    assert not (folder / "explorer.html").exists()
    assert not (folder / "explorer.json").exists()


def test_a_run_of_a_large_cluster_is_looked_at_on_a_small_one(settings, monkeypatch):
    def of_two_cores(section: Any) -> Placement:
        if section.num_workers != "auto" or section.use_gpu != "auto":
            raise ValueError("annotate.num_workers = 8: the cluster has 2 CPU cores; ask for at most 2")
        return Placement(2, False, 1)

    change_manifest(settings, lambda manifest: manifest["settings"]["annotate"].update(num_workers=8, use_gpu=True))
    monkeypatch.setattr(module, "placement", of_two_cores)
    explore(ExploreRun(name="run", storage=settings.storage))
    assert len(read(settings)["documents"]) == 9


def test_a_named_document_that_is_not_there_is_a_warning_at_a_runs_end(settings, capsys):
    explore_after(with_sections(settings, explorer={"ids": ["nowhere"]}))
    assert "warning: explorer.ids = 'nowhere': no document that was clustered" in capsys.readouterr().out
    assert len(read(settings)["documents"]) == 9


def change_manifest(settings: Settings, change: Callable[[dict[str, Any]], object]) -> None:
    run = Storage.open(settings.storage) / settings.name
    manifest = read_manifest(run)
    change(manifest)
    (run / "manifest.json").write_json(checked({name: v for name, v in manifest.items() if name != "checksum"}))


def test_what_has_no_clusters_has_no_explorer(settings, capsys):
    def other_method(manifest: dict[str, Any]) -> None:
        manifest["settings"]["train"]["method"] = "simcse"
        manifest["stages"] = {n: one for n, one in manifest["stages"].items() if not n.endswith("annotations")}

    change_manifest(settings, other_method)
    left = [Path(settings.storage) / settings.name / f"explorer.{kind}" for kind in ("html", "json")]
    for file in left:
        file.write_text("of what ran under this name before")
    assert explore_after(settings) is None
    assert not any(file.exists() for file in left)
    assert capsys.readouterr().out == "no cluster explorer: train.method = simcse makes no clusters\n"
    with pytest.raises(ValueError, match="nothing to show"):
        explore(ExploreRun(name="run", storage=settings.storage))
    change_manifest(settings, lambda manifest: manifest["settings"]["train"].update(method="idc"))
    capsys.readouterr()
    assert explore_after(settings) is None
    assert capsys.readouterr().out == "no cluster explorer: this run annotated nothing\n"


def test_runs_that_are_not_there_or_not_finished(settings):
    with pytest.raises(ValueError, match=r"name = 'other': there is no run in"):
        explore(ExploreRun(name="other", storage=settings.storage))
    change_manifest(settings, lambda manifest: manifest.pop("finished"))
    with pytest.raises(ValueError, match=r"name = 'run': that run isn't finished"):
        explore(ExploreRun(name="run", storage=settings.storage))


def test_a_run_by_settings_that_are_gone_is_refused_in_a_line(settings):
    change_manifest(settings, lambda manifest: manifest["settings"]["annotate"].update(mutual=True))
    with pytest.raises(ValueError, match=r"name = 'run': another version .* \(annotate\.mutual = True: is no") as error:
        explore(ExploreRun(name="run", storage=settings.storage))
    assert "\n" not in str(error.value)


def test_an_encoder_that_is_gone_is_said(settings):
    change_manifest(settings, lambda manifest: manifest["stages"].pop("iteration_1/train"))
    with pytest.raises(ValueError, match=r"the encoder that made .*iteration_2/annotations isn't found"):
        explore(ExploreRun(name="run", storage=settings.storage))


def test_ids_on_the_command_line_and_in_yaml():
    assert Explorer.model_validate({"ids": "a, b"}).ids == ["a", "b"]
    assert Explorer.model_validate({"ids": ["a,b", 7]}).ids == ["a,b", "7"]
    asked = parse(ExploreRun, ["--name", "news", "--ids", "[1, 'a,b']"], "infocse explorer", "")
    assert asked.ids == ["1", "a,b"]


@pytest.mark.parametrize(("name", "meant"), [("../news", "; it is no path: did you mean news?"), (".", ""), ("", "")])
def test_a_name_is_no_path(name, meant, capsys):
    """It would lead out of the storage."""
    with pytest.raises(SystemExit):
        parse(ExploreRun, [f"--name={name}"], "infocse explorer", "")
    said = f"name = {name!r}: use letters, digits, dot, dash and underscore, starting with a letter or digit"
    assert capsys.readouterr().err == f"infocse explorer: error: {said}{meant} (see --help)\n"


@pytest.mark.parametrize("argv", [["run", "--ids", "a,b"], ["--ids", "a,b", "run"]])
def test_the_run_is_named_without_an_option_and_its_report_made_again(argv, settings, monkeypatch, capsys):
    from infocse_ray.commands import explorer

    explore_after(settings)
    asked: list[ExploreRun] = []
    monkeypatch.setattr(module, "explore", asked.append)
    assert explorer.main([*argv, "--storage", settings.storage]) == 0
    assert asked == [ExploreRun(name="run", storage=settings.storage, ids=["a", "b"])]
    page = Path(settings.storage) / "run" / "report.html"
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {page}"
    text = page.read_text()
    assert text.count('href="explorer.html"') == 2
    assert "Pairs by similarity, iteration 2" in text


def test_an_id_that_the_run_itself_did_not_find_is_in_no_ones_way(settings, capsys):
    change_manifest(settings, lambda manifest: manifest["settings"]["explorer"].update(ids=["nowhere"]))
    doc_id = some_id(Path(settings.storage) / "run")
    explore(ExploreRun(name="run", storage=settings.storage, ids=[doc_id]))
    assert "warning: explorer.ids = 'nowhere': no document that was clustered" in capsys.readouterr().out
    assert read(settings)["documents"][0]["id"] == doc_id


def test_a_page_of_nothing_takes_no_ones_place(settings):
    explore_after(settings)
    before = read(settings)
    with pytest.raises(ValueError, match=r"^documents = 0: leaves nothing to show; name documents with ids"):
        explore(ExploreRun(name="run", storage=settings.storage, documents=0))
    assert read(settings) == before
    assert (Path(settings.storage) / "run" / "explorer.html").exists()
