"""Which shards an iteration annotates, and that it annotates these alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infocse_ray.annotate import documents as documents_module
from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.annotate.kmeans import share_of
from infocse_ray.annotate.share import FEWEST, MARGIN, Share, in_all, pairs_in, pairs_read, share_of_iteration
from infocse_ray.corpus.store import TokenStore, shard_name
from infocse_ray.sampling.examples import count_examples
from infocse_ray.sampling.shards import Shards
from infocse_ray.settings import Annotate, Settings
from infocse_ray.storage.folder import Storage
from tests.unit.passes import SPLITS, Crash, Passes, pieces, small_store
from tests.unit.stores import counted, idc

LANES = 3
SECTIONS = [{"k": 1}, {"k": 2}, {"clustering": "kmeans", "kmeans_clusters": 3}]


def store_of(a_lane: int, lanes: int = LANES, documents: int = 100_000) -> TokenStore:
    """A store of ten sentences a document and twenty tokens a sentence, by its summary."""
    summary = {
        "shards": a_lane * lanes,
        "lanes": lanes,
        "sentences": 10 * documents,
        "tokens": 200 * documents,
        "documents": {"train": documents, "valid": 0, "test": 0},
    }
    return TokenStore(Storage("nowhere"), "f", summary)


def settings_of(share: Any = "auto", **train: Any) -> Settings:
    return Settings.model_validate(
        {
            "name": "run",
            "corpus": {"source": "a"},
            "encoder": {"model": "m"},
            "annotate": {"share": share},
            "train": {"batch_size": 100, **train},
        }
    )


def test_a_draw_has_as_many_of_each_lane_and_another_each_iteration():
    store = store_of(40)
    draws = {t: Share(7, 42, t).shards(store) for t in range(1, 6)}
    for drawn in draws.values():
        assert drawn == sorted(set(drawn))
        assert [sum(shard % LANES == lane for shard in drawn) for lane in range(LANES)] == [7] * LANES
    assert len({tuple(drawn) for drawn in draws.values()}) == len(draws)
    assert Share(7, 42, 1).shards(store) == draws[1], "it is a function"
    assert Share(7, 43, 1).shards(store) != draws[1]
    assert set(draws[1]) < set(Share(8, 42, 1).shards(store)), "more of the same draw"
    assert Share(40, 42, 1).shards(store) == list(range(120))


def test_one_shard_of_each_lane_is_in_every_draw():
    store = store_of(400)
    common = in_all(Share(4, 42, t).shards(store) for t in range(30))
    assert common is not None
    assert [shard % LANES for shard in sorted(common, key=lambda shard: shard % LANES)] == [0, 1, 2]
    assert common != in_all(Share(4, 43, t).shards(store) for t in range(30)), "which one, says the seed"


def test_what_all_draws_have():
    assert in_all([]) is None
    assert in_all([None, None]) is None
    assert in_all([[1, 2, 3], None, [3, 2, 7]]) == [2, 3]


@pytest.mark.parametrize("a_lane", range(1, FEWEST + 1))
def test_few_shards_are_annotated_whole(a_lane: int):
    for share in ("auto", 0.01):
        assert share_of_iteration(settings_of(share, max_steps=1), store_of(a_lane), ["train"], 1) is None


def test_a_share_by_number():
    store = store_of(40)
    for share, a_lane in ((0.01, 4), (0.1, 4), (0.3, 12), (0.301, 13), (0.975, 39)):
        assert share_of_iteration(settings_of(share), store, ["train"], 2) == Share(a_lane, 42, 2)
    assert share_of_iteration(settings_of(0.98), store, ["train"], 2) is None
    assert share_of_iteration(settings_of(1), store, ["train"], 2) is None


@pytest.mark.parametrize("share", [0, 1.1, "some", -1])
def test_shares_that_are_none(share: Any):
    with pytest.raises(ValueError, match=r"annotate\.share"):
        settings_of(share)


@pytest.mark.parametrize(
    ("train", "read"),
    [
        ({"max_steps": 1_000}, 100_000),
        ({"max_steps": 1_000, "max_tokens": 10**12}, 100_000),
        ({"max_steps": 10**12, "max_tokens": 4_000_000}, 100_100),  # pairs of 40 tokens, and the last step
    ],
)
def test_by_itself_it_covers_what_training_reads(train: dict[str, int], read: int):
    store, settings = store_of(40), settings_of(**train)
    assert pairs_read(settings, store) == read
    share = share_of_iteration(settings, store, ["train"], 1)
    assert share is not None
    # A million sentences, a pair each: 15 % of the corpus.
    assert share.a_lane == -(-40 * MARGIN * read // 1_000_000)
    assert pairs_in(settings.annotate, 100_000, 1_000_000) * share.of_all(store) >= MARGIN * read
    assert share_of_iteration(settings_of(max_steps=7_000), store, ["train"], 1) is None
    # No less of a part of the documents than of all.
    summary = store.summary | {"documents": {"train": 50_000, "valid": 50_000, "test": 0}}
    half = share_of_iteration(settings, store._replace(summary=summary), ["train"], 1)
    assert half is not None
    assert half.a_lane == -(-40 * MARGIN * read // 500_000)


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"k": 2},
        {"clustering": "kmeans", "kmeans_clusters": 3},
        {"clustering": "kmeans", "kmeans_clusters": 50},
    ],
    ids=str,
)
def test_there_are_no_fewer_pairs_than_estimated(passes: Passes, tmp_path: Path, section: dict[str, Any]) -> None:
    store, settings = small_store(tmp_path / "store", count=200), Annotate.model_validate(section)
    passes.annotate(store, tmp_path / "out", settings)
    documents = TrainingDocuments(store, SPLITS)
    source = Shards(store.folder / "documents", "f", store.shards, store.shards, SPLITS)
    source = source._replace(annotations=Storage.open(str(tmp_path / "out")))
    found = counted(source, idc()).by_lane.sum()
    assert 0 < pairs_in(settings, documents.count, documents.sentences) <= MARGIN * found


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    """Six shards in one lane."""
    made = small_store(tmp_path / "store", count=60)
    return made._replace(summary=made.summary | {"lanes": 1})


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_drawn_shards_alone_are_annotated(passes, tmp_path, store, section):
    settings, share = Annotate.model_validate(section), Share(4, 7, 1)
    drawn = share.shards(store)
    summary = passes.annotate(store, tmp_path / "out", settings, share=share)
    assert summary["shards_a_lane"] == 4
    assert Share.of_stage(summary, 7, 1) == share
    names = [name for name in pieces(tmp_path / "out") if name.startswith("shard-")]
    assert names == [shard_name(shard) for shard in drawn]
    own = [documents for shard in drawn for documents in TrainingDocuments(store, SPLITS).own(shard)]
    assert summary["documents"] == sum(len(documents.keys) for documents in own)
    # Training finds them, and what annotating counted is what is there.
    source = Shards(store.folder / "documents", "f", 6, 1, SPLITS, False, Storage.open(str(tmp_path / "out")), drawn)
    assert list(source.of_lane(0)) == drawn
    assert count_examples(source, idc(), "counting")["examples_by_lane"] == counted(source, idc()).by_lane.tolist()
    if section == {"k": 1}:
        passes.annotate(store, tmp_path / "whole", settings)
        whole = pieces(tmp_path / "whole")
        assert all(pieces(tmp_path / "out")[name] == whole[name] for name in names)


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_annotating_a_share_goes_on_where_it_was(passes, tmp_path, store, section):
    settings, share = Annotate.model_validate(section), Share(4, 7, 1)
    expected = passes.annotate(store, tmp_path / "one", settings, share=share)
    files = pieces(tmp_path / "one")
    passes.crash_before = last = "AnnotateShards"
    with pytest.raises(Crash):
        passes.annotate(store, tmp_path / "two", settings, share=share)
    passes.crash_before, passes.works = "", []
    assert passes.annotate(store, tmp_path / "two", settings, share=share) == expected
    assert pieces(tmp_path / "two") == files
    assert passes.works == [last]


def test_groups_and_totals_are_of_the_drawn_shards(store, monkeypatch):
    whole = TrainingDocuments(store, SPLITS)
    drawn = whole._replace(drawn=[0, 2, 3, 5])
    monkeypatch.setattr(documents_module, "_SENTENCES_TOGETHER", store.summary["sentences"] // 2 + 1)
    assert whole.groups() == [[0, 1, 2], [3, 4, 5]]
    assert drawn.groups() == [[0, 2, 3], [5]]
    assert drawn.count == round(whole.count * 4 / 6)
    assert drawn.sentences == pytest.approx(whole.sentences * 4 / 6)
    sample = round(whole.sentences / 6)
    assert share_of(drawn, sample) == pytest.approx(share_of(whole, sample) * 6 / 4)
