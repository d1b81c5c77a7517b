"""What texts each method makes of a document, as its paper has it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import offsets_of
from tests.unit.stores import SPEC, numbered
from tests.unit.trainees import CASES, document, method_for, ragged, views_of

LONG = list(range(100, 140))


def views(case, doc, number, seed=0, **section):
    """Views of example `number`, with other settings of the method's section."""
    method = method_for(case)
    if section:
        method.section = method.section.model_copy(update=section)
    return views_of(method, method.open(doc), number, seed)


def distinct(rows):
    """The different results of a function of the seed."""
    return {repr(rows(seed)) for seed in range(60)}


@pytest.mark.parametrize("case", ["simcse", "consert", "mirror_bert"])
def test_a_sentence_twice(case):
    doc = document([[5], LONG, [6, 7]])
    for number, text in enumerate([[5], LONG[:14], [6, 7]]):
        assert views(case, doc, number) == [(0, text), (1, text)]


def test_idc_pairs():
    doc = document([[5], [6], LONG, [8]], [0, 1, 0, 1])
    first, second = [(0, [5]), (1, LONG[:14])], [(0, LONG[:14]), (1, [5])]
    # Which of the two is the anchor is chance.
    assert distinct(lambda seed: views("idc", doc, 0, seed)) == {repr(first), repr(second)}


def test_ict_grows_the_block_by_turns_while_sentences_fit():
    # Blocks of at most 30 tokens.
    doc = document([[n] * 7 for n in range(8)])
    blocks = [
        [1, 2, 3, 4],
        [0, 2, 3, 4],
        [0, 1, 3, 4],
        [1, 2, 4, 5],
        [2, 3, 5, 6],
        [3, 4, 6, 7],
        [3, 4, 5, 7],
        [3, 4, 5, 6],
    ]
    for number, block in enumerate(blocks):  # after, before, after, before: 4 sentences of 7 tokens fit
        text = [token for n in block for token in [n] * 7]
        assert views("ict", doc, number, keep_query=0.0) == [(0, [number] * 7), (1, text)]
    kept = views("ict", doc, 3, keep_query=1.0)
    assert kept == [(0, [3] * 7), (1, [2] * 7 + [3] * 7 + [4] * 7 + [5] * 7)]


def test_ict_cuts_queries_and_blocks():
    doc = document([LONG, LONG[::-1], [5]])
    query, block = views("ict", doc, 0, keep_query=0.0)
    assert query == (0, LONG[:10])
    assert block == (1, LONG[::-1][:30])
    # Where sentences are encoded by themselves they are cut as sentences are.
    doc = document([LONG[:20], LONG[::-1][:20], [5]])
    assert views("ict sentences", doc, 2, keep_query=0.0)[1:] == [(1, LONG[:14]), (1, LONG[::-1][:14])]
    assert views("ict sentences", doc, 2, keep_query=1.0)[1:] == [(1, LONG[:14]), (1, LONG[::-1][:14]), (1, [5])]


def test_a_block_of_sentences_is_as_long_as_they_are_encoded():
    """Of 62 tokens four sentences fill 56, however much longer they were before each was cut at 14."""
    for text in (LONG, LONG[:14]):
        doc = document([text] * 9)
        assert views("ict sentences", doc, 4, keep_query=0.0) == [(0, text), *[(1, LONG[:14])] * 4]


def test_a_query_that_fills_the_block_is_not_kept_in_it():
    """Else the block would be the query alone, which is found by its beginning."""
    query, block = views("ict", document([LONG, [7, 8], [9]]), 0, keep_query=1.0)
    assert query == (0, LONG[:10])
    assert block == (1, [7, 8, 9])


def test_ict_keeps_the_query_one_time_in_ten():
    doc = document([[1], [2], [3]])
    blocks = [views("ict", doc, 1, seed)[1][1] for seed in range(2000)]
    assert all(block in ([1, 2, 3], [1, 3]) for block in blocks)
    assert 150 < blocks.count([1, 2, 3]) < 250


def test_cpc_windows():
    doc = document([[n] for n in range(6)] + [LONG])
    assert views("cpc", doc, 0) == [(0, [0]), (0, [1]), (0, [2]), (1, [3]), (2, [4]), (3, [5])]
    assert views("cpc", doc, 1) == [(0, [1]), (0, [2]), (0, [3]), (1, [4]), (2, [5]), (3, LONG[:14])]
    shorter = {
        2: [(0, [0]), (1, [1])],
        3: [(0, [0]), (1, [1]), (2, [2])],
        4: [(0, [0]), (0, [1]), (1, [2]), (2, [3])],
        5: [(0, [0]), (0, [1]), (1, [2]), (2, [3]), (3, [4])],
    }
    for size, expected in shorter.items():
        assert views("cpc", document([[n] for n in range(size)]), 0) == expected
    # Where more is asked for before than ahead, too, a window is all of a short document.
    uneven = views("cpc", document([[n] for n in range(5)]), 0, context=5, ahead=1)
    assert uneven == [(0, [0]), (0, [1]), (0, [2]), (0, [3]), (1, [4])]


def test_conpono_passages_and_targets():
    doc = document([[n] for n in range(14)])
    # Sentence of each label, for the passage of sentences 5..8: 9.. after it, 4.. before it.
    place = {1: 9, 2: 10, 3: 11, 4: 12, 5: 4, 6: 3, 7: 2, 8: 1}
    drawn = set()
    for seed in range(200):
        passage, *targets = views("conpono", doc, 5, seed)
        assert passage == (0, [5, 6, 7, 8])
        assert len({label for label, _ in targets}) == 4
        assert all(text == [place[label]] for label, text in targets)
        drawn |= {label for label, _ in targets}
    assert drawn == set(range(1, 9))
    assert views("conpono", doc, 0, targets=8) == [(0, [0, 1, 2, 3])] + [(k, [3 + k]) for k in range(1, 5)]
    assert views("conpono", doc, 10, targets=8) == [(0, [10, 11, 12, 13])] + [(4 + k, [10 - k]) for k in range(1, 5)]
    assert views("conpono", doc, 5, targets=8, offsets=1) == [(0, [5, 6, 7, 8]), (1, [9]), (2, [4])]


def test_conpono_of_short_documents_and_long_sentences():
    assert [views("conpono", document([[1], [2]]), n) for n in (0, 1)] == [[(0, [1]), (1, [2])], [(0, [2]), (5, [1])]]
    five = document([[n] for n in range(5)])
    assert views("conpono", five, 2) == [(0, [2, 3]), (1, [4]), (5, [1]), (6, [0])]
    long = document([LONG, LONG, LONG[::-1], LONG])
    assert views("conpono", long, 0) == [(0, (LONG + LONG)[:56]), (1, LONG[::-1][:14]), (2, LONG[:14])]


sentences = st.lists(st.lists(st.integers(5, 199), min_size=1, max_size=20), min_size=2, max_size=14)


@pytest.mark.parametrize("case", CASES)
@given(st.lists(sentences, min_size=1, max_size=4), st.integers(0, 2**32))
@settings(max_examples=25)
def test_every_example_that_is_counted_can_be_dealt(case, bodies, seed):
    draw = np.random.default_rng(seed)
    clusters = [numbered(draw.integers(0, 4, len(body))) for body in bodies]
    offsets = offsets_of(np.array([len(body) for body in bodies]))
    flat = ragged([sentence for body in bodies for sentence in body])
    every = np.array([c for part in clusters for c in part], dtype=np.int32)
    method = method_for(case)
    together = Documents(None, np.arange(len(bodies)), offsets, flat, every)  # pyright: ignore
    found, opened = method.count(together), method.open(together)
    assert found.examples.tolist() == opened.examples.tolist()
    assert found.examples.dtype == opened.examples.dtype == np.int64
    alone = [method.open(document(body, labels)) for body, labels in zip(bodies, clusters, strict=True)]
    assert found.examples.tolist() == [int(one.examples[0]) for one in alone]
    # Documents and their examples in another order, so that what is of one is not found where another's is.
    order = draw.permutation(len(bodies))
    shuffled = opened.take(order)
    everyone = [(place, n) for place, row in enumerate(order) for n in range(opened.examples[row])]
    rows, numbers = np.array(draw.permutation(everyone), np.int64).reshape(-1, 2).T
    seeds = numbers.astype(np.uint64) + np.uint64(seed)
    views = method.views(shuffled, rows, numbers, seeds)
    assert (np.diff(views.owner) >= 0).all()
    for example, (row, number) in enumerate(zip(rows.tolist(), numbers.tolist(), strict=True)):
        mine = np.flatnonzero(views.owner == example)
        texts = views.texts.take(mine)
        first = [(int(views.labels[text]), part.tolist()) for text, part in zip(mine, _rows(texts), strict=True)]
        assert first == views_of(method, alone[order[row]], number, number + seed)
        assert len(first) >= (1 if case == "tsdae" else 2)
        assert all(0 < len(text) <= method.longest for _, text in first)
        assert method.longest <= SPEC.longest


def _rows(texts):
    return np.split(texts.values, texts.offsets[1:-1])


@pytest.mark.parametrize("case", CASES)
def test_two_sentences_of_one_token(case):
    method = method_for(case)
    doc = method.open(document([[5], [6]]))
    assert doc.examples.tolist() == [1 if case in ("idc", "cpc", "declutr") else 2]
    for number in range(doc.examples[0]):
        found = views_of(method, doc, number)
        assert {token for _, text in found for token in text} <= {5, 6}
        assert all(len(text) in (1, 2) for _, text in found)


@pytest.mark.parametrize("case", CASES)
def test_which_documents_are_short(case):
    """By the least sentences, of 8 tokens, that a document has which is not short."""
    method = method_for(case)
    least = {"ict": 3, "ict sentences": 3, "cpc": 6, "declutr": 2, "conpono": 8, "conpono margin": 8}.get(case, 0)
    for size in range(2, 12):
        body = [[5] * 8] * size
        rows = Documents(None, np.arange(1), np.array([0, size]), ragged(body), np.zeros(size, np.int32))  # pyright: ignore
        assert method.count(rows).short.tolist() == [size < least], size
