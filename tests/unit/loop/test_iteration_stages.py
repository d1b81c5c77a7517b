"""Iterations that annotate a share of the corpus: a run trains on it, goes on, and draws another one each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from infocse_ray.annotate import enough
from infocse_ray.annotate.share import Share
from infocse_ray.corpus.store import TokenStore, shard_name
from infocse_ray.loop import iteration_stages
from infocse_ray.loop.infocse import pretrain
from infocse_ray.retrieval.ranks import scores_in
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from tests.unit import runs_here
from tests.unit.passes import Passes, pieces, small_store
from tests.unit.runs_here import settings_here


def one_lane(folder: Path) -> TokenStore:
    """Six shards, all in one lane."""
    store = small_store(folder)
    return store._replace(summary=store.summary | {"lanes": 1})


@pytest.fixture
def settings(tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of two iterations over the six shards."""
    monkeypatch.setattr(runs_here, "small_store", one_lane)
    monkeypatch.setattr(enough, "most_open", lambda _: 1)  # there are 40
    content = settings_here(tmp_path, tiny_encoder, monkeypatch).model_dump()
    content["seed"] = 4  # which draws different ones of so few
    content["loop"] |= {"max_iterations": 2, "early_stop": False}
    content["train"] |= {"never_worse": False, "interpolation": []}
    return Settings.model_validate(content)


def with_share(settings: Settings, share: float) -> Settings:
    return settings.model_copy(update={"annotate": settings.annotate.model_copy(update={"share": share})})


def annotated(settings: Settings, iteration: int) -> list[str]:
    folder = Path(settings.storage) / settings.name / f"iteration_{iteration}" / "annotations"
    return [name for name in pieces(folder) if name.startswith("shard-")]


@pytest.mark.parametrize(("share", "a_lane", "part"), [(0.7, 5, 1.0), (0.5, 4, 0.75)])
def test_a_run_trains_on_another_share_each_iteration(
    settings, passes: Passes, monkeypatch, capsys, share: float, a_lane: int, part: float
):
    settings = with_share(settings, share)
    train = iteration_stages.train
    monkeypatch.setattr(iteration_stages, "train", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        pretrain(settings)
    assert passes.works == ["AnnotateShards"]
    monkeypatch.setattr(iteration_stages, "train", train)
    metrics = pretrain(settings)
    assert passes.works == ["AnnotateShards"] * 2, "the first was there"
    store = TokenStore.open(Storage.open(str(next((Path(settings.storage) / "corpora").iterdir()))))
    drawn = {t: Share(a_lane, settings.seed, t).shards(store) for t in (1, 2)}
    assert drawn[1] != drawn[2]
    for t in (1, 2):
        assert annotated(settings, t) == [shard_name(shard) for shard in drawn[t]]
        found = metrics["iterations"][t]
        assert found["annotations"]["shards_a_lane"] == a_lane
        assert found["annotations"].get("part_of_documents", 1.0) == part
        assert found["train"]["steps"] == 4
        assert found["examples"]["examples"] == found["annotations"]["pairs"] > 0
    lines = capsys.readouterr().out.splitlines()
    said = [line for line in lines if "annotate.share" in line]
    assert len(said) == 3
    engine = [line for line in lines if "annotates with torch" in line]
    of_all = part * a_lane / 6
    annotates = f"{round(store.summary['sentences'] * of_all):,} are annotated"
    assert engine
    assert all(line.endswith(annotates) for line in engine), "what isn't annotated pays for no conversion"
    assert all(f"annotating {of_all:.1%} of the corpus" in line and "at most 32 pairs" in line for line in said)
    works = len(passes.works)
    assert pretrain(settings) == metrics
    assert len(passes.works) == works


def test_what_annotates_all_is_what_it_was_without_the_setting(settings, passes: Passes, monkeypatch, capsys):
    monkeypatch.setattr(enough, "most_open", lambda _: 40)  # as in a small corpus
    pretrain(settings)
    assert len(annotated(settings, 1)) == len(annotated(settings, 2)) == 6
    assert "annotate.share" not in capsys.readouterr().out
    passes.works.clear()
    pretrain(with_share(settings, 1.0).model_copy(update={"name": "whole"}))
    assert passes.works == [], "its annotations are the same stages"


def test_by_itself_a_run_annotates_what_its_training_reads(settings, passes: Passes):
    # 32 pairs are some tenth of what the six shards give.
    few = pretrain(settings)
    assert len(annotated(settings, 1)) == 4
    whole = with_share(settings, 1.0).model_copy(update={"name": "whole"})
    every = pretrain(whole)
    assert len(annotated(whole, 1)) == 6
    found, of = (metrics["iterations"][1]["annotations"]["sentences"] for metrics in (few, every))
    assert found < 0.6 * of, "of four shards half the documents"


def test_no_training_validates_again_what_it_starts_from(settings, passes: Passes, monkeypatch):
    given, seeds = [], []
    train = iteration_stages.train

    def noted(training, *arguments, **named):
        given.append(training.scored)
        seeds.append(training.seed)
        return train(training, *arguments, **named)

    monkeypatch.setattr(iteration_stages, "train", noted)
    metrics = pretrain(settings)
    assert seeds[0] != seeds[1], "an iteration draws its own examples, in an order of its own"
    begun, first = metrics["start"]["validation"], scores_in(metrics["iterations"][1]["validation"])
    assert given == [begun, first]
    assert begun != first
    for t, entry in enumerate(metrics["iterations"][1:]):
        assert scores_in(entry["history"][0]) == given[t]
