"""Scoring on a small token store: one worker against brute force, two workers against one."""

import numpy as np
import pytest
import torch

from infocse_ray.corpus.schema import stable_hash
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.retrieval import documents as reading_documents
from infocse_ray.retrieval import held_out, validation
from infocse_ray.retrieval import scores as all_scores
from infocse_ray.retrieval.validation import questions_for, score, score_under
from infocse_ray.settings import Encoder
from infocse_ray.storage.folder import Storage
from tests.unit.group import on_workers
from tests.unit.stores import Written, opened, write_store

SHARDS = 4


def sentence(draw):
    return draw.integers(7, 60, draw.integers(3, 9)).tolist()


@pytest.fixture(scope="module")
def documents():
    draw = np.random.default_rng(0)
    texts = [sentence(draw) for _ in range(25)]  # odd: sharers are on different workers
    made = []
    for i in range(60):
        split = ("train", "valid", "test")[i % 3]
        # Some share a counterpart, some of them across splits and shards; every seventh has none, some have several.
        counterparts = [texts[(i + 4 * j) % 25] for j in range(0 if i % 7 == 0 else 1 + i % 4 // 2 * (i % 3))]
        made.append(Written(f"d{i}", [sentence(draw) for _ in range(draw.integers(2, 6))], (), counterparts, split))
    return made


@pytest.fixture(scope="module")
def store(documents, tmp_path_factory):
    return write_store(Storage.open(str(tmp_path_factory.mktemp("store"))), documents, SHARDS)


def load(folder, cosine=False):
    return load_encoder(folder, Encoder(model=str(folder), max_length=16), cosine)


def vector(encoder, tokens, longest=16):
    """One text's vector, encoded alone."""
    ids = torch.tensor([[*encoder.prefix, *tokens[: longest - 2], *encoder.suffix]])
    with torch.inference_mode():
        return encoder(ids, torch.ones_like(ids))[0].double()


def mean(encoder, sentences, reading="sentences"):
    found = torch.stack([vector(encoder, s) for s in sentences]).mean(0)
    found = found / found.norm() if encoder.normalize else found
    whole = vector(encoder, [token for s in sentences for token in s], encoder.max_seq_length)
    found = {"sentences": found, "whole": whole, "both": (found + whole) / 2}[reading]
    return found / found.norm() if encoder.normalize else found


def brute_force(encoder, documents, on, reading="sentences"):
    """Rank of every question of the validation documents, by the document's id and the true candidate's name."""
    asking = [d for d in documents if d.split == "valid"]
    if on == "halves":
        candidates = {d.doc_id: mean(encoder, d.sentences[1::2]) for d in asking}
        truth = {d.doc_id: [d.doc_id] for d in asking}
        queries = {d.doc_id: mean(encoder, d.sentences[::2]) for d in asking}
    elif on == "readings":
        candidates = {d.doc_id: mean(encoder, d.sentences) for d in asking}
        truth = {d.doc_id: [d.doc_id] for d in asking}
        queries = {d.doc_id: mean(encoder, d.sentences, "whole") for d in asking}
    else:
        candidates = {repr(c): mean(encoder, [c]) for d in documents for c in d.counterparts}
        truth = {d.doc_id: [repr(c) for c in d.counterparts] for d in asking}
        queries = {d.doc_id: mean(encoder, d.sentences, reading) for d in asking}
    ranks = {}
    for name, query in queries.items():
        for true in truth[name]:
            # What a rounding error in fp32 may make equal is a tie.
            bar = query @ candidates[true] - 16 * torch.finfo().eps * query.norm() * candidates[true].norm()
            others = [c for key, c in candidates.items() if key not in truth[name]]
            ranks[name, stable_hash(true)] = 1 + sum(bool(query @ c >= bar) for c in others)
    return ranks, len(candidates)


def by_question(questions, found):
    keys = questions.true_keys.tolist()
    return dict(zip(zip(questions.doc_ids, keys, strict=True), found.ranks.tolist(), strict=True))


@pytest.mark.parametrize(("cosine", "at_once"), [(False, 16_384), (True, 16_384), (False, 7)])
@pytest.mark.parametrize("on", ["counterpart", "halves", "readings"])
def test_ranks_equal_brute_force(tiny_encoder, store, documents, on, cosine, at_once, monkeypatch):
    for room in (validation, all_scores):
        monkeypatch.setattr(room, "SENTENCES_AT_ONCE", at_once)
    encoder = load(tiny_encoder, cosine)
    questions = questions_for(store, "valid", on)
    found = score(encoder, questions)
    expected, candidates = brute_force(encoder, documents, on)
    assert by_question(questions, found) == expected
    assert found.metrics["candidates"] == candidates
    assert (
        found.metrics["queries"]
        == len(expected)
        == store.summary["labelled" if on == "counterpart" else "documents"]["valid"]
    )
    assert found.metrics["mrr"] == pytest.approx(np.mean([1 / r for r in expected.values()]))
    assert len(set(expected.values())) > (1 if on == "readings" else 3)


@pytest.mark.parametrize("reading", ["whole", "both"])
@pytest.mark.parametrize(("cosine", "at_once"), [(False, 16_384), (True, 16_384), (True, 7)])
def test_documents_are_read_whole_or_both_ways(tiny_encoder, store, documents, cosine, at_once, reading, monkeypatch):
    for room in (validation, all_scores):
        monkeypatch.setattr(room, "SENTENCES_AT_ONCE", at_once)
    encoder = load(tiny_encoder, cosine)
    encoder.max_seq_length = 20  # some documents are cut
    lengths = [sum(map(len, d.sentences)) for d in documents]
    assert min(lengths) < 18 < max(lengths)
    questions = questions_for(store, "valid", "counterpart", reading=reading)
    found = by_question(questions, score(encoder, questions))
    assert found == brute_force(encoder, documents, "counterpart", reading)[0]
    assert found != brute_force(encoder, documents, "counterpart")[0]
    assert encoder.max_length == 16, "as it was before"


@pytest.mark.parametrize("on", ["halves", "sentence", "readings"])
def test_without_labels_sentences_ask_whatever_the_reading(tiny_encoder, store, on):
    encoder = load(tiny_encoder)
    asked = [questions_for(store, "valid", on, reading=reading) for reading in ("sentences", "whole", "both")]
    assert len({tuple(score(encoder, one).ranks) for one in asked}) == 1


def test_a_document_of_several_counterparts_asks_for_each_and_is_embedded_once(tiny_encoder, tmp_path):
    # The three counterparts are the document's own sentences: no other candidate comes near them.
    own = [[7, 20, 31], [8, 21, 30], [9, 22, 29]]
    documents = [Written("several", own, (), own, "valid"), Written("none", own, (), (), "valid")]
    documents += [Written(f"d{i}", [[40 + i], [50 + i]], (), [[40 + i, 41]], "test") for i in range(9)]
    store = write_store(Storage.open(str(tmp_path)), documents, 2)
    questions = questions_for(store, "valid", "counterpart")
    assert store.summary["labelled"]["valid"] == len(questions.doc_ids) == 3
    assert set(questions.doc_ids) == {"several"}
    assert sorted(questions.true_keys.tolist()) == sorted(stable_hash(repr(c)) for c in own)
    assert len(questions.documents.offsets) - 1 == 1
    found = score(load(tiny_encoder, cosine=True), questions)
    assert (found.metrics["queries"], found.metrics["candidates"]) == (3, 12)
    # Unfiltered, two of the three would stand behind a sibling.
    assert found.ranks.tolist() == [1, 1, 1]
    assert found.top_keys[:, 0].tolist() == questions.true_keys.tolist()


def test_a_counterpart_of_two_documents_is_one_candidate(tiny_encoder, tmp_path):
    documents = [
        Written(f"d{i}", [[7 + i, 20], [8 + i, 21]], (), [[30, 31] if i < 3 else [30 + i, 40]], "valid")
        for i in range(5)
    ]
    store = write_store(Storage.open(str(tmp_path)), documents, 2)
    questions = questions_for(store, "valid", "counterpart")
    assert len(questions.candidate_keys) == len(set(questions.candidate_keys.tolist())) == 3
    assert score(load(tiny_encoder), questions).metrics["candidates"] == 3


def test_max_candidates_are_those_of_the_first_documents_and_what_is_asked_for(
    tiny_encoder, documents, tmp_path, monkeypatch
):
    store = write_store(Storage.open(str(tmp_path)), documents, SHARDS, by_key=True)
    there = sum(store.summary["labelled"].values())
    everyone = questions_for(store, "valid", "counterpart")
    few = questions_for(store, "valid", "counterpart", max_candidates=there // 4)
    limit = validation.key_limit(there, there // 4)
    drawn = {stable_hash(repr(c)) for d in documents if stable_hash(d.doc_id) < limit for c in d.counterparts}
    found, of_all = set(few.candidate_keys.tolist()), set(everyone.candidate_keys.tolist())
    assert found == drawn | set(few.true_keys.tolist()) < of_all
    assert few.true_keys.tolist() == everyone.true_keys.tolist()
    encoder = load(tiny_encoder)
    fewer, all_ranks = score(encoder, few), score(encoder, everyone)
    assert (fewer.ranks <= all_ranks.ranks).all()
    assert fewer.metrics["candidates"] == len(few.candidate_keys)
    assert validation.candidate_bound(store, "counterpart", there) is None
    assert validation.candidate_bound(store, "sentence", 1) is None
    assert validation.candidate_bound(store, "counterpart", there - 1) == there - 1
    # With few questions, too, the shards without a drawn document aren't opened.
    asked = lambda: questions_for(store, "valid", "counterpart", 1, max_candidates=1)  # noqa: E731
    assert opened(monkeypatch, asked) == {0}


def test_max_documents_takes_about_that_many_the_same_ones(documents, tmp_path, monkeypatch):
    store = write_store(Storage.open(str(tmp_path)), documents, SHARDS, by_key=True)
    assert opened(monkeypatch, lambda: questions_for(store, "valid", "halves")) == set(range(SHARDS))
    assert opened(monkeypatch, lambda: questions_for(store, "valid", "halves", 5)) == {0}, "of 20 in 4 shards"
    everyone = questions_for(store, "valid", "halves")
    assert questions_for(store, "valid", "halves", 20).doc_ids == everyone.doc_ids
    few = questions_for(store, "valid", "halves", 10)
    assert 4 <= len(few.doc_ids) <= 16
    fewer = questions_for(store, "valid", "halves", 5)
    assert set(fewer.doc_ids) < set(few.doc_ids) < set(everyone.doc_ids)
    # Only queries are fewer; the candidates stay all.
    all_candidates = questions_for(store, "valid", "counterpart").candidate_keys
    some = questions_for(store, "valid", "counterpart", 5)
    assert some.candidate_keys.tolist() == all_candidates.tolist()
    assert 0 < len(some.doc_ids) < len(everyone.doc_ids)


@pytest.mark.parametrize("at_once", [16_384, 7])
@pytest.mark.parametrize(
    ("on", "reading"),
    [
        ("halves", "sentences"),
        ("sentence", "sentences"),
        ("readings", "sentences"),
        *(("counterpart", r) for r in ("sentences", "whole", "both")),
    ],
)
def test_several_maps_score_as_each_alone(tiny_encoder, store, on, at_once, reading, monkeypatch):
    for room in (validation, all_scores, held_out):
        monkeypatch.setattr(room, "SENTENCES_AT_ONCE", at_once)
    encoder, draw = load(tiny_encoder), torch.Generator().manual_seed(0)
    maps = [None, *(Whitening(torch.randn(32, generator=draw), torch.randn(32, d, generator=draw), 1) for d in (32, 5))]
    questions = questions_for(store, "valid", on, reading=reading)
    together = score_under(encoder, maps, questions, top=3)
    for one, found in zip(maps, together, strict=True):
        encoder.whitening = one
        alone = score(encoder, questions, top=3)
        assert found.metrics == alone.metrics
        assert found.ranks.tolist() == alone.ranks.tolist()
        assert found.top_keys.tolist() == alone.top_keys.tolist()
    assert len({tuple(found.ranks) for found in together}) == 3


def test_candidates_of_one_block_are_embedded_once_for_all_maps(tiny_encoder, store, monkeypatch):
    encoder, sizes = load(tiny_encoder), []
    embed = reading_documents.embed

    def counted(encoder, tokens, **role):
        sizes.append(len(tokens))
        return embed(encoder, tokens, **role)

    monkeypatch.setattr(reading_documents, "embed", counted)
    questions = questions_for(store, "valid", "counterpart")
    score_under(encoder, [None, Whitening(torch.zeros(32), torch.eye(32), 0)], questions)
    asked = [questions.documents, questions.true, questions.candidates]
    assert sizes == [len(groups.sentences) for groups in asked]


def test_no_document_to_validate_on(tiny_encoder, store):
    with pytest.raises(ValueError, match="no document to validate on"):
        score(
            load(tiny_encoder), questions_for(store._replace(summary=store.summary | {"shards": 0}), "valid", "halves")
        )


def scored(folder, stores, at_once=16_384):
    for room in (validation, all_scores):
        setattr(room, "SENTENCES_AT_ONCE", at_once)  # noqa: B010
    encoder = load(folder)
    found = []
    for store in stores:
        for on in ("counterpart", "halves", "readings"):
            questions = questions_for(store, "valid", on)
            scores = score(encoder, questions)
            found.append((scores.metrics, by_question(questions, scores)))
    return found


def test_two_workers_score_as_one(tiny_encoder, store, documents, tmp_path):
    # In the second store all documents, and so all candidates, are on one worker.
    stores = [store, write_store(Storage.open(str(tmp_path)), documents[:9], 1)]
    alone = scored(tiny_encoder, stores)
    first, second = on_workers(2, scored, tiny_encoder, stores)
    # In blocks, of which one worker has more than the other.
    assert on_workers(2, scored, tiny_encoder, stores, 3) == [first, second]
    on_workers(2, scored, tiny_encoder, [])  # these workers serve other tests
    for (metrics, ranks), (mine, part), (theirs, rest) in zip(alone, first, second, strict=True):
        assert mine == theirs == metrics
        assert part | rest == ranks
        assert not part.keys() & rest.keys()
    assert first[0][1]
    assert second[0][1]
    assert not second[len(second) // 2][1], "the second store is the other's"
