"""cluster.yaml: valid for Ray, accepted by EC2 (moto's), and as closed and as cheap as it says."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws
from ray.autoscaler._private.aws import node_provider
from ray.autoscaler._private.aws.config import bootstrap_aws
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "cluster.yaml").read_text()


@pytest.fixture
def cluster() -> dict[str, Any]:
    """The configuration with Ray's defaults in what it leaves open."""
    return prepare_config(yaml.safe_load(TEXT))


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What the page tells the reader to make: a closed security group and the two roles."""
    monkeypatch.setenv("HOME", str(tmp_path))  # Ray writes an ssh key
    (tmp_path / ".ssh").mkdir()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        ec2 = boto3.client("ec2", region_name="us-east-1")
        network = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=network, CidrBlock="10.0.0.0/24", AvailabilityZone="us-east-1a")["Subnet"]
        ec2.modify_subnet_attribute(SubnetId=subnet["SubnetId"], MapPublicIpOnLaunch={"Value": True})
        group = ec2.create_security_group(GroupName="infocse", Description="closed", VpcId=network)
        iam = boto3.client("iam", region_name="us-east-1")
        for name in ("infocse-head", "infocse-worker"):
            iam.create_instance_profile(InstanceProfileName=name)
        yield {"SubnetIds": subnet["SubnetId"], "SecurityGroupIds": group["GroupId"]}


def filled_in(cluster: dict[str, Any], account: dict[str, str]) -> dict[str, Any]:
    """The configuration with what is there replaced; what is not there is left to Ray, as `ray up` would."""
    filled = copy.deepcopy(cluster)
    for node_type in filled["available_node_types"].values():
        for name in account.keys() & node_type["node_config"].keys():
            node_type["node_config"][name] = [account[name]]
        node_type["node_config"]["ImageId"] = "ami-12c6146b"  # one that moto knows
    return filled


def instance(node: dict[str, Any], node_type: str, config: dict[str, Any]) -> dict[str, Any]:
    """What EC2 says of a node of this type, made the way Ray makes it."""
    provider = node_provider.AWSNodeProvider(config["provider"], config["cluster_name"])
    provider.create_node(copy.deepcopy(node), {"ray-user-node-type": node_type}, 1)
    found = boto3.client("ec2", region_name="us-east-1").describe_instances(
        Filters=[{"Name": "tag:ray-user-node-type", "Values": [node_type]}]
    )
    return found["Reservations"][0]["Instances"][0]


def test_ray_takes_it_for_a_valid_configuration(cluster: dict[str, Any]) -> None:
    validate_config(cluster)


def test_ec2_takes_every_node_and_ray_opens_no_port(cluster: dict[str, Any], account: dict[str, str]) -> None:
    config = bootstrap_aws(filled_in(cluster, account))

    for name, node_type in config["available_node_types"].items():
        made = instance(node_type["node_config"], name, config)
        assert [group["GroupId"] for group in made["SecurityGroups"]] == [account["SecurityGroupIds"]]
        assert made["IamInstanceProfile"]["Arn"].endswith("infocse-head" if name == "head" else "infocse-worker")
        assert (made.get("InstanceLifecycle") == "spot") is (name == "gpu")
    groups = boto3.client("ec2", region_name="us-east-1").describe_security_groups()["SecurityGroups"]
    world = [rule for group in groups for rule in group["IpPermissions"] if "0.0.0.0/0" in str(rule)]
    assert not world
    assert "ray-autoscaler" not in str([group["GroupName"] for group in groups])


def test_no_node_type_leaves_its_security_group_or_its_role_to_ray(cluster: dict[str, Any]) -> None:
    """Ray's own group lets the whole world in by ssh; Ray's own role may do anything with every bucket."""
    for node_type in cluster["available_node_types"].values():
        assert node_type["node_config"]["SecurityGroupIds"]
        assert node_type["node_config"]["IamInstanceProfile"]
    assert "security_group" not in cluster["provider"]
    assert "0.0.0.0" not in TEXT
    assert "--dashboard-host=127.0.0.1" in cluster["head_start_ray_commands"][-1]


def test_the_head_runs_no_work_and_workers_start_from_none(cluster: dict[str, Any]) -> None:
    types = cluster["available_node_types"]
    assert types[cluster["head_node_type"]]["resources"] == {"CPU": 0}
    assert "--num-cpus=0" in cluster["head_start_ray_commands"][-1]
    assert [types[name]["min_workers"] for name in ("cpu", "gpu")] == [0, 0]
    assert sum(types[name]["max_workers"] for name in ("cpu", "gpu")) == cluster["max_workers"]
    assert "GPU" not in types["cpu"]["resources"]
    assert types["gpu"]["resources"]["GPU"] > 1
    assert types["gpu"]["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"


def test_every_ray_process_asks_for_the_token_and_every_node_gets_it(cluster: dict[str, Any]) -> None:
    for commands in (cluster["head_start_ray_commands"], cluster["worker_start_ray_commands"]):
        starts = [command for command in commands if "ray start" in command]
        assert len(starts) == 1
        assert "RAY_AUTH_MODE=token" in starts[0].split("ray start")[0]
    assert cluster["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"


def test_all_nodes_install_the_pinned_versions(cluster: dict[str, Any]) -> None:
    for local in ("constraints.txt", "pyproject.toml"):
        assert cluster["file_mounts"][f"~/infocse/{local}"] == f"./{local}"
    assert all((ROOT / local).exists() for local in cluster["file_mounts"].values() if local.startswith("./"))
    for commands in (cluster["head_setup_commands"], cluster["worker_setup_commands"]):
        installs = [command for command in commands if "install" in command]
        assert len(installs) == 1
        assert "-c ~/infocse/constraints.txt" in installs[0]
    assert not any("setup_commands" in key for t in cluster["available_node_types"].values() for key in t)
    pinned = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    assert pinned in TEXT, "what it says of torch is out of date"


def test_it_has_no_credentials(cluster: dict[str, Any]) -> None:
    assert not re.search(r"AKIA|ASIA|PRIVATE KEY|aws_(access|secret|session|credentials)|[0-9a-f]{32}", TEXT)
    assert not re.search(r"RAY_AUTH_TOKEN\b", TEXT)
    assert set(cluster["auth"]) == {"ssh_user"}
