"""The contrastive loss against Eq. 1 in loops, and its gradients across workers against one worker's."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from infocse_ray.distributed import collectives as collective
from infocse_ray.methods.contrast import Contrast, Side, own
from infocse_ray.train import loss as loss_module
from infocse_ray.train.loss import Reference, contrastive_loss
from tests.unit.group import on_workers


class Ids(NamedTuple):
    """Of pairs."""

    document: torch.Tensor
    anchor: torch.Tensor
    positive: torch.Tensor


def contrast_of_pairs(anchors, positives, ids, temperature):
    """Pairs as InfoCSE contrasts them: against all positives and all anchors."""
    rows = Side(anchors, ids.document, ids.anchor)
    columns = Side(positives, ids.document, ids.positive).and_(rows)
    return Contrast(rows, columns, own(len(anchors), anchors.device), temperature)


def loss_of_pairs(anchors, positives, ids, temperature, before=None, share=0.0):
    """The loss of pairs; a share of it is held against the vectors that they had before."""
    reference = None if before is None else Reference(contrast_of_pairs(before[0], before[1], ids, temperature), share)
    return contrastive_loss(contrast_of_pairs(anchors, positives, ids, temperature), reference)


def shares(anchors, positives, ids, temperature):
    """Each anchor's softmax over all n != a of the 2B sentences but the masked ones, by n."""
    document, anchor, positive = (column.tolist() for column in ids)
    size = len(anchors)
    sentences = [*anchors, *positives]
    documents, texts = document + document, anchor + positive
    rows = []
    for a in range(size):
        terms = {}
        for n in range(2 * size):
            if n == a:
                continue
            false_negative = documents[n] == document[a] or texts[n] in (anchor[a], positive[a])
            if n == size + a or not false_negative:
                terms[n] = torch.exp(anchors[a] @ sentences[n] / temperature)
        rows.append({n: term / torch.stack(list(terms.values())).sum() for n, term in terms.items()})
    return rows


def eq_1(anchors, positives, ids, temperature):
    """-log of the positive's share, averaged over pairs."""
    rows = shares(anchors, positives, ids, temperature)
    return torch.stack([-torch.log(row[len(rows) + a]) for a, row in enumerate(rows)]).mean()


def held_against(anchors, positives, ids, temperature, before):
    """Cross entropy of the shares and those of the vectors before, averaged over pairs."""
    now, then = (shares(a, p, ids, temperature) for a, p in ((anchors, positives), before))
    return torch.stack([-then[a][n] * torch.log(row[n]) for a, row in enumerate(now) for n in row]).sum() / len(now)


def vectors(size, seed=0, d=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, d, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for _ in "ap"]


def ids_of(document, anchor, positive):
    return Ids(*(torch.tensor(column) for column in (document, anchor, positive)))


def distinct(size):
    return ids_of(list(range(size)), list(range(100, 100 + size)), list(range(200, 200 + size)))


MASKS = {
    "none": distinct(6),
    "a document": ids_of([0, 1, 2, 1, 4, 1], range(100, 106), range(200, 206)),
    "the text of an anchor as an anchor": ids_of(range(6), [100, 101, 102, 100, 104, 105], range(200, 206)),
    "the text of an anchor as a positive": ids_of(range(6), range(100, 106), [200, 201, 202, 203, 101, 205]),
    "the text of a positive": ids_of(range(6), range(100, 106), [200, 201, 200, 203, 204, 201]),
    "an anchor equal to its positive": ids_of(range(6), range(100, 106), [100, 201, 202, 203, 204, 205]),
    "everything masked": ids_of([0] * 6, range(100, 106), range(200, 206)),
    "all of it": ids_of([0, 1, 2, 1, 4, 5], [100, 101, 102, 103, 100, 105], [200, 105, 200, 203, 204, 104]),
}


@pytest.mark.parametrize("block_elements", [2**24, 30, 1])
@pytest.mark.parametrize("case", MASKS)
def test_loss_and_gradients_are_those_of_eq_1(case, block_elements, monkeypatch):
    monkeypatch.setattr(loss_module, "_BLOCK_ELEMENTS", block_elements)
    ids = MASKS[case]
    for temperature in (1.0, 0.05):
        (anchors, positives), (other_anchors, other_positives) = vectors(6), vectors(6)
        expected = eq_1(anchors, positives, ids, temperature)
        found = loss_of_pairs(other_anchors, other_positives, ids, temperature)
        expected.backward()
        found.backward()
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        for mine, right in ((other_anchors, anchors), (other_positives, positives)):
            torch.testing.assert_close(mine.grad, right.grad, rtol=1e-9, atol=1e-11)
    if case == "everything masked":
        assert found.item() == 0.0


@pytest.mark.parametrize("block_elements", [2**24, 30])
@pytest.mark.parametrize("case", MASKS)
def test_a_share_of_the_loss_holds_on_to_the_similarities_before(case, block_elements, monkeypatch):
    monkeypatch.setattr(loss_module, "_BLOCK_ELEMENTS", block_elements)
    before, ids = [side.detach() for side in vectors(6, seed=1)], MASKS[case]
    (anchors, positives), (other_anchors, other_positives) = vectors(6), vectors(6)
    expected = 0.7 * eq_1(anchors, positives, ids, 0.5) + 0.3 * held_against(anchors, positives, ids, 0.5, before)
    found = loss_of_pairs(other_anchors, other_positives, ids, 0.5, before, 0.3)
    expected.backward()
    found.backward()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    for mine, right in ((other_anchors, anchors), (other_positives, positives)):
        torch.testing.assert_close(mine.grad, right.grad, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", [case for case in MASKS if case != "none"])
def test_each_mask_changes_the_loss(case):
    anchors, positives = vectors(6)
    masked, whole = (loss_of_pairs(anchors, positives, ids, 1.0) for ids in (MASKS[case], MASKS["none"]))
    if case == "an anchor equal to its positive":
        assert masked == whole  # the anchor was left out anyway and the own positive stays
    else:
        assert masked < whole - 1e-3


def test_masks_go_by_id_not_by_value():
    row = torch.ones(4, 5, dtype=torch.float64)
    # Four equal pairs of different documents and texts: the positive among 7 equals.
    assert loss_of_pairs(row, row, distinct(4), 1.0).item() == pytest.approx(np.log(7))


@pytest.mark.parametrize("block_elements", [30, 1])
def test_a_row_in_any_block_has_its_own_texts_beside_it_and_holds_on_or_not(block_elements, monkeypatch):
    ids, (anchors, positives) = distinct(6), vectors(6)
    other_anchors, other_positives = vectors(6, seed=1)
    before = contrast_of_pairs(other_anchors, other_positives, ids, 0.5)
    held = torch.tensor([False, True, True, False, True, False])
    contrast = contrast_of_pairs(anchors, positives, ids, 0.5)._replace(
        besides=(torch.tensor([1, 4, 4]), torch.tensor([203, 200, 101])), held=held
    )

    def loss(contrast: Contrast) -> float:
        return contrastive_loss(contrast, Reference(before, 0.3)).item()

    whole = loss(contrast)
    for changed in ({"besides": None}, {"held": None}, {"held": held.flip(0)}):
        assert loss(contrast._replace(**changed)) != pytest.approx(whole), "it would be seen"
    monkeypatch.setattr(loss_module, "_BLOCK_ELEMENTS", block_elements)
    assert loss(contrast) == pytest.approx(whole, rel=1e-12)


def test_row_blocks_are_not_all_kept(monkeypatch):
    monkeypatch.setattr(loss_module, "_BLOCK_ELEMENTS", 64)
    anchors, positives = vectors(32)
    largest = 0

    def note(tensor):
        nonlocal largest
        largest = max(largest, tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss_of_pairs(anchors, positives, distinct(32), 1.0)
    assert largest < 32 * 64


# Rows of each worker.
SHARES = {2: [(4, 4), (5, 3), (0, 8)], 3: [(3, 3, 2), (6, 0, 2), (1, 1, 6)]}
BATCH = 8
IDS = ids_of(
    [0, 1, 2, 1, 4, 5, 6, 0], [100, 101, 102, 103, 104, 105, 106, 107], [200, 201, 105, 203, 200, 205, 206, 207]
)


def inputs(dtype):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(BATCH, 7, generator=generator, dtype=torch.float64).to(dtype) for _ in "ap"]


def encoder(dtype):
    torch.manual_seed(2)
    net = torch.nn.Sequential(torch.nn.Linear(7, 16), torch.nn.Tanh(), torch.nn.Linear(16, 6))
    return net.to(dtype)


def flat_gradient(net):
    return torch.cat([p.grad.flatten() for p in net.parameters()]).double().numpy()


def before(dtype):
    return [x[:, :6].flip(0) for x in inputs(dtype)]


def whole_batch(dtype):
    net = encoder(dtype)
    anchors, positives = (net(x) for x in inputs(dtype))
    loss = loss_of_pairs(anchors, positives, IDS, 0.3, before(dtype), 0.4)
    loss.backward()
    return loss.item(), flat_gradient(net)


def share_of_batch(counts, dtype, block_elements, mistake=None):
    rank = collective.rank()
    mine = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
    net = encoder(dtype)
    model = DistributedDataParallel(net)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_module, "_BLOCK_ELEMENTS", block_elements)
        if mistake == "own slot, no sum in backward":
            patch.setattr(loss_module, "gather", own_slot_gather)
        both = model(torch.cat([x[mine] for x in inputs(dtype)]))
        n = counts[rank]
        then = [x[mine] for x in before(dtype)]
        loss = loss_of_pairs(both[:n], both[n:], Ids(*(c[mine] for c in IDS)), 0.3, then, 0.4)
        if mistake == "times the workers":
            loss = loss * collective.workers()
        loss.backward()
    value = collective.all_reduce_sum(loss.detach().double().clone()) / collective.workers()
    return value.item(), flat_gradient(net)


def own_slot_gather(counts, local, *beside):
    parts = list(collective.gather_rows(local.detach(), counts).split(counts))
    parts[collective.rank()] = local
    return torch.cat(parts), *(collective.gather_rows(one, counts) for one in beside)


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def shares_of_batch(world):
    exact = [
        (counts, dtype, share_of_batch(counts, dtype, block_elements))
        for counts in SHARES[world]
        for dtype in (torch.float64, torch.float32)
        for block_elements in (2**24, 20)
    ]
    wrong = [
        share_of_batch(SHARES[world][0], torch.float64, 2**24, mistake)[1]
        for mistake in ("own slot, no sum in backward", "times the workers")
    ]
    return exact, wrong


@pytest.mark.parametrize("world", [2, 3])
def test_workers_together_have_the_gradient_of_one(world):
    right = {dtype: whole_batch(dtype) for dtype in (torch.float64, torch.float32)}
    for exact, wrong in on_workers(world, shares_of_batch, world):
        assert len(exact) == 12
        for counts, dtype, (loss, gradient) in exact:
            tolerance = 1e-9 if dtype == torch.float64 else 1e-5
            assert loss == pytest.approx(right[dtype][0], rel=tolerance), counts
            assert relative_error(gradient, right[dtype][1]) < tolerance, counts
        # The two classic mistakes are not within any tolerance, so the comparison above would show them.
        assert all(relative_error(gradient, right[torch.float64][1]) > 0.1 for gradient in wrong)
