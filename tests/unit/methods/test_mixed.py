"""Labelled examples among InfoCSE's pairs: what a pass deals, whose labels they are, who holds on, how many."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from infocse_ray.corpus.schema import stable_hash
from infocse_ray.corpus.store import Counterparts, Documents
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.loop.mix import Mix, check_all_annotated, check_mix
from infocse_ray.methods.idc import Idc
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.methods.labelled import Labelled
from infocse_ray.methods.mixed import Mixed
from infocse_ray.sampling.stream import ExampleStream
from infocse_ray.settings import Settings
from infocse_ray.storage.folder import Storage
from infocse_ray.train.loss import Reference, contrastive_loss
from tests.unit.annotate.test_share import store_of
from tests.unit.methods.test_losses import batch_of
from tests.unit.stores import SPEC, Written, counted, write_annotations
from tests.unit.trainees import MIXED, document, method_for, ragged, settings_for, views_of


def labelled(documents: Documents, counterparts: list[list[int]]) -> Documents:
    """One document with counterparts."""
    keys = np.array([stable_hash(repr(c)) for c in counterparts])
    return documents._replace(counterparts=Counterparts(np.zeros(len(keys), np.int64), keys, ragged(counterparts)))


@pytest.mark.parametrize("positive", ["sentence", "cluster", "self_and_partner"])
def test_a_pass_has_every_pair_once_and_every_label_as_often_as_asked(positive: str):
    train = settings_for("idc", positive=positive).train
    pairs, labels = Idc(train, SPEC), Labelled(LabelSample(0, None), 1.0, False, SPEC)
    method = Mixed(pairs, labels, 3)
    one = labelled(document([[5], [6, 7], [8], [9]], [0, 0, 0, 1]), [[20], [21, 22]])
    opened = method.open(one)
    [many] = opened.examples.tolist()
    [alone] = pairs.open(one).examples.tolist()
    assert many == alone + 3 * 2 == method.count(one).examples[0]
    expected = [views_of(pairs, pairs.open(one), number) for number in range(alone)]
    assert [views_of(method, opened, number) for number in range(alone)] == expected
    found = Counter(repr(views_of(method, opened, number)) for number in range(alone, many))
    sentences = [(3, [5]), (3, [6, 7]), (3, [8]), (3, [9])]
    first, second = [*sentences, (4, [20]), (5, [21, 22])], [*sentences, (5, [20]), (4, [21, 22])]
    assert found == {repr(first): 3, repr(second): 3}


def test_a_document_may_have_either_alone():
    method = method_for(MIXED)
    assert method.open(labelled(document([[5], [6]], [0, 1]), [[20]])).examples.tolist() == [2]
    assert method.open(labelled(document([[5], [6]], [0, 0]), [])).examples.tolist() == [1]
    unlabelled = method.open(labelled(document([[5], [6], [7]], [0, 0, 1]), []))
    assert len(unlabelled.texts) == 2, "sentences are kept for labels alone"


def test_labels_of_other_splits_are_not_trained_on(tmp_path: Path):
    """Documents of every split have pairs, and only those of the train split labels."""
    splits = ["train", "valid", "test"]
    documents = [Written(f"d{i}", [[5, i], [6, i]], [0, 0], [[9, i]], splits[i % 3]) for i in range(30)]
    source = write_annotations(Storage.open(str(tmp_path)), documents, 2, 4, 1, splits)
    method = method_for(MIXED)
    seen: dict[int, Counter[str]] = {0: Counter(), 4: Counter()}
    train = source._replace(labels=["train"])
    stream = ExampleStream(counted(train, method), method, 10, 1)
    for _ in range(5):  # a pass: 30 pairs, and 10 labels twice
        batch = stream.next_batch()
        for view, names in seen.items():
            names.update(batch.doc_ids[i] for i in batch.owner[batch.labels == view])
    assert set(seen[0]) == {d.doc_id for d in documents}
    assert set(seen[4]) == {d.doc_id for d in documents if d.split == "train"}
    assert seen[4].total() == 20


def test_only_pairs_hold_on(tmp_path: Path):
    documents = [Written(f"d{i}", [[5, i], [6, i]], [0, 0], [[9, i]]) for i in range(12)]
    source = write_annotations(Storage.open(str(tmp_path)), documents, 2, 2)
    method, encoded, _ = batch_of(source, MIXED)
    before = encoded._replace(vectors=torch.randn(encoded.vectors.shape, dtype=torch.float64))
    of_labels = before.labels == 3
    other = torch.where(of_labels[:, None], -before.vectors, before.vectors)

    def loss(vectors: torch.Tensor, **changed: Any) -> float:
        reference = Reference(method.contrast(before._replace(vectors=vectors), torch.nn.Identity()), 0.5)
        contrast = method.contrast(encoded, torch.nn.Identity())
        return contrastive_loss(contrast._replace(**changed), reference).item()

    assert loss(other) == loss(before.vectors), "labelled documents are rows, and none of what is held on to"
    assert loss(other, held=None) != pytest.approx(loss(before.vectors, held=None))
    pairs_only = method.contrast(encoded, torch.nn.Identity()).held
    assert pairs_only is not None
    assert loss(before.vectors) != pytest.approx(loss(before.vectors, held=pairs_only & False))


@pytest.mark.parametrize(("share", "repeats"), [(0.5, 30), (0.75, 90), (0.25, 10), (0.001, 1)])
def test_labels_are_repeated_until_they_are_the_share(share: float, repeats: int):
    settings = settings_for("idc")
    mix = Mix(LabelSample(0, 5), 10, share, SPEC)
    method = mix.among(Idc(settings.train, SPEC), {"pairs": 300, "together": 40})
    assert (method.repeats, method.labels.drawn) == (repeats, LabelSample(0, 5))
    cluster = settings_for("idc", positive="cluster", temperature=0.3, similarity="cosine")
    method = mix._replace(share=0.5).among(Idc(cluster.train, SPEC), {"pairs": 300, "together": 40})
    assert (method.repeats, method.labels.temperature, method.labels.cosine) == (4, 0.3, True)


def test_its_parts_name_its_results():
    settings, spec = settings_for("idc"), SPEC

    def named(repeats: int = 2, drawn: int = 1, spec: EncoderSpec = spec, **train: Any) -> tuple[Any, ...]:
        labels = Labelled(LabelSample(0, drawn), 1.0, False, spec)
        method = Mixed(Idc(settings.train.model_copy(update=train), spec), labels, repeats)
        return method.identity(), method.count_identity()

    base = named()
    for other in (named(repeats=3), named(drawn=2), named(positive="cluster")):
        assert other[0] != base[0]
        assert other[1] != base[1]
    assert named(temperature=0.5)[0] != base[0]


def mixing(method: str, share: float = 0.5, annotated: float = 1.0) -> Settings:
    sections = {"plusplus": {"label_share": share}, "annotate": {"share": annotated}, "train": {"method": method}}
    return Settings.model_validate({"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m"}, **sections})


def test_labels_are_mixed_with_pairs_alone():
    check_mix(mixing("idc"))
    check_mix(mixing("simcse", share=0.0))
    with pytest.raises(ValueError, match=r"^plusplus\.label_share = 0\.5: .*train\.method is simcse; set it to 0"):
        check_mix(mixing("simcse"))


def test_labels_of_documents_that_are_not_annotated_are_asked_for():
    store = store_of(200, 4)
    store.summary["labelled"] = {"valid": 9}
    check_all_annotated(mixing("idc"), store)
    check_all_annotated(mixing("idc", share=0.0, annotated=0.1), store)
    with pytest.raises(ValueError, match=r"^plusplus\.label_share = 0\.5: .* 10\.0% .*; set annotate\.share to 1, or"):
        check_all_annotated(mixing("idc", annotated=0.1), store)
