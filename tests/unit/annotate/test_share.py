"""Which documents an iteration annotates, and that it annotates these alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infocse_ray.annotate import documents as documents_module
from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.annotate.enough import (
    DOCUMENTS_A_PAIR,
    FEWEST,
    MARGIN,
    PAIRS_A_DOCUMENT,
    pairs_in,
    pairs_read,
    share_of_iteration,
)
from infocse_ray.annotate.kmeans import share_of
from infocse_ray.annotate.open_documents import most_open
from infocse_ray.annotate.share import IN_EVERY_DRAW, Share
from infocse_ray.corpus.store import TokenStore, shard_name
from infocse_ray.errors import DamagedFile
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
    documents = TrainingDocuments(store, ["train"])
    assert documents.shards == range(1_200)
    common = documents._replace(draws=[Share(4, 42, t) for t in range(30)]).shards
    assert [shard % LANES for shard in sorted(common, key=lambda shard: shard % LANES)] == [0, 1, 2]
    others = documents._replace(draws=[Share(4, 43, t) for t in range(30)]).shards
    assert common != others, "which one, says the seed"


KEYS = np.random.default_rng(0).integers(0, 2**63, 20_000)


@pytest.mark.parametrize("part", [0.05, 0.25, 0.9])
def test_a_part_of_the_documents_is_another_each_iteration(part: float):
    draws = {t: Share(1, 42, t, part).has(KEYS) for t in range(1, 31)}
    for drawn in draws.values():
        assert drawn.mean() == pytest.approx(part, abs=0.01)
    in_every = np.logical_and.reduce(list(draws.values()))
    if part < 0.9:
        assert in_every.mean() == pytest.approx(part * IN_EVERY_DRAW, abs=0.005)
    assert (Share(1, 42, 1, part).has(KEYS) == draws[1]).all(), "it is a function"
    assert Share(1, 43, 1, part).has(KEYS)[in_every].mean() < 1, "which ones, says the seed"
    assert Share(1, 42, 1, part + 0.05).has(KEYS)[draws[1]].all(), "more of the same draw"
    assert Share(1, 42, 1).has(KEYS).all()


@pytest.mark.parametrize("part", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("iterations", [1, 2, 3, 10])
def test_the_part_that_all_iterations_have_is_what_is_said(part: float, iterations: int):
    draws = [Share(1, 42, t, part) for t in range(1, iterations + 1)]
    found = np.logical_and.reduce([share.has(KEYS) for share in draws]).mean()
    documents = TrainingDocuments(store_of(1), ["train"], None, draws)
    assert documents.part == pytest.approx(found, abs=0.01)


@pytest.mark.parametrize("a_lane", range(1, FEWEST + 1))
def test_of_few_shards_a_part_of_the_documents_is_annotated(a_lane: int):
    found = share_of_iteration(settings_of(0.01), store_of(a_lane), ["train"], 2)
    assert found == (share := Share(a_lane, 42, 2, 0.01))
    assert share.of_all(store_of(a_lane)) == pytest.approx(0.01)
    found = share_of_iteration(settings_of("auto", max_steps=1_000), store_of(a_lane), ["train"], 2)
    assert found == Share(a_lane, 42, 2, 0.25), "of a million pairs 150,000 would do"


def test_by_itself_it_is_halved_as_often_as_it_can_be():
    store = store_of(1)
    for max_steps, part in ((1_000, 0.25), (1_600, 0.25), (1_700, 0.5), (3_333, 0.5), (10, 2.0**-6)):
        share = share_of_iteration(settings_of(max_steps=max_steps), store, ["train"], 1)
        assert share is not None
        assert share.documents == part
    assert share_of_iteration(settings_of(max_steps=3_334), store, ["train"], 1) is None
    # With enough of them some shards are drawn, whole.
    share = share_of_iteration(settings_of(max_steps=1_000), store_of(40), ["train"], 1)
    assert share is not None
    assert share.whole_shards


@pytest.mark.parametrize("share", ["auto", 0.0001])
@pytest.mark.parametrize(
    ("train", "fewest"),
    [
        ({"max_steps": 480}, 48_000 // PAIRS_A_DOCUMENT),
        ({"max_steps": 10**6}, 64 * most_open(2)),  # with these open each gives another pair whatever is read
        ({"batch_size": 300, "max_steps": 1}, DOCUMENTS_A_PAIR * 300),
        ({"max_steps": 1}, 4_096),  # whatever the batch, so that trials of several annotate alike
        ({"batch_size": 2, "max_steps": 1}, 4_096),
    ],
)
def test_training_reads_few_pairs_of_a_document(share: Any, train: dict[str, int], fewest: int):
    store = store_of(1, 64, documents=100 * fewest)
    store.summary["sentences"] *= 10**6  # so that few documents have the pairs
    found = share_of_iteration(settings_of(share, **train), store, ["train"], 1)
    assert found is not None
    assert found.documents == (2.0**-6 if share == "auto" else 0.01)
    for few in (fewest, 10):
        store = store_of(1, 64, documents=few)
        assert share_of_iteration(settings_of(share, **train), store, ["train"], 1) is None


@pytest.mark.parametrize("share", ["auto", 0.001])
def test_a_large_batch_has_its_different_documents(share: Any):
    store = store_of(1, documents=100_000)
    store.summary["sentences"] *= 100  # so that few documents have the pairs
    found = share_of_iteration(settings_of(share, batch_size=3_000, max_steps=10), store, ["train"], 1)
    assert found is not None
    assert found.documents * 100_000 >= 5 * 3_000


def test_what_is_drawn_names_it():
    named = [Share(4, 42, 1), Share(4, 42, 1, 0.5), Share(4, 42, 1, 0.25), Share(4, 42, 2, 0.25)]
    assert len({share.identity() for share in named}) == 4
    assert named[0].identity() == (4, 42, 1), "as before documents were drawn"
    for share in named:
        assert Share.of_stage(json.loads(json.dumps(share.summary())), 42, share.iteration) == share


def test_a_share_by_number():
    store = store_of(40)
    for share, a_lane in ((0.1, 4), (0.3, 12), (0.301, 13), (0.975, 39)):
        assert share_of_iteration(settings_of(share), store, ["train"], 2) == Share(a_lane, 42, 2)
    assert share_of_iteration(settings_of(0.05), store, ["train"], 2) == Share(4, 42, 2, 0.5), "half of four"
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


@pytest.mark.parametrize("section", SECTIONS, ids=str)
def test_drawn_documents_alone_are_annotated_and_read(passes, tmp_path, store, section):
    settings, share = Annotate.model_validate(section), Share(6, 7, 1, 0.4)
    summary = passes.annotate(store, tmp_path / "out", settings, share=share)
    assert (summary["shards_a_lane"], summary["part_of_documents"]) == (6, 0.4)
    whole, out = tmp_path / "whole", Storage.open(str(tmp_path / "out"))
    passes.annotate(store, whole, settings)
    source = Shards(store.folder / "documents", "f", 6, 1, SPLITS, annotations=out, drawn=share.shards(store))
    everything = source._replace(annotations=Storage.open(str(whole)), drawn=None)
    seen = sentences = 0
    for number in range(6):
        with source.open(number) as some, everything.open(number) as every:
            assert some.groups() == every.groups()
            for group in some.groups():
                found, all_of_it = some.read(group), every.read(group)
                mask = share.has(all_of_it.keys)
                assert found.keys.tolist() == all_of_it.keys[mask].tolist()
                assert found.doc_ids.to_pylist() == np.array(all_of_it.doc_ids.to_pylist(), object)[mask].tolist()
                assert some.documents(group) == len(found.keys)
                assert found.clusters is not None
                assert all_of_it.clusters is not None
                if section.get("clustering") != "kmeans":  # whose centroids are of what is drawn
                    kept = np.repeat(mask, np.diff(all_of_it.offsets))
                    assert found.clusters.tolist() == all_of_it.clusters[kept].tolist()
                seen, sentences = seen + len(found.keys), sentences + len(found.sentences)
    assert 0 < seen < 40
    assert (summary["documents"], summary["sentences"]) == (seen, sentences)
    assert count_examples(source, idc(), "counting")["examples_by_lane"] == counted(source, idc()).by_lane.tolist()


def test_shards_of_which_no_document_is_drawn(passes, tmp_path, store):
    share = Share(6, 7, 1, 1e-9)
    summary = passes.annotate(store, tmp_path / "out", Annotate(), share=share)
    assert summary["documents"] == 0
    out = Storage.open(str(tmp_path / "out"))
    source = Shards(store.folder / "documents", "f", 6, 1, SPLITS, annotations=out, drawn=share.shards(store))
    with source.open(0) as some:
        assert [len(found.keys) for found in some.read_all(some.groups())] == [0] * len(some.groups())


def test_clusters_of_a_document_that_the_store_does_not_have_are_damage(passes, tmp_path, store):
    share = Share(6, 7, 1, 0.4)
    passes.annotate(store, tmp_path / "out", Annotate(), share=share)
    other = small_store(tmp_path / "other", count=50)
    out = Storage.open(str(tmp_path / "out"))
    source = Shards(other.folder / "documents", "f", 6, 1, SPLITS, annotations=out, drawn=share.shards(store))

    def read() -> None:
        for number in range(6):
            with source.open(number) as some:
                list(some.read_all(some.groups()))

    with pytest.raises(DamagedFile, match="other documents"):
        read()


def test_groups_and_totals_are_of_the_drawn_shards(store, monkeypatch):
    whole = TrainingDocuments(store, SPLITS)
    share = next(share for t in range(99) if (share := Share(4, 0, t)).shards(store) == [0, 2, 3, 5])
    drawn = whole._replace(draws=[share])
    monkeypatch.setattr(documents_module, "_SENTENCES_TOGETHER", store.summary["sentences"] // 2 + 1)
    assert whole.groups() == [[0, 1, 2], [3, 4, 5]]
    assert drawn.groups() == [[0, 2, 3], [5]]
    assert drawn.count == round(whole.count * 4 / 6)
    assert drawn.sentences == pytest.approx(whole.sentences * 4 / 6)
    half = whole._replace(draws=[share._replace(documents=0.5)])
    assert half.groups() == [[0, 2, 3, 5]]
    assert half.sentences == pytest.approx(whole.sentences / 3)
    sample = round(whole.sentences / 6)
    assert share_of(drawn, sample) == pytest.approx(share_of(whole, sample) * 6 / 4)
