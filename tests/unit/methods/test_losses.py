"""Each method's loss and gradients against its paper's formula in loops, in float64, heads included."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from infocse_ray.methods.contrast import Encoded
from infocse_ray.storage.folder import Storage
from infocse_ray.train.loss import contrastive_loss
from tests.unit.stores import Written, write_annotations
from tests.unit.trainees import LABELLED, MIXED, TRAINED, method_for, stream_of

WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::bincount", "aten::_unique2", "aten::masked_select")
"""Operations whose result the host needs, or whose result's shape."""


class Text(NamedTuple):
    """A text of a batch, encoded."""

    vector: torch.Tensor
    document: str
    text: object
    """What it was before it was augmented; equal for equal texts."""
    label: int


def same_or(a, b, positive, keep_document):
    """Whether column b is no negative of row a."""
    return b.text in (a.text, positive.text) or (not keep_document and a.document == b.document)


def softmax(rows, columns, positives, temperature, keep_document=False, known=None):
    """Mean over rows of -log of the positive's share of what is left; positives are places in the columns.

    `known` has texts, of each row, that are no negatives of it.
    """
    losses = []
    for row, p, others in zip(rows, positives, known or [()] * len(rows), strict=True):
        scores = [
            row.vector @ column.vector / temperature
            for n, column in enumerate(columns)
            if n == p or not (same_or(row, column, columns[p], keep_document) or column.text in others)
        ]
        own = row.vector @ columns[p].vector / temperature
        losses.append(torch.log(torch.stack([torch.exp(score) for score in scores]).sum()) - own)
    return torch.stack(losses).mean()


def nt_xent(first, second, temperature, keep_document=False):
    """Chen et al.: each of 2n views against the 2n - 1 others."""
    views = [text._replace(vector=text.vector / text.vector.norm()) for text in first + second]
    n, losses = len(first), []
    for i, view in enumerate(views):
        partner = (i + n) % (2 * n)
        terms = []
        for j, other in enumerate(views):
            if j == partner or (j != i and not same_or(view, other, views[partner], keep_document)):
                terms.append(torch.exp(view.vector @ other.vector / temperature))
        losses.append(torch.log(torch.stack(terms).sum()) - view.vector @ views[partner].vector / temperature)
    return torch.stack(losses).mean()


def mean_of(texts):
    """Several texts of a document as one."""
    vector = sum(text.vector for text in texts) / len(texts)
    bodies = sorted(text.text for text in texts)
    return texts[0]._replace(vector=vector, text=bodies[0] if len(bodies) == 1 else tuple(bodies))


def labelled(example, *labels):
    return [text for text in example if text.label in labels]


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


def gru(head, vectors):
    """Cho et al.'s unit, as torch writes it."""
    state = torch.zeros_like(vectors[0])
    w, u, b, c = head.gru.weight_ih_l0, head.gru.weight_hh_l0, head.gru.bias_ih_l0, head.gru.bias_hh_l0
    d = len(state)
    for x in vectors:
        r, z, n = (slice(k * d, (k + 1) * d) for k in range(3))
        reset = sigmoid(w[r] @ x + b[r] + u[r] @ state + c[r])
        update = sigmoid(w[z] @ x + b[z] + u[z] @ state + c[z])
        new = torch.tanh(w[n] @ x + b[n] + reset * (u[n] @ state + c[n]))
        state = (1 - update) * new + update * state
    return state


def idc(examples, head):
    anchors = [example[0] for example in examples]
    columns = [labelled(example, 1)[0] for example in examples] + anchors
    return softmax(anchors, columns, range(len(anchors)), 1.0)


def simcse(examples, head):
    def project(text):
        vector = torch.tanh(head[0].weight @ text.vector + head[0].bias)
        return text._replace(vector=vector / vector.norm())

    first, second = ([project(example[k]) for example in examples] for k in (0, 1))
    return softmax(first, second, range(len(first)), 0.05)


def consert(examples, head):
    return nt_xent([e[0] for e in examples], [e[1] for e in examples], 0.1)


def mirror_bert(examples, head):
    return nt_xent([e[0] for e in examples], [e[1] for e in examples], 0.04)


def ict(examples, head):
    def project(text):
        x = head[0].weight @ text.vector + head[0].bias
        centred = x - x.mean()
        scaled = centred / torch.sqrt((centred**2).mean() + head[1].eps)
        return text._replace(vector=scaled * head[1].weight + head[1].bias)

    return softmax([project(e[0]) for e in examples], [project(e[1]) for e in examples], range(len(examples)), 1.0)


def ict_sentences(examples, head):
    return softmax([e[0] for e in examples], [mean_of(e[1:]) for e in examples], range(len(examples)), 1.0)


def cpc(examples, head):
    rows, columns = [], []
    for example in examples:
        context = labelled(example, 0)
        state, mean = gru(head, [text.vector for text in context]), mean_of(context).vector
        for k in (1, 2, 3):
            for target in labelled(example, k):
                rows.append(context[-1]._replace(vector=mean + head.maps[k - 1] @ state))
                columns.append(target)
    return softmax(rows, columns, range(len(rows)), 1.0, keep_document=True)


def declutr(examples, head):
    anchors = [text for example in examples for text in labelled(example, 0, 1)]
    means = [mean_of(labelled(example, 2 + a)) for example in examples for a in (0, 1)]
    return nt_xent(anchors, means, 0.05, keep_document=True)


def predicted(examples, head):
    rows, columns = [], []
    for example in examples:
        for target in example[1:]:
            vector = example[0].vector
            rows.append(example[0]._replace(vector=vector + head.maps[target.label - 1] @ vector))
            columns.append(target)
    return rows, columns


def conpono(examples, head):
    rows, columns = predicted(examples, head)
    return softmax(rows, columns, range(len(rows)), 1.0, keep_document=True)


def conpono_margin(examples, head):
    rows, columns = predicted(examples, head)
    losses = []
    for p, row in enumerate(rows):
        own = row.vector @ columns[p].vector
        behind = [
            torch.clamp(1.0 - own + row.vector @ column.vector, min=0)
            for n, column in enumerate(columns)
            if n != p and not same_or(row, column, columns[p], True)
        ]
        losses.append(torch.stack(behind).mean())
    return torch.stack(losses).mean()


def fine_tuning(examples, head):
    """Each document's mean against the counterparts of others: none that any of its own counterparts equals."""
    rows = [mean_of(labelled(example, 0)) for example in examples]
    columns = [labelled(example, 1)[0] for example in examples]
    return softmax(rows, columns, range(len(rows)), 1.0, known=texts_of(examples, 2))


def texts_of(examples, label):
    return [{text.text for text in labelled(example, label)} for example in examples]


def mixed(examples, head):
    """Anchors and documents, each against all partners, anchors and counterparts."""
    pairs, tuned = ([e for e in examples if labelled(e, label)] for label in (0, 4))
    assert len(pairs) > 2
    assert len(tuned) > 2
    anchors = [example[0] for example in pairs]
    columns = [labelled(e, 1)[0] for e in pairs] + anchors + [labelled(e, 4)[0] for e in tuned]
    rows = anchors + [mean_of(labelled(e, 3)) for e in tuned]
    positives = [*range(len(pairs)), *range(2 * len(pairs), len(columns))]
    return softmax(rows, columns, positives, 1.0, known=[()] * len(pairs) + texts_of(tuned, 5))


REFERENCES = {
    LABELLED: fine_tuning,
    MIXED: mixed,
    "idc": idc,
    "simcse": simcse,
    "consert": consert,
    "consert others": consert,
    "mirror_bert": mirror_bert,
    "ict": ict,
    "ict sentences": ict_sentences,
    "cpc": cpc,
    "declutr": declutr,
    "conpono": conpono,
    "conpono margin": conpono_margin,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Few documents, so that a batch has one several times; texts that several documents have."""
    draw = np.random.default_rng(0)
    documents = []
    for n in range(8):
        size = int(draw.integers(2, 6))
        common = [[int(draw.integers(5, 8))] * 4 for _ in range(size)]
        own = [draw.integers(10, 200, draw.integers(1, 14)).tolist() for _ in range(size)]
        body = [c if draw.random() < 0.6 else o for c, o in zip(common, own, strict=True)]
        shared = [[8 + n % 3] * 4, [8 + n % 2] * 4]
        labels = [shared[:1], [[30 + n] * 3], shared, [[40 + n, 7], *shared]][n % 4]
        documents.append(Written(f"d{n}", body, [i % 2 for i in range(size)], labels))
    # And two documents that are equal, of equal sentences and not.
    documents += [
        Written(f"{name}{n}", [[5] * 4, [token] * 4], [0, 0], [[8 + n] * 4])
        for name, token in (("e", 5), ("f", 6))
        for n in (0, 1)
    ]
    return write_annotations(Storage.open(str(tmp_path_factory.mktemp("source"))), documents, 2, 2)


def batch_of(source, case):
    """A batch as a method gets it encoded, and as a list of examples; vectors are random."""
    method = method_for(case)
    batch = stream_of(source, method, 13, 3).next_batch()
    draw = torch.Generator().manual_seed(4)
    vectors = torch.randn(len(batch.texts), 32, dtype=torch.float64, generator=draw).div(4).requires_grad_()
    owner, labels, keys = batch.owner.tolist(), batch.labels.tolist(), batch.keys
    encoded = Encoded(
        vectors,
        torch.from_numpy(keys[batch.owner]),
        torch.from_numpy(batch.owner),
        torch.from_numpy(batch.labels),
        torch.from_numpy(batch.text_ids),
        batch.labels,
    )
    examples = [[] for _ in batch.doc_ids]
    ids = batch.text_ids.tolist()
    rows = zip(ids, labels, batch.texts.offsets[:-1], batch.texts.offsets[1:], strict=True)
    counterpart, shortened = {LABELLED: (1, 2), MIXED: (4, 5)}.get(case, (None, None))
    counterparts = {i: tuple(batch.texts.values[a:b].tolist()) for i, label, a, b in rows if label == counterpart}
    for row, (start, end) in enumerate(zip(batch.texts.offsets[:-1], batch.texts.offsets[1:], strict=True)):
        body = tuple(batch.texts.values[start:end].tolist())
        if method.identity()[0] == "mirror_bert" and labels[row] == 1:
            body = examples[owner[row]][0].text  # view 1 is what view 2 was before it was masked
        if labels[row] == shortened:  # to what is left to be known by
            body = counterparts.get(ids[row])
        examples[owner[row]].append(Text(vectors[row], batch.doc_ids[owner[row]], body, labels[row]))
    return method, encoded, examples


CONTRASTED = [case for case in TRAINED if case != "tsdae"]


def head_of(method):
    torch.manual_seed(6)
    head = method.head().double()
    for parameter in head.parameters():  # away from identities and zeros
        torch.nn.init.normal_(parameter, std=0.2)
    return head


@pytest.mark.parametrize("case", CONTRASTED)
def test_loss_and_gradients_are_the_papers(source, case):
    method, encoded, examples = batch_of(source, case)
    head = head_of(method)
    asked = [encoded.vectors, *head.parameters()]
    expected = REFERENCES[case](examples, head)
    right = torch.autograd.grad(expected, asked, allow_unused=True)
    found = contrastive_loss(method.contrast(encoded, head))
    gradients = torch.autograd.grad(found, asked, allow_unused=True)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    for gradient, other in zip(gradients, right, strict=True):
        assert (gradient is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(gradient, other, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("case", CONTRASTED)
def test_the_batch_has_what_masks_are_for(source, case):
    """Without the texts' identity the loss is another, and without the documents' where they count."""
    method, encoded, _ = batch_of(source, case)
    head = head_of(method)
    whole = contrastive_loss(method.contrast(encoded, head)).item()
    owner, unique = encoded.owner, torch.arange(len(encoded.texts))
    apart = method.contrast(encoded._replace(documents=owner), head)
    texts = unique if case not in ("simcse", "consert", "consert others", "mirror_bert") else owner
    other = method.contrast(encoded._replace(texts=texts), head)
    # Of fine-tuning, columns of a row's document are its counterparts, which are masked by their texts.
    keeps = case in ("cpc", "declutr", "conpono", "conpono margin", LABELLED)
    assert math.isclose(contrastive_loss(apart).item(), whole, rel_tol=1e-9) == keeps
    assert not math.isclose(contrastive_loss(other).item(), whole, rel_tol=1e-9)


@pytest.mark.parametrize("case", CONTRASTED)
def test_no_device_is_asked_how_many_there_are(source, case):
    """What the host knows of the labels is all it needs; a GPU would be waited for, in the middle of a step."""
    method, encoded, _ = batch_of(source, case)
    head = head_of(method)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        contrastive_loss(method.contrast(encoded, head)).backward()
    assert sum(event.count for event in seen.key_averages() if event.key in WAITS) == 0


def test_no_counterpart_of_a_document_is_its_negative(source):
    """A batch has a document's other counterpart as another document's: unmasked, the loss would be another."""
    method, encoded, _ = batch_of(source, LABELLED)
    contrast = method.contrast(encoded, torch.nn.Identity())
    without = contrastive_loss(contrast._replace(besides=None)).item()
    assert not math.isclose(contrastive_loss(contrast).item(), without, rel_tol=1e-9)
