"""What a step exchanges between workers, and what the host waits for: counted."""

from collections import Counter

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from infocse_ray.distributed import collectives as collective
from infocse_ray.train.step import begin_step
from tests.unit.group import on_workers
from tests.unit.trainees import Run

WAITS = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero"}
EXCHANGES = ("all_reduce", "all_gather", "broadcast", "all_gather_object", "all_gather_into_tensor", "barrier")


def exchanges(folder, annotations, case, chunk_tokens, distillation):
    """Exchanges of the third step, DDP's by themselves, and whether anything but small numbers was among the first."""
    run = Run(folder, annotations, case=case, chunk_tokens=chunk_tokens, distillation=distillation)
    buckets: list[int] = []

    def hook(_, bucket):
        buckets.append(bucket.index())
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    assert isinstance(run.state.model, DistributedDataParallel)
    run.state.model.register_comm_hook(None, hook)
    run.losses(2)
    buckets.clear()
    counted: Counter[str] = Counter()
    sizes: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in EXCHANGES:
            original = getattr(torch.distributed, name)

            def counting(*arguments, name=name, original=original, **more):
                counted[name] += 1
                tensor = arguments[1] if name == "all_gather" else arguments[0]
                sizes.append(tensor.numel() if isinstance(tensor, torch.Tensor) else 0)
                return original(*arguments, **more)

            patch.setattr(torch.distributed, name, counting)
        run.next()
    return dict(counted), sizes, sorted(buckets)


@pytest.mark.parametrize("chunk_tokens", [64, 8192, "auto"])
@pytest.mark.parametrize(("case", "head", "distillation"), [("idc", 0, 0.0), ("idc", 0, 0.5), ("conpono", 1, 0.0)])
def test_a_step_has_three_exchanges_of_a_few_numbers(tiny_encoder, annotations, case, head, distillation, chunk_tokens):
    """The vectors' way there and back, the head's gradients, and DDP's buckets, each once, come besides."""
    found = on_workers(2, exchanges, tiny_encoder, annotations, case, chunk_tokens, distillation)
    for counted, sizes, buckets in found:
        # What is known of the batch, rows and columns, vectors with their ids and what they were when training began;
        # gradients, (the head's,) figures.
        assert counted == {"all_gather": 3, "all_reduce": 2 + head}
        assert sum(size <= 40 for size in sizes) == 3
        assert buckets == list(range(len(buckets)))
        assert buckets


def waits(work):
    """How often the host read a number from a tensor, which on a GPU waits for it."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    return sum(event.count for event in seen.key_averages() if event.key in WAITS)


@pytest.mark.parametrize("chunk_tokens", [64, 8192])
def test_the_host_reads_no_figure_in_a_step(tiny_encoder, annotations, chunk_tokens):
    run = Run(tiny_encoder, annotations, chunk_tokens=chunk_tokens, max_gradient_norm=1.0)
    run.losses(2)
    prepared = run.state.prepare(run.stream.next_batch())
    agreed = run.state.agree(prepared)
    forwards: list[int] = []
    run.encoder.backbone.embeddings.register_forward_hook(lambda *_: forwards.append(1))

    def encode():
        for chunk in prepared.chunks:
            run.state.model(**chunk.inputs)

    # transformers looks whether a mask masks anything; on CPUs the optimiser reads the number of each weight's step.
    each = waits(encode) / len(forwards)
    of_others = waits(run.state.optimizer.step)
    forwards.clear()
    assert waits(lambda: begin_step(run.state, prepared, agreed, 5, 3)) == each * len(forwards) + of_others


def numbers_of_all():
    rank = collective.rank()
    return (
        collective.exchanged([rank, 10 * rank, 2**40]),
        collective.any_worker(rank == 1),
        collective.any_worker(False),
    )


def test_whole_numbers_reach_every_worker():
    assert on_workers(2, numbers_of_all) == [([[0, 0, 2**40], [1, 10, 2**40]], True, False)] * 2
    assert collective.exchanged([3, 4]) == [[3, 4]]


def test_the_way_to_a_host_is_found():
    assert collective.interface_to("127.0.0.1") == "lo"
    assert collective.interface_to("no such host") is None
