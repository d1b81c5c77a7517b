"""How many operations the host asks for in a step: of a small batch a GPU is done with them sooner than it is asked."""

import copy
import functools
import shutil

import pytest
from torch.profiler import ProfilerActivity, profile
from transformers import BertModel

from infocse_ray.train.step import begin_step
from tests.unit.train.test_packed_training import run_of

LAYERS = 2, 4
"""Of the encoder, and of one twice as deep."""


@pytest.fixture(scope="module")
def encoders(tiny_encoder, tmp_path_factory):
    """One encoder, and one with each of its layers twice."""
    deeper = tmp_path_factory.mktemp("deeper") / "encoder"
    shutil.copytree(tiny_encoder, deeper)
    model = BertModel.from_pretrained(tiny_encoder)
    model.encoder.layer.extend(copy.deepcopy(model.encoder.layer))
    model.config.num_hidden_layers = len(model.encoder.layer)
    model.save_pretrained(deeper)
    return tiny_encoder, deeper


def asked(work):
    """Operations of torch, those left out that others are made of."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    return sum(
        event.name.startswith("aten::")
        and not (event.cpu_parent is not None and event.cpu_parent.name.startswith("aten::"))
        for event in seen.events() or []
    )


def operations(folder, annotations, packs, steps):
    """Of steps on one batch, after one in which the optimiser makes its moments."""
    run = run_of(folder, annotations, packs, batch_size=8, chunk_tokens="auto", distillation=0.5)
    batch = run.stream.next_batch()
    run.take(batch, 1)
    found = []
    for step in range(2, steps + 2):
        prepared = run.state.prepare(batch)
        assert len(prepared.chunks) == 1
        found.append(asked(functools.partial(begin_step, run.state, prepared, run.state.agree(prepared), 5, step)))
    return found


@pytest.mark.parametrize(("packs", "each", "besides"), [(False, 190, 360), (True, 230, 340)])
def test_a_step_asks_for_so_much_a_layer_and_never_for_more(encoders, annotations, packs, each, besides):
    """Once forward and backward, and once forward by what the encoder was, with gradients of a batch's one chunk."""
    shallow = operations(encoders[0], annotations, packs, 2)
    assert shallow[0] == shallow[1], "a step asks for more than the one before"
    deep = operations(encoders[1], annotations, packs, 1)
    layer = (deep[0] - shallow[0]) / (LAYERS[1] - LAYERS[0])
    assert layer <= each
    assert shallow[0] - LAYERS[0] * layer <= besides
