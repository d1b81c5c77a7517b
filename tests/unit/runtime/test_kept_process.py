"""Which processes of one worker stay: told by what Ray is asked for."""

from typing import Any

import pytest

from infocse_ray.runtime import kept_process
from infocse_ray.runtime.kept_process import kept_task
from infocse_ray.runtime.placement import Nodes, Placement


@pytest.mark.parametrize(("gpus", "calls"), [([1, 0, 1], 0), ([2, 1], 1)])
def test_a_process_with_a_gpu_stays_where_the_next_task_can_have_no_other(
    monkeypatch: pytest.MonkeyPatch, gpus: list[int], calls: int
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(kept_process.ray, "remote", lambda **options: asked.append(options) or (lambda work: work))
    monkeypatch.setattr(kept_process, "nodes_there", lambda: Nodes([8] * len(gpus), gpus))
    kept_task(print, Placement(1, True, 4), 3)
    kept_task(print, Placement(1, False, 2), 3)
    shared = {"max_retries": 3, "scheduling_strategy": "DEFAULT"}
    assert asked == [
        {"num_cpus": 4, "num_gpus": 1, "max_calls": calls, **shared},
        {"num_cpus": 2, **shared},
    ]
