"""The example stream against brute force: every pair once a pass, whatever the workers, wherever it resumes."""

import tracemalloc
from collections import Counter
from itertools import combinations
from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infocse_ray.corpus.schema import stable_hash
from infocse_ray.methods.chance import mixed
from infocse_ray.methods.idc import pairs as pairs_of
from infocse_ray.sampling import pool as sampling_pool
from infocse_ray.sampling.examples import Examples
from infocse_ray.sampling.lane import Entering, Lane
from infocse_ray.sampling.order import numbers, orders
from infocse_ray.sampling.pool import Pool
from infocse_ray.sampling.shards import Shards
from infocse_ray.sampling.stream import ExampleStream, due
from infocse_ray.storage.folder import Storage
from tests.unit.stores import Written, counted, idc, numbered, write_annotations
from tests.unit.trainees import document as opened_document

LANES, SHARDS = 5, 10


def document(number, clusters, texts=None):
    """Sentence j of document i is the tokens [i, j]; or [i, texts[j]], so that there are copies."""
    texts = range(len(clusters)) if texts is None else texts
    return Written(f"d{number}", [[number, text] for text in texts], clusters)


def corpus(folder, count, seed=0, lanes=LANES, shards=SHARDS, most=9) -> tuple[Shards, list[Written]]:
    """In half of the documents some sentences are copies of others, in their cluster."""
    draw = np.random.default_rng(seed)
    documents = []
    for i in range(count):
        size = int(draw.integers(2, most))
        texts = draw.integers(0, size, size) if i % 2 else np.arange(size)
        of_text = draw.integers(0, 3, size)
        documents.append(document(i, numbered(of_text[texts]), texts.tolist()))
    return write_annotations(Storage.open(str(folder)), documents, lanes, shards), documents


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("small"), 43)


def all_pairs(documents):
    """Unordered pairs of different texts of one cluster."""
    found = Counter()
    for d in documents:
        cluster = {text: c for (_, text), c in zip(d.sentences, d.clusters, strict=True)}
        found.update((d.doc_id, a, b) for a, b in combinations(sorted(cluster), 2) if cluster[a] == cluster[b])
    return found


def rows_of(batch):
    """(document, anchor's sentence, positive's sentence) of each row."""
    views = batch.texts.values.reshape(-1, 2, 2)
    anchors, positives = views[:, 0], views[:, 1]
    assert batch.labels.tolist() == [0, 1] * len(views)
    assert batch.owner.tolist() == np.repeat(np.arange(len(views)), 2).tolist()
    for doc_id, key, a, p in zip(batch.doc_ids, batch.keys, anchors, positives, strict=True):
        assert doc_id == f"d{a[0]}" == f"d{p[0]}"
        assert key == stable_hash(doc_id)
    return [(d, int(a[1]), int(p[1])) for d, a, p in zip(batch.doc_ids, anchors, positives, strict=True)]


def unordered(rows):
    return [(d, min(i, j), max(i, j)) for d, i, j in rows]


def streams(annotations, size, workers=1, seed=7):
    examples = counted(annotations, idc())
    return [ExampleStream(examples, idc(), size, seed, rank, workers) for rank in range(workers)]


def global_batch(workers):
    """All workers' rows of the next batch."""
    rows = [row for stream in workers for row in rows_of(stream.next_batch())]
    assert len(rows) == workers[0].batch_size
    return rows


@pytest.mark.parametrize("pool", [None, 2])
def test_every_pass_deals_every_pair_once(small, pool, monkeypatch):
    annotations, documents = small
    if pool:  # documents enter while others are open
        monkeypatch.setattr(sampling_pool, "_POOL", pool)
        monkeypatch.setattr(sampling_pool, "_DRAWS_IN_POOL", 1)
    pairs = all_pairs(documents)
    total = pairs.total()
    assert total % 17  # so that a batch crosses from one pass to the next
    stream = streams(annotations, 17)
    rows = [row for _ in range(3 * total // 17 + 1) for row in global_batch(stream)]
    passes = [rows[p * total : (p + 1) * total] for p in range(3)]
    for dealt in passes:
        assert Counter(unordered(dealt)) == pairs
    assert passes[0] != passes[1] != passes[2] != passes[0]
    assert stream[0].passes == 3
    # About half of the pairs have the later sentence as the anchor.
    backwards = sum(i > j for _, i, j in passes[0])
    assert 0.35 * total < backwards < 0.65 * total
    flipped = sum(a in set(passes[1]) for a in passes[0])
    assert 0.35 * total < flipped < 0.65 * total


def test_the_seed_decides_the_order(small):
    annotations, _ = small
    first, again, other = (global_batch(streams(annotations, 40, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert Counter(unordered(first)) != Counter(unordered(other))


def test_shards_row_groups_and_documents_are_visited_in_an_order_of_the_seed_and_the_pass(tmp_path):
    documents = [document(i, [0, 0]) for i in range(6 * 6 * 6)]
    source = write_annotations(Storage.open(str(tmp_path)), documents, 1, 6, group=6)

    def order(seed, passes):
        lane = Lane(source, idc(), source.of_lane(0), 0, seed)
        lane.begin(passes)
        return np.concatenate([one.places for one in lane.take(len(documents))])

    first, next_pass, other_seed = visits = [order(1, 0), order(1, 1), order(2, 0)]
    for visit in visits:
        assert len(np.unique(visit, axis=0)) == len(documents)
    for column in range(3):  # shards, their row groups, and the rows of these
        for other in (next_pass, other_seed):
            here = (first[:, :column] == first[0, :column]).all(1)
            there = (other[:, :column] == first[0, :column]).all(1)
            one, another = (list(dict.fromkeys(rows.tolist())) for rows in (first[here, column], other[there, column]))
            assert sorted(one) == sorted(another) == list(range(6))
            assert one != another


@pytest.mark.parametrize("size", [17, 3])
def test_batches_do_not_depend_on_the_number_of_workers(small, size):
    annotations, documents = small
    steps = all_pairs(documents).total() // size + 3
    plans = []
    for workers in range(1, LANES + 1):
        group = streams(annotations, size, workers)
        plans.append([sorted(global_batch(group)) for _ in range(steps)])
    for plan in plans[1:]:
        assert plan == plans[0]


@pytest.mark.parametrize("seed", range(12))
def test_a_document_is_at_most_once_in_a_batch(tmp_path, seed):
    draw = np.random.default_rng(seed)
    lanes, size = int(draw.integers(2, 9)), int(draw.integers(4, 20))
    documents = [document(i, [0] * int(draw.integers(2, 7))) for i in range(20 * lanes)]
    annotations = write_annotations(Storage.open(str(tmp_path)), documents, lanes, lanes)
    [stream] = streams(annotations, size, seed=seed)
    whole = all_pairs(documents).total() // size
    for _ in range(whole):
        batch = stream.next_batch()
        assert len(set(batch.doc_ids)) == size
    # Across the end of the pass: what is left over, then documents that are not among it.
    crossing = stream.next_batch()
    assert len(crossing.doc_ids) == size


def test_a_batch_across_the_end_of_a_pass_repeats_no_document_it_need_not(tmp_path):
    documents = [document(i, [0, 0]) for i in range(13)]
    annotations = write_annotations(Storage.open(str(tmp_path)), documents, 1, 1)
    for seed in range(10):
        [stream] = streams(annotations, 5, seed=seed)
        for _ in range(8):
            assert len(set(stream.next_batch().doc_ids)) == 5


@pytest.mark.parametrize("lanes", [4, 64])
def test_long_documents_are_dealt_throughout_a_pass(tmp_path, lanes):
    """Held back, their pairs would be all that is left at its end: few documents, and so few negatives."""
    draw = np.random.default_rng(0)
    sizes = np.maximum(2, np.exp(draw.normal(np.log(12), 0.9, 150)).astype(int))
    documents = [document(i, [0] * n) for i, n in enumerate(sizes.tolist())]
    [stream] = streams(write_annotations(Storage.open(str(tmp_path)), documents, lanes, lanes), 64)
    count = all_pairs(documents).total() // 64
    batches = [stream.next_batch().doc_ids for _ in range(count)]
    first, last = (np.mean([len(set(batch)) for batch in some]) for some in (batches[:20], batches[-20:]))
    assert last > 0.5 * first


def test_batches_larger_than_the_corpus_are_full(tmp_path):
    documents = [document(0, [0, 0, 0]), document(1, [0, 1, 1, 2])]
    annotations = write_annotations(Storage.open(str(tmp_path)), documents, 2, 2)
    for workers in (1, 2):
        rows = [row for _ in range(3) for row in global_batch(streams(annotations, 11, workers))]
        assert len(rows) == 33
    rows = global_batch(streams(annotations, 12))
    assert set(Counter(unordered(rows)).values()) == {3}


@pytest.mark.parametrize("pool", [None, 2])
def test_resumed_equals_uninterrupted(small, tmp_path, pool, monkeypatch):
    annotations, documents = small
    if pool:
        monkeypatch.setattr(sampling_pool, "_POOL", pool)
        monkeypatch.setattr(sampling_pool, "_DRAWS_IN_POOL", 1)
    size = 17
    a_pass = all_pairs(documents).total() // size
    stops = [0, 1, a_pass // 2, a_pass, a_pass + 1, 2 * a_pass + 3]
    [uninterrupted] = streams(annotations, size)
    plan = [sorted(global_batch([uninterrupted])) for _ in range(stops[-1] + 4)]
    for before, after in ((1, 1), (1, 3), (3, 2), (5, 4)):
        group = streams(annotations, size, before)
        for step in range(stops[-1] + 1):
            if step in stops:
                state = {}
                for rank, stream in enumerate(group):
                    np.savez(tmp_path / f"{rank}.npz", **stream.state())  # pyright: ignore[reportArgumentType]
                    with np.load(tmp_path / f"{rank}.npz", allow_pickle=False) as saved:
                        state |= {name: saved[name] for name in saved.files}
                resumed = streams(annotations, size, after)
                for stream in resumed:
                    stream.next_batch()  # restoring must undo whatever came before
                    stream.restore(state)
                assert [sorted(global_batch(resumed)) for _ in range(4)] == plan[step : step + 4]
            assert sorted(global_batch(group)) == plan[step]


class Paired:
    """A document with the given clusters, its sentences, of one token each, in a shuffled order."""

    def __init__(self, sizes, seed=0, key=1):
        self.clusters = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
        sentences = [[n] for n in range(len(self.clusters))]
        self.opened = idc().open(opened_document(sentences, self.clusters.tolist(), key))
        (self.examples,) = self.opened.examples.tolist()
        self._order = orders(np.maximum(self.opened.examples, 1), seed, np.array([key]))

    def pairs(self, wanted):
        """Pairs by number, as sentences."""
        rows = pairs_of(self.opened, np.zeros(len(wanted), np.int64), np.array(wanted, np.int64))
        return list(zip(*(self.opened.texts.values[row].tolist() for row in rows), strict=True))

    def deal(self, count):
        """The first pairs."""
        examples, step, shift = (np.repeat(column, count) for column in (self.opened.examples, *self._order))
        return self.pairs(numbers(examples, step, shift, np.arange(count)))


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(0, 2**32))
@settings(max_examples=60)
def test_numbers_and_the_deal_are_permutations_of_the_pairs(sizes, seed):
    one = Paired(sizes, seed)
    clusters = one.clusters
    expected = {(i, j) for i, j in combinations(range(len(clusters)), 2) if clusters[i] == clusters[j]}
    for pairs in (one.pairs(range(one.examples)), one.deal(one.examples)):
        assert len(pairs) == len(expected)
        assert {(min(pair), max(pair)) for pair in pairs} == expected


def test_documents_of_one_shape_are_dealt_in_different_orders():
    deals = {tuple(Paired([6], key=key).deal(1)) for key in range(30)}
    assert len(deals) > 5


@given(st.integers(2, 10_000), st.data())
@settings(max_examples=20)
def test_pair_numbers_of_large_clusters(size, data):
    found = Paired([3, size])
    number = data.draw(st.integers(0, found.examples - 1))
    [(i, j)] = found.pairs([number])
    assert found.clusters[i] == found.clusters[j]
    assert i != j
    if number >= 3:
        places = [np.flatnonzero(found.clusters == 1).tolist().index(s) for s in (i, j)]
        assert 3 + places[1] * (places[1] - 1) // 2 + places[0] == number
    assert found.examples == 3 + size * (size - 1) // 2


def test_fifty_million_pairs_are_not_listed():
    Paired([10_000])
    tracemalloc.start()
    try:
        one = Paired([10_000])
        pairs = {frozenset(pair) for pair in one.deal(1000)}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert one.examples == 49_995_000
    assert len(pairs) == 1000
    assert peak < 8_000_000


@pytest.mark.parametrize("count", [1, 2, 30, 2**31, 2**33 + 3, 2**61 + 1])
def test_the_order_of_a_documents_examples_is_that_by_hand(count):
    """Also of documents of so many examples that 64 bits don't hold the product."""
    examples = np.full(50, count)
    steps, shifts = orders(examples, 5, np.arange(50))
    assert all(gcd(step, count) == 1 and 0 < step <= count for step in steps.tolist())
    used = np.arange(50) % count
    expected = [(a * i + b) % count for a, b, i in zip(steps.tolist(), shifts.tolist(), used.tolist(), strict=True)]
    assert numbers(examples, steps, shifts, used).tolist() == expected


@given(st.lists(st.integers(0, 400), min_size=1, max_size=64).filter(any), st.integers(1, 200), st.integers(0, 99))
@settings(max_examples=100)
def test_lanes_keep_step_and_end_together(sizes, batch_size, seed):
    """Also where a batch has fewer examples than there are lanes."""
    sizes = np.array(sizes)
    dealt = np.zeros(len(sizes), np.int64)
    while left := int((sizes - dealt).sum()):
        quota = due(sizes, dealt, min(batch_size, left), seed)
        assert (quota >= 0).all()
        assert quota.sum() == min(batch_size, left)
        dealt += quota
        some = sizes > 0
        parts = (dealt[some] - 1) / sizes[some], (dealt[some] + 1) / sizes[some]
        assert parts[0].max() < parts[1].min() + 1e-12  # one part that all have dealt, to within one example
    assert dealt.tolist() == sizes.tolist()


def test_a_pass_has_one_order_whatever_the_batches():
    sizes = np.array([5, 0, 300, 41, 2**40])
    dealt = np.zeros(5, np.int64)
    for count in (1, 30, 7, 62):
        dealt += due(sizes, dealt, count, 3)
    assert dealt.tolist() == due(sizes, np.zeros(5, np.int64), 100, 3).tolist()
    assert (
        due(sizes[:4], np.zeros(4, np.int64), 100, 3).tolist() != due(sizes[:4], np.zeros(4, np.int64), 100, 4).tolist()
    )


def test_equal_lanes_meet_in_batches_by_chance():
    """Were they taken by turns, documents of lanes that never meet would never be each other's negatives."""
    sizes, dealt, together = np.full(8, 200), np.zeros(8, np.int64), np.zeros((8, 8), int)
    for _ in range(400):
        quota = due(sizes, dealt, 4, 0)
        dealt += quota
        together += np.outer(quota > 0, quota > 0)
    assert together.min() > 60


def test_documents_that_are_done_make_room(tmp_path):
    """What is open is bounded by what a lane may have open, however many documents a pass has."""
    documents = [document(i, [0, 0]) for i in range(1500)]
    annotations = write_annotations(Storage.open(str(tmp_path)), documents, 1, 1, group=50)
    [stream] = streams(annotations, 10)
    most = 0
    for _ in range(140):
        stream.next_batch()
        most = max(most, len(stream._pool.keys))
    assert most <= 2 * (256 + 64) + 10


def test_documents_with_more_left_are_likelier():
    """By so many times as they have more; and what is drawn does not depend on the order that they entered in."""
    first = [0, 0]
    for seed in range(300):
        drawn = [_drawn_of_two(seed, turned) for turned in (False, True)]
        assert drawn[0] == drawn[1]
        first[drawn[0]] += 1
    assert 0.68 < first[1] / 300 < 0.82


def _drawn_of_two(seed, turned):
    """Which of two documents of 1 and 3 examples the first draw takes."""
    source = Shards(Storage("nowhere"), "f", 1, 1, [])
    opened = idc().open(opened_document([[1], [2]])), idc().open(opened_document([[1], [2], [3]]))
    lane = Lane(source, idc(), [0], 0, seed)
    pool = Pool([lane])
    lane.take = lambda _: []  # pyright: ignore[reportAttributeAccessIssue]
    for key in (1, 0) if turned else (0, 1):
        one = np.array([key])
        chance = mixed(seed, one)
        pool.enter(0, [Entering(opened[key], one.astype(object), one, np.zeros((1, 3), int), chance, one * 0 + 1, one)])
    drawn = pool.draw(np.array([1]), 1000, np.zeros(0, np.int64))
    return int(pool.keys[drawn.documents[0]])


def test_a_batch_of_nothing(small):
    with pytest.raises(ValueError, match=r"^a global batch of -1 examples has none$"):
        ExampleStream(counted(small[0], idc()), idc(), -1, 0)


def test_more_workers_than_lanes(small):
    with pytest.raises(ValueError, match=r"train\.num_workers = 6.*corpus\.lanes = 5"):
        ExampleStream(counted(small[0], idc()), idc(), 4, 0, 0, 6)


def test_no_pairs(tmp_path):
    annotations = write_annotations(Storage.open(str(tmp_path)), [document(0, [0, 1, 2])], 2, 2)
    with pytest.raises(ValueError, match=r"corpus\.source: no document gives an example to train on"):
        ExampleStream(counted(annotations, idc()), idc(), 4, 0)


def test_fewer_pairs_than_were_counted(tmp_path):
    annotations = write_annotations(Storage.open(str(tmp_path)), [document(0, [0, 0, 0])], 1, 1)
    stream = ExampleStream(Examples(annotations, "f", {"examples_by_lane": [9]}), idc(), 4, 0)
    with pytest.raises(RuntimeError, match=r"lane 0 has fewer examples than were counted.*delete the folder"):
        stream.next_batch()
