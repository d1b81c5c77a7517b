"""A cluster of a head that runs no work: a run is placed on nodes that the autoscaler adds for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.conftest import make_documents, write_jsonl
from tests.job_options import options_for
from tests.own_ray import RAY, free_port, own_ray

ROOT = Path(__file__).parents[2]
HEAD_ID = "f" * 51 + "00000"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A head with 0 CPUs, and at most one node with 2 that Ray's fake provider starts on this machine."""
    port = free_port()
    config = {
        "cluster_name": "fake",
        "max_workers": 1,
        "idle_timeout_minutes": 5,
        # Ray's `fake_multinode`, whose defaults are not in its wheels.
        "provider": {
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "gcs_address": f"127.0.0.1:{port}",
            "head_node_id": HEAD_ID,
            "launch_multiple": True,
        },
        # All that Ray has no defaults of for a provider of type `external`.
        **{f"{part}setup_commands": [] for part in ("", "head_", "worker_")},
        **{f"{part}_start_ray_commands": [] for part in ("head", "worker")},
        **{part: [] for part in ("initialization_commands", "cluster_synced_files", "rsync_exclude", "rsync_filter")},
        **{part: {} for part in ("docker", "auth", "file_mounts")},
        "file_mounts_sync_continuously": False,
        "upscaling_speed": 1,
        "head_node_type": "ray.head.default",  # the name that the fake provider knows
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {
                "resources": {"CPU": 2, "object_store_memory": 200_000_000},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 1,
            },
        },
    }
    # Where `ray up` puts it on the head.
    file = tmp_path / "ray_bootstrap_config.yaml"
    file.write_text(yaml.safe_dump(config))
    variables = {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
    }
    with own_ray(tmp_path, "--num-cpus=0", f"--autoscaling-config={file}", port=port, **variables) as environment:
        yield environment


def nodes(environment: dict[str, str]) -> str:
    """What `ray status` says of the nodes."""
    return subprocess.run([RAY, "status"], env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_run_on_a_cluster_without_a_worker_waits_for_nodes_and_is_placed_on_them(
    environment: dict[str, str], tmp_path: Path, tiny_encoder: Path
) -> None:
    write_jsonl(tmp_path / "corpus.jsonl", make_documents(60))
    few = {"train__max_steps": "4", "validate__every": "4", "annotate__num_workers": "1", "train__num_workers": "2"}
    options = options_for(tmp_path, "scaled", tiny_encoder, corpus__test_fraction="0", **few)
    assert " worker" not in nodes(environment)

    done = subprocess.run(
        [sys.executable, "jobs/pretrain.py", *options],
        cwd=ROOT,
        env=environment | {"INFOCSE_TRACEBACK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )

    assert done.returncode == 0, done.stdout
    assert " worker" in nodes(environment)
    metrics = json.loads((tmp_path / "scaled" / "scaled" / "metrics.json").read_text())
    assert [entry["step"] for entry in metrics["iterations"][1]["history"]] == [0, 4]
