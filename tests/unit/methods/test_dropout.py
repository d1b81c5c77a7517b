"""Dropout in training is the method's, whatever mode and rate the encoder came with."""

import pytest
import torch
from transformers import BertModel

from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.train.state import TrainState
from tests.unit.stores import SPEC
from tests.unit.trainees import CASES, Run, annotated, method_for, ragged, settings_for


@pytest.fixture(scope="module")
def undropped(tiny_encoder, tmp_path_factory):
    """The tiny encoder with dropout 0 in its configuration."""
    folder = tmp_path_factory.mktemp("undropped")
    for file in tiny_encoder.glob("token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    model = BertModel.from_pretrained(tiny_encoder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model.save_pretrained(folder)
    return folder


def rates(encoder):
    return {module.p for module in encoder.modules() if isinstance(module, torch.nn.Dropout)}


@pytest.mark.parametrize("case", ["simcse", "mirror_bert"])
def test_two_views_differ_by_dropout_alone(undropped, tmp_path, case):
    run = Run(undropped, annotated(tmp_path, undropped, 12), case=case)
    assert rates(run.encoder) == {0.1}
    batch = run.stream.next_batch()
    if case == "mirror_bert":  # not by its mask
        batch = batch._replace(texts=batch.texts.take(torch.arange(len(batch.texts)).numpy() // 2 * 2))
    seen = []
    run.state.model.register_forward_hook(lambda module, inputs, output: seen.append(output[0].detach()))
    run.encoder.eval()
    run.take(batch, 1)
    assert run.encoder.training
    # In one chunk the views of an example may lie apart, but all vectors of texts must differ.
    vectors = torch.cat(seen)
    assert len(torch.unique(vectors, dim=0)) >= len(batch.texts)
    ids, mask = run.encoder.pad(ragged([[10, 11, 12]] * 2))
    with torch.no_grad():
        first, second = run.encoder(ids, mask)
        assert (first - second).abs().max() > 1e-3
        first, second = run.encoder.eval()(ids, mask)
        torch.testing.assert_close(first, second, rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_rates(tiny_encoder, undropped, case):
    expected = {"simcse": {0.1}, "mirror_bert": {0.1}, "consert": {0.0}, "consert others": {0.0}}
    for folder, own in [(tiny_encoder, {0.1}), (undropped, {0.0})]:
        settings = settings_for(case, folder)
        encoder = load_encoder(folder, settings.encoder, False)
        TrainState(encoder, method_for(case, EncoderSpec.of(encoder), settings), settings, 0)
        assert rates(encoder) == expected.get(case, own)


@pytest.mark.parametrize("case", ["simcse", "mirror_bert"])
def test_an_encoder_without_dropout_is_refused(case):
    with pytest.raises(ValueError, match=rf"{case}\.dropout = 0\.1: a bert encoder has no dropout, and") as error:
        method_for(case, SPEC._replace(can_drop=False))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("simcse", "mirror_bert")])
def test_others_need_no_dropout(case):
    assert not method_for(case, SPEC._replace(can_drop=False)).dropout
