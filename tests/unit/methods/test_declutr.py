"""DeCLUTR: where spans are and how long, and which tokens are to be guessed."""

import numpy as np
import pytest
import torch
from scipy import stats

from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.declutr import DeCLUTR, Lengths
from infocse_ray.methods.mlm_head import MaskedLanguageModel
from infocse_ray.settings import DeCLUTRSettings
from tests.unit.stores import SPEC
from tests.unit.trainees import Run, annotated, document, ragged


def declutr(spec: EncoderSpec = SPEC, **section) -> DeCLUTR:
    return DeCLUTR(DeCLUTRSettings(**section), spec)


ROOMY = SPEC._replace(longest=510)


def spans_of(method, tokens, draws):
    """Spans of documents of so many tokens, so often drawn: of each anchor, and its positives."""
    begins, lengths = method.spans(np.full(draws, tokens), np.arange(draws, dtype=np.uint64))
    both = np.stack([begins, begins + lengths], axis=2)
    count, several = method.section.anchors, method.section.positives
    mine = [slice(count + a * several, count + (a + 1) * several) for a in range(count)]
    return [(tuple(row[a].tolist()), row[mine[a]].tolist()) for row in both for a in range(count)]


def test_lengths_follow_the_beta_distributions():
    method = declutr(ROOMY, max_tokens=500)
    found = spans_of(method, 5000, 1500)
    for lengths, (a, b) in (
        ([end - begin for (begin, end), _ in found], (4, 2)),
        ([end - begin for _, positives in found for begin, end in positives], (2, 4)),
    ):
        assert min(lengths) >= 32
        assert max(lengths) <= 500
        # Lengths are whole: half a token more is the middle of what was cut off.
        share = (np.array(lengths) + 0.5 - 32) / (500 - 32)
        assert stats.kstest(share, stats.beta(a, b).cdf).pvalue > 1e-3
        assert stats.kstest(share, stats.beta(b, a).cdf).pvalue < 1e-9


@pytest.mark.parametrize("tokens", [2, 3, 7, 63, 64, 200, 5000])
def test_spans_lie_in_the_document_and_positives_near_their_anchor(tokens):
    method = declutr(ROOMY, max_tokens=100)
    found = spans_of(method, tokens, 300)
    apart = overlap = inside = 0
    for n, ((begin, end), positives) in enumerate(found):
        # Each anchor is in a part of the document of its own.
        assert (n % 2) * tokens // 2 <= begin < end <= (n % 2 + 1) * tokens // 2
        assert len(positives) == 2
        for first, last in positives:
            assert 0 <= first < last <= tokens
            assert first <= end
            assert last >= begin
            apart += first == end or last == begin
            inside += begin <= first and last <= end
            overlap += first < begin < last or first < end < last
    assert inside
    if tokens > 60:
        assert apart
        assert overlap
    starts = [first - begin for (begin, _), positives in found for first, _ in positives]
    assert len(set(starts)) > (20 if tokens > 60 else 1)


def test_a_positive_may_begin_wherever_it_meets_its_anchor():
    """All of the places are as likely."""
    method = declutr(ROOMY, anchors=1, min_tokens=10, max_tokens=10)
    found = spans_of(method, 200, 3000)
    offsets = [first - begin for (begin, end), positives in found for first, _ in positives if 10 < begin < end < 190]
    assert set(offsets) == set(range(-10, 11))
    assert stats.chisquare(np.unique(offsets, return_counts=True)[1]).pvalue > 1e-3


def test_lengths_in_short_documents():
    shortest, longest = Lengths(32, 512).within(np.array([2048, 2047, 256, 100, 2]), 2)
    assert shortest.tolist() == [32, 32, 32, 12, 1]
    assert longest.tolist() == [512, 511, 64, 25, 1]


def test_views_are_anchors_then_positives():
    method = declutr(min_tokens=3, max_tokens=6)
    both = document([[9], [8]])._replace(offsets=np.array([0, 1, 2]), keys=np.array([1, 2]))
    values = [np.arange(100, 130), np.arange(200, 230)]
    both = both._replace(sentences=ragged([part.tolist() for part in values]))
    opened, seeds = method.open(both), np.array([7, 8], np.uint64)
    begins, lengths = method.spans(np.array([30, 30]), seeds)
    views = method.views(opened, np.array([1, 0]), np.array([0, 0]), seeds)
    assert views.owner.tolist() == [0] * 6 + [1] * 6
    assert views.labels.tolist() == [0, 1, 2, 2, 3, 3] * 2
    expected = [
        values[1 - n][begin : begin + size].tolist()
        for n in range(2)
        for begin, size in zip(begins[n], lengths[n], strict=True)
    ]
    assert [part.tolist() for part in np.split(views.texts.values, views.texts.offsets[1:-1])] == expected
    assert method.open(document([[1]])).examples.tolist() == [0]
    assert method.open(document([[1], [2]])).examples.tolist() == [1]


SPECIAL = 4  # ids 0..4 of the lexicon are special, 4 is the mask


def masked(method, rows, labels, seed=0, width=None):
    """Input ids before, after, and what is to be guessed, for rows with special tokens around them."""
    width = width or max(len(row) for row in rows) + 2
    ids = torch.zeros(len(rows), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for n, row in enumerate(rows):
        ids[n, : len(row) + 2] = torch.tensor([2, *row, 3])
        mask[n, : len(row) + 2] = 1
    seeds = np.arange(len(rows), dtype=np.uint64) + np.uint64(seed)
    before = ids.clone()
    found = method.inputs(ids, mask, np.array(labels), seeds)
    assert torch.equal(ids, before)
    return before, found["input_ids"], found["mlm_labels"]


def test_masked_tokens():
    draw = np.random.default_rng(0)
    rows = [draw.integers(5, 200, draw.integers(30, 60)).tolist() for _ in range(600)]
    for row in rows:
        row[3] = 1  # an unknown token among the real ones
    before, after, mlm_labels = masked(declutr(), rows, [n % 2 for n in range(600)])
    ordinary = before > SPECIAL
    chosen = mlm_labels >= 0
    assert not chosen[~ordinary].any()
    assert (mlm_labels[~chosen] == -100).all()
    assert torch.equal(mlm_labels[chosen], before[chosen])
    assert torch.equal(after[~chosen], before[~chosen])
    tokens, guesses = int(ordinary.sum()), int(chosen.sum())
    assert stats.binomtest(guesses, tokens, 0.15).pvalue > 1e-3
    hidden = after[chosen] == 4
    # One swap in 200 is for the mask, one for the token itself.
    assert stats.binomtest(int(hidden.sum()), guesses, 0.8 + 0.1 / 200).pvalue > 1e-3
    left = after[chosen] == before[chosen]
    assert stats.binomtest(int(left.sum()), guesses, 0.1 + 0.1 / 200).pvalue > 1e-3
    swapped = after[chosen][~hidden & ~left]
    assert 0 <= swapped.min() < 20
    assert 180 < swapped.max() < 200


def test_a_prompt_is_never_masked():
    method = declutr(SPEC._replace(around=(4, 2)), mask=0.99)
    before, after, mlm_labels = masked(method, [[7] * 40, [8] * 20], [0, 1])
    lengths = (before > 0).sum(1).tolist()
    for row, length in enumerate(lengths):
        chosen = torch.nonzero(mlm_labels[row] >= 0).flatten()
        assert chosen.min() >= 4
        assert chosen.max() < length - 2
        assert torch.equal(after[row, :4], before[row, :4])


def test_positives_are_never_masked():
    rows = [[7] * 40] * 6
    before, after, mlm_labels = masked(declutr(mask=0.9), rows, [0, 2, 1, 3, 2, 2])
    assert torch.equal(after[[1, 3, 4, 5]], before[[1, 3, 4, 5]])
    assert (mlm_labels[[1, 3, 4, 5]] == -100).all()
    assert ((mlm_labels[[0, 2]] >= 0).sum(1) > 30).all()
    assert declutr(mask=0.9).inputs(before, torch.ones_like(before), np.full(6, 2), np.zeros(6, np.uint64)) == {}
    assert declutr(mask=0.0).inputs(before, torch.ones_like(before), np.zeros(6, int), np.zeros(6, np.uint64)) == {}


def test_padding_changes_no_mask():
    rows = [[7 + n] * 30 for n in range(5)]
    narrow, wide = (masked(declutr(), rows, [0] * 5, width=width) for width in (32, 50))
    for a, b in zip(narrow, wide, strict=True):
        assert torch.equal(a, b[:, :32])


def test_an_encoder_without_a_mask_token_is_refused():
    with pytest.raises(ValueError, match=r"declutr\.mask.*no mask token.*set declutr\.mask to 0") as error:
        declutr(SPEC._replace(mask=None))
    assert "\n" not in str(error.value)
    assert declutr(SPEC._replace(mask=None), mask=0.0).head().state_dict() == {}


def test_the_loss_of_guessing_is_added(tiny_encoder, tmp_path):
    """The step's loss is that without guesses, on the same anchors, and the mean cross entropy of all guesses."""
    source = annotated(tmp_path, tiny_encoder, 12)
    losses = {}
    for chunk_tokens in (64, 100_000):
        run = Run(tiny_encoder, source, dropout=False, case="declutr", batch_size=6, chunk_tokens=chunk_tokens)
        batch = run.stream.next_batch()
        chunks = run.state.chunks(batch, run.state.memory.tokens)
        assert (len(chunks) > 1) == (chunk_tokens == 64)
        head, bert = run.state.head, run.encoder.backbone
        entropies = []
        with torch.inference_mode():
            for chunk in chunks:
                mlm_labels = chunk.inputs.get("mlm_labels")
                if mlm_labels is None:
                    continue
                hidden = bert(chunk.inputs["input_ids"], chunk.inputs["attention_mask"]).last_hidden_state
                for row, place in (mlm_labels >= 0).nonzero().tolist():
                    x = torch.nn.functional.gelu(head.dense(hidden[row, place]))
                    scores = bert.embeddings.word_embeddings.weight @ head.norm(x) + head.bias
                    entropies.append(torch.logsumexp(scores, 0) - scores[mlm_labels[row, place]])
        assert len(entropies) > 10
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("infocse_ray.train.step._token_loss", lambda *_: None)
            other = Run(tiny_encoder, source, dropout=False, case="declutr", batch_size=6, chunk_tokens=chunk_tokens)
            contrast = other.take(batch, 1).loss
        losses[chunk_tokens] = run.take(batch, 1).loss
        assert losses[chunk_tokens] == pytest.approx(contrast + float(sum(entropies) / len(entropies)), rel=1e-5)
    assert losses[64] == pytest.approx(losses[100_000], rel=1e-5)


def test_more_embeddings_than_tokens():
    """The rows that no token has are no answer."""
    head = MaskedLanguageModel(32, 32, 200)
    states, tokens = torch.randn(6, 32), torch.arange(5, 11)
    embeddings = torch.randn(256, 32)
    assert torch.equal(head.mlm_loss(states, tokens, embeddings), head.mlm_loss(states, tokens, embeddings[:200]))


def test_the_head_goes_on_where_a_batch_has_nothing_to_guess(tiny_encoder, tmp_path, monkeypatch):
    """As it does with many workers, where it has a gradient, averaged, in any case."""
    run = Run(tiny_encoder, annotated(tmp_path, tiny_encoder, 12), case="declutr", batch_size=6)
    run.next()
    before = run.weights()
    monkeypatch.setattr("infocse_ray.train.step._token_loss", lambda *_: None)
    run.next()
    assert all(not p.grad.any() for p in run.state.head.parameters())
    assert any(not torch.equal(t, before[name]) for name, t in run.weights().items() if name.startswith("head."))
