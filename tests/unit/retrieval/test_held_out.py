"""Documents asking for their own sentences: against a slow plain version, on one worker and on three."""

from collections import Counter

import numpy as np
import pytest
import torch

from infocse_ray.encoder.load import load_encoder
from infocse_ray.retrieval import held_out as module
from infocse_ray.retrieval import scores as all_scores
from infocse_ray.retrieval.held_out import MOST, HeldOut, held_out_for, score_held_out
from infocse_ray.retrieval.validation import questions_for, score
from infocse_ray.settings import Encoder
from infocse_ray.storage.folder import Storage
from tests.unit.group import on_workers
from tests.unit.stores import Written, opened, write_store

SHARDS = 6
BOILERPLATE = [[7, 8, 9], [10, 11, 12, 13], [14, 15]]
LONG = list(range(7, 27))


def sentence(draw):
    return draw.integers(7, 60, draw.integers(3, 9)).tolist()


@pytest.fixture(scope="module")
def documents():
    draw = np.random.default_rng(1)
    made = []
    for i in range(60):
        sentences = [sentence(draw) for _ in range(draw.integers(2, 9))]
        if i % 4 == 0:  # in many documents, at times held out in one and part of the mean in another
            sentences += BOILERPLATE[: 1 + i % 5 % 3]
        if i % 5 == 0:
            sentences.append(sentences[0])
        if i % 7 == 0:  # alike as far as the encoder sees, yet other texts
            sentences.append([*LONG, 30 + i // 7])
        made.append(Written(f"d{i}", sentences, split="test" if i % 4 == 3 else "valid"))
    # Two that ask nothing, two of two sentences, of which one has one text twice.
    made += [Written("copies", [[20, 21]] * 3, split="valid"), Written("pair of copies", [[22]] * 2, split="valid")]
    made += [Written("short", [[23, 24, 25], [26, 27]], split="valid"), Written("a, a, b", [[40], [40], [41, 42]])]
    return [*made[:-1], made[-1]._replace(split="valid")]


@pytest.fixture(scope="module")
def store(documents, tmp_path_factory):
    return write_store(Storage.open(str(tmp_path_factory.mktemp("store"))), documents, SHARDS)


def load(folder, cosine=False):
    return load_encoder(folder, Encoder(model=str(folder), max_length=16), cosine)


def vector(encoder, tokens):
    """One sentence's vector, encoded alone."""
    ids = torch.tensor([[*encoder.prefix, *tokens[: 16 - 2], *encoder.suffix]])
    with torch.inference_mode():
        return encoder(ids, torch.ones_like(ids))[0].double().numpy()


def slow_ranks(documents, drawn, vector_of, normalize):
    """Rank of every drawn (document, sentence number), and how many candidates there are."""
    texts = {d.doc_id: [tuple(s) for s in d.sentences] for d in documents}
    candidates = {texts[doc_id][number] for doc_id, number in drawn}
    vectors = {text: vector_of(text) for doc_id in texts for text in texts[doc_id]}
    ranks = {}
    for doc_id, number in drawn:
        rest = [vectors[text] for place, text in enumerate(texts[doc_id]) if place != number]
        query = np.mean(rest, axis=0)
        if normalize:
            query = query / np.linalg.norm(query)
        true = vectors[texts[doc_id][number]]
        # What a rounding error in fp32 may make equal is a tie.
        bar = query @ true - 16 * np.finfo(np.float32).eps * np.linalg.norm(query) * np.linalg.norm(true)
        others = [vectors[text] for text in candidates if text not in texts[doc_id]]
        ranks[doc_id, number] = 1 + sum(bool(query @ other >= bar) for other in others)
    return ranks, len(candidates)


def by_question(held, found):
    return dict(zip(zip(held.doc_ids, held.question_keys.tolist(), strict=True), found.ranks.tolist(), strict=True))


def expected(ranks, candidates):
    found = {f"recall@{k}": np.mean([r <= k for r in ranks.values()]) for k in (5, 10, 20)}
    return found | {"mrr": np.mean([1 / r for r in ranks.values()]), "queries": len(ranks), "candidates": candidates}


@pytest.mark.parametrize(("cosine", "at_once"), [(False, 16_384), (True, 16_384), (True, 11)])
def test_ranks_equal_the_slow_version(tiny_encoder, store, documents, cosine, at_once, monkeypatch):
    for room in (module, all_scores):
        monkeypatch.setattr(room, "SENTENCES_AT_ONCE", at_once)
    encoder = load(tiny_encoder, cosine)
    held = held_out_for(store, "valid", seed=3)
    drawn = list(zip(held.doc_ids, held.question_keys.tolist(), strict=True))
    asking = [d for d in documents if d.split == "valid"]
    ranks, candidates = slow_ranks(asking, drawn, lambda text: vector(encoder, text), cosine)
    vectors = held.embed(encoder)
    assert vectors.shape == (len(held.sentences), 32)
    assert vectors.dtype == torch.float32
    for found in ([score_held_out(vectors, held)] if cosine else []) + [score(encoder, held)]:
        assert by_question(held, found) == ranks
        wanted = expected(ranks, candidates)
        assert {name: found.metrics[name] for name in wanted} == pytest.approx(wanted)
    assert len(set(ranks.values())) > 5
    # The texts that are alike as far as the encoder sees are ties, and count against each other.
    assert candidates < len(drawn)


def test_any_map_of_the_vectors_can_be_scored(tiny_encoder, store, documents):
    encoder = load(tiny_encoder, cosine=True)
    held = held_out_for(store, "valid", seed=3)
    matrix = np.random.default_rng(0).normal(size=(32, 5))

    def mapped(text):
        out = vector(encoder, text) @ matrix
        return out / np.linalg.norm(out)

    vectors = torch.nn.functional.normalize(held.embed(encoder) @ torch.from_numpy(matrix).float(), dim=-1)
    drawn = list(zip(held.doc_ids, held.question_keys.tolist(), strict=True))
    ranks, _ = slow_ranks([d for d in documents if d.split == "valid"], drawn, mapped, True)
    assert by_question(held, score_held_out(vectors, held)) == ranks


def drawn_of(held):
    found = {}
    for doc_id, number in zip(held.doc_ids, held.question_keys.tolist(), strict=True):
        found.setdefault(doc_id, []).append(number)
    return found


def test_which_sentences_are_held_out(store, documents, tmp_path):
    drawn = drawn_of(held_out_for(store, "valid", seed=3))
    for document in documents:
        texts = [tuple(s) for s in document.sentences]
        once = [i for i, text in enumerate(texts) if Counter(texts)[text] == 1]
        mine = drawn.get(document.doc_id, [])
        assert len(mine) == (min(MOST, len(once)) if document.split == "valid" else 0)
        assert set(mine) <= set(once)
    assert "copies" not in drawn
    assert drawn["a, a, b"] == [2]
    assert drawn["short"] == [0, 1]
    assert len({n for numbers in drawn.values() for n in numbers}) > MOST, "not always the first"
    # By seed and document alone: neither other documents nor shards matter.
    fewer = write_store(Storage.open(str(tmp_path)), documents[20:], 2)
    again = drawn_of(held_out_for(fewer, "valid", seed=3))
    assert again == {d.doc_id: drawn[d.doc_id] for d in documents[20:] if d.doc_id in drawn}
    assert drawn_of(held_out_for(store, "valid", seed=4)) != drawn


def test_max_documents_takes_about_that_many_the_same_ones(documents, tmp_path, monkeypatch):
    store = write_store(Storage.open(str(tmp_path)), documents, SHARDS, by_key=True)
    assert opened(monkeypatch, lambda: held_out_for(store, "valid", 3)) == set(range(SHARDS))
    assert opened(monkeypatch, lambda: held_out_for(store, "valid", 3, max_documents=20)) == {0, 1, 2}, "of 49"
    assert opened(monkeypatch, lambda: held_out_for(store, "valid", 3, 20, shards=[2, 3])) == {2}
    everyone = drawn_of(held_out_for(store, "valid", 3))
    few = drawn_of(held_out_for(store, "valid", 3, max_documents=20))
    assert 10 <= len(few) <= 30
    assert few.items() < everyone.items()


def test_texts_of_the_own_document_are_no_mistake_to_find(tiny_encoder, tmp_path):
    # Each document's rest is nothing but sentences that the other one holds out.
    a, b, c = [20, 21, 22], [23, 24, 25], [26, 27, 28]
    documents = [Written("one", [a, b, c], split="valid"), Written("two", [a, b, c, [50, 51]], split="valid")]
    held = held_out_for(write_store(Storage.open(str(tmp_path)), documents, 1), "valid", 0)
    found = score(load(tiny_encoder, cosine=True), held)
    assert found.metrics["candidates"] == 4
    one = [rank for doc_id, rank in zip(held.doc_ids, found.ranks.tolist(), strict=True) if doc_id == "one"]
    assert len(one) == 3
    assert max(one) <= 2, "only [50, 51] is of another document"
    assert found.ranks.tolist()[3:] == [1, 1, 1, 1]


def test_nothing_to_ask(tiny_encoder, tmp_path):
    store = write_store(Storage.open(str(tmp_path)), [Written("d", [[7], [7]], split="valid")], 2)
    with pytest.raises(ValueError, match="no document to validate on"):
        score(load(tiny_encoder), held_out_for(store, "valid", 0))


def scored(folder, stores, at_once=16_384):
    for room in (module, all_scores):
        setattr(room, "SENTENCES_AT_ONCE", at_once)  # noqa: B010
    encoder = load(folder, cosine=True)
    found = []
    for store in stores:
        held = questions_for(store, "valid", "sentence", seed=3)
        assert isinstance(held, HeldOut)
        scores = score(encoder, held)
        whole = score_held_out(held.embed(encoder), held)
        assert whole.metrics == scores.metrics
        assert whole.ranks.tolist() == scores.ranks.tolist()
        found.append((scores.metrics, by_question(held, scores)))
    return found


def test_three_workers_score_as_one(tiny_encoder, store, documents, tmp_path):
    # In the second store one worker has every document.
    stores = [store, write_store(Storage.open(str(tmp_path)), documents[:20], 1)]
    alone = scored(tiny_encoder, stores)
    three = on_workers(3, scored, tiny_encoder, stores)
    assert on_workers(3, scored, tiny_encoder, stores, 7) == three
    on_workers(3, scored, tiny_encoder, [])  # these workers serve other tests
    for number, (metrics, ranks) in enumerate(alone):
        shares = [found[number][1] for found in three]
        assert [found[number][0] for found in three] == [metrics] * 3
        assert {question: rank for share in shares for question, rank in share.items()} == ranks
        assert sum(map(len, shares)) == len(ranks)
    assert all(len(found[0][1]) > 10 for found in three)
    assert not three[2][1][1]
