"""Labelled examples: which are drawn, what they are made of, what leaks."""

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize
from transformers import AutoModel

from infocse_ray.corpus.store import Counterparts, Documents
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.methods.label_sample import LabelSample, label_hashes, leaking
from infocse_ray.methods.labelled import Labelled
from infocse_ray.sampling import draw_labels as drawn_module
from infocse_ray.sampling.draw_labels import draw
from infocse_ray.sampling.shards import Shards
from infocse_ray.storage.folder import Storage
from tests.unit.stores import SPEC, Written, write_store
from tests.unit.trainees import LABELLED, Run, annotated, document, ragged, views_of

ALL = LabelSample(0, None)
TOKENIZER = CorpusTokenizer("")
"""Of ids alone: counterparts are tokenised as sentences."""


def examples(count: int = 300) -> list[Written]:
    """Documents of every split, of which one in three has no counterpart and one in three has two."""
    splits = ["train"] * 4 + ["valid", "test"]
    return [
        Written(
            f"d{i}",
            [[5, 6], [7, i % 200]],
            (),
            [[[9, i % 250, i // 250], [8, i % 250]], [], [[10]]][i // 6 % 3],
            splits[i % 6],
        )
        for i in range(count)
    ]


@pytest.fixture
def in_process(monkeypatch):
    """Ray's tasks, done here: a task a shard."""

    def over_shards(source, work, **arguments):
        import pyarrow as pa

        for shard in range(source.shards):
            yield from work(pa.table({"shards": [[shard]]}), source=source, **arguments).to_pylist()

    monkeypatch.setattr(drawn_module, "over_shards", over_shards)


def labels_of(store, drawn):
    """The drawn examples of the train split, as (document, counterpart) keys."""
    found = set()
    for shard in range(store.shards):
        for table in store.read(shard, ["train"]):
            rows = table.to_pylist()
            pairs = [(row["key"], key) for row in rows for key in row["counterpart_keys"]]
            if pairs:
                documents, counterparts = np.array(pairs, dtype=np.int64).T
                kept = drawn.has(documents, counterparts)
                found |= {pair for pair, keep in zip(pairs, kept, strict=True) if keep}
    return found


@pytest.fixture
def store(tmp_path):
    return write_store(Storage.open(str(tmp_path)), examples(), 6)


def source_of(store):
    return Shards(store.folder / "documents", "f", store.shards, 6, ["train"], labels=True)


def drawn_of(store, size, seed):
    return LabelSample(seed, draw(source_of(store), size, seed, "drawing", TOKENIZER)["last"])


def test_smaller_draws_are_inside_larger_ones(store, in_process):
    every = labels_of(store, ALL)
    assert len(every) == store.summary["labelled"]["train"] == 200
    draws = {size: labels_of(store, drawn_of(store, size, 3)) for size in (2, 10, 50, 199, 200)}
    assert {size: len(found) for size, found in draws.items()} == {size: size for size in draws}
    assert draws[2] < draws[10] < draws[50] < draws[199] < draws[200] == every
    assert draws[50] != labels_of(store, drawn_of(store, 50, 4)), "another seed draws others"
    assert draw(source_of(store), None, 3, "drawing", TOKENIZER)["last"] is None


def test_a_draw_is_the_same_however_the_shards_are_read(store, in_process, tmp_path):
    other = write_store(Storage.open(str(tmp_path / "other")), examples()[::-1], 2)
    assert labels_of(other, drawn_of(other, 40, 0)) == labels_of(store, drawn_of(store, 40, 0))


def test_labels_are_counted_by_split(store, in_process):
    counted = draw(source_of(store), 7, 0, "drawing", TOKENIZER)
    assert counted["labelled"] == store.summary["labelled"]
    assert counted["leaks"] == {"train": 0, "valid": 0, "test": 0}


def test_a_counterpart_that_is_a_sentence_of_its_own_document_leaks():
    sentences = ragged([[1, 2], [3], [4, 5], [6]])
    labels = Counterparts(np.array([0, 0, 1, 1]), np.arange(4), ragged([[1, 2], [6], [6], [4]]))
    found = Documents(None, np.arange(2), np.array([0, 2, 4]), sentences, None, labels)  # pyright: ignore
    assert leaking(found, TOKENIZER).tolist() == [True, False, True, False], "another document's sentence is none"


def test_leaks_are_counted_by_split(tmp_path, in_process):
    documents = [
        Written(f"{split}{n}", [[5, n], [6]], (), [[5, n]], split) for split in ("train", "test") for n in range(3)
    ]
    documents += [Written("v", [[5], [6]], (), [[5, 6]], "valid")]
    source = source_of(write_store(Storage.open(str(tmp_path)), documents, 6))
    assert draw(source, 2, 0, "drawing", TOKENIZER)["leaks"] == {"train": 3, "valid": 0, "test": 3}


def labelled_document(counterparts, drawn=ALL):
    rows = ragged(counterparts)
    keys = np.arange(len(counterparts))
    labels = Counterparts(np.zeros(len(counterparts), np.int64), keys, rows)
    method = Labelled(drawn, 1.0, False, SPEC)
    return method, method.open(document([[5] * 3, [6] * 40])._replace(counterparts=labels))


def test_views_are_all_sentences_and_the_counterpart():
    method, opened = labelled_document([[7], [8] * 40, [9, 10]])
    assert opened.examples.tolist() == [3]
    body = [(0, [5] * 3), (0, [6] * SPEC.sentence_tokens)]
    assert views_of(method, opened, 1) == [*body, (2, [7]), (1, [8] * SPEC.sentence_tokens), (2, [9, 10])]
    assert [label for label, _ in views_of(method, opened, 0)] == [0, 0, 1, 2, 2]


def test_undrawn_counterparts_are_not_seen():
    keys = np.arange(40)
    hashes = label_hashes(3, np.ones(40, np.int64), keys)
    drawn = LabelSample(3, int(np.sort(hashes)[9]))
    method, opened = labelled_document([[50 + n] for n in range(40)], drawn)
    assert opened.examples.tolist() == [10]
    kept = {50 + n for n in np.flatnonzero(hashes <= drawn.last)}
    assert {token for label, text in views_of(method, opened, 4) if label for token in text} == kept


def test_counts_are_what_is_dealt(store):
    method = Labelled(LabelSample(1, 0), 1.0, False, SPEC)  # about half
    for group in range(2):
        with source_of(store).open(1) as opened:
            documents = opened.read(group)
        counted = method.count(documents).examples
        labels = documents.counterparts
        assert labels is not None
        assert counted.tolist() == method.open(documents).examples.tolist()
        assert counted.dtype == np.int64
        assert 0 < counted.sum() < len(labels.keys) or len(labels.keys) < 5


@pytest.mark.parametrize("chunk_tokens", [64, 100_000])
def test_what_is_there_to_be_known_by_is_not_encoded(tiny_encoder, tmp_path, chunk_tokens):
    run = Run(tiny_encoder, annotated(tmp_path, tiny_encoder), case=LABELLED, chunk_tokens=chunk_tokens)
    batch = run.stream.next_batch()
    known = batch.labels == 2
    assert known.any()
    prepared = run.state.prepare(batch)
    rows = torch.cat([chunk.rows for chunk in prepared.chunks])
    assert sorted(rows.tolist()) == list(range((~known).sum()))
    assert prepared.texts == (~known).sum()
    tokens = run.state.tokens(batch)
    assert (tokens[known] == 0).all()
    assert prepared.tokens == tokens.sum()
    placed = prepared.placed(torch.arange(1.0, 1 + prepared.texts)[:, None])[:, 0]
    assert (placed == 0).tolist() == known.tolist()
    for chunk in prepared.chunks:
        for row, ids in zip(chunk.rows, chunk.inputs["input_ids"], strict=True):
            text = int(np.flatnonzero(placed == 1 + row)[0])
            own = batch.texts.values[batch.texts.offsets[text] : batch.texts.offsets[text + 1]]
            assert ids[1 : 1 + len(own)].tolist() == own.tolist()


@pytest.mark.parametrize("chunk_tokens", [64, 100_000])
def test_the_document_vectors_gradient_is_that_of_a_plain_implementation(tiny_encoder, tmp_path, chunk_tokens):
    """Cached and not: the gradient of every weight, through every sentence, against text by text and autograd."""
    source = annotated(tmp_path, tiny_encoder)
    train = {"chunk_tokens": chunk_tokens, "similarity": "cosine", "temperature": 0.1}
    run = Run(tiny_encoder, source, dropout=False, case=LABELLED, **train)
    batch = run.stream.next_batch()
    assert (run.state.tokens(batch).sum() > 10 * chunk_tokens) == (chunk_tokens == 64)

    plain = AutoModel.from_pretrained(tiny_encoder).eval()
    tokenizer = run.encoder.tokenizer
    vectors = []
    for start, end in zip(batch.texts.offsets, batch.texts.offsets[1:], strict=False):
        ids = [tokenizer.cls_token_id, *batch.texts.values[start:end].tolist(), tokenizer.sep_token_id]
        vectors.append(normalize(plain(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(0), dim=0))

    def texts(example, *labels):
        return [t for t, view in enumerate(batch.labels) if batch.owner[t] == example and view in labels]

    losses = []
    count = len(batch.doc_ids)
    columns = [texts(example, 1)[0] for example in range(count)]
    for example, own in enumerate(columns):
        vector = normalize(torch.stack([vectors[t] for t in texts(example, 0)]).mean(0), dim=0)
        known = {batch.text_ids[t] for t in texts(example, 1, 2)}
        against = [own, *(column for column in columns if batch.text_ids[column] not in known)]
        scores = torch.stack([vector @ vectors[column] for column in against]) / 0.1
        losses.append(torch.logsumexp(scores, 0) - scores[0])
    assert len(losses) == 14
    loss = torch.stack(losses).mean()
    loss.backward()

    assert run.take(batch, 1).loss == pytest.approx(loss.item(), rel=1e-6)
    expected = {name: parameter.grad for name, parameter in plain.named_parameters() if parameter.grad is not None}
    found = {name: parameter.grad for name, parameter in run.encoder.backbone.named_parameters()}
    assert len(expected) > 10
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
