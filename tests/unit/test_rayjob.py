"""deploy/rayjob.yaml: valid for KubeRay and Kubernetes, as closed as it says, with settings that the command takes.

Validated against this project's own schema of the fields (`rayjob_schema.py`), and against KubeRay's where RAYJOB_CRD
names a file with its CustomResourceDefinition (`kubectl get crd rayjobs.ray.io -o yaml`).
"""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from infocse_ray.settings import Settings
from infocse_ray.settings.command_line import parse
from tests.unit.rayjob_schema import RAYJOB

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "rayjob.yaml").read_text()


@pytest.fixture
def documents() -> dict[str, Any]:
    """By kind; each is there once."""
    every = list(yaml.safe_load_all(TEXT))
    assert [one["kind"] for one in every] == ["ServiceAccount", "ConfigMap", "RayJob"]
    return {one["kind"]: one for one in every}


@pytest.fixture
def job(documents: dict[str, Any]) -> dict[str, Any]:
    return documents["RayJob"]


def groups(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {group["groupName"]: group for group in job["spec"]["rayClusterSpec"]["workerGroupSpecs"]}


def pods(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The pod templates by name."""
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    workers = {name: group["template"] for name, group in groups(job).items()}
    return {"submitter": job["spec"]["submitterPodTemplate"], "head": head, **workers}


def containers(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for pod in pods(job).values():
        yield from pod["spec"]["containers"]


def test_it_has_the_fields_that_kuberay_documents(job: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(RAYJOB)
    jsonschema.validate(job, RAYJOB)


@pytest.mark.parametrize(
    "slip",
    [
        {"backoffLimit": "2"},
        {"ttlSecondAfterFinished": 600},
        {"submissionMode": "K8sJob"},
        {"rayClusterSpec": {}},
        {"entrypoint": ["infocse", "pretrain"]},
    ],
)
def test_the_schema_finds_slips(job: dict[str, Any], slip: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**job, "spec": {**job["spec"], **slip}}, RAYJOB)


@pytest.mark.skipif("RAYJOB_CRD" not in os.environ, reason="RAYJOB_CRD names no file with KubeRay's own definition")
def test_it_fits_kuberays_own_definition(job: dict[str, Any]) -> None:
    definitions = [one for one in yaml.safe_load_all(Path(os.environ["RAYJOB_CRD"]).read_text()) if one]
    (rayjobs,) = [one for one in definitions if one["metadata"]["name"] == "rayjobs.ray.io"]
    (schema,) = [v["schema"]["openAPIV3Schema"] for v in rayjobs["spec"]["versions"] if v["name"] == "v1"]
    jsonschema.validate(job, strict(schema))


def strict(schema: Any) -> Any:
    """A definition's schema as the API server reads it: unknown fields are refused, numbers may stand for text."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(value) for name, value in schema.items()}
    if found.pop("x-kubernetes-int-or-string", False) is True:
        found.pop("type", None)
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


def test_a_definition_is_read_as_the_api_server_does() -> None:
    schema = strict({"type": "object", "properties": {"cpu": {"x-kubernetes-int-or-string": True, "type": "string"}}})
    jsonschema.validate({"cpu": 4}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"cpus": 4}, schema)


def test_kubernetes_takes_its_pods_account_and_settings(documents: dict[str, Any], job: dict[str, Any]) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate")
    latest = kubernetes.latest_version()
    for kind in ("ServiceAccount", "ConfigMap"):
        kubernetes.validate(documents[kind], latest, strict=True)
    for name, pod in pods(job).items():
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod["spec"]}
        kubernetes.validate(whole, latest, strict=True)
        wrong = copy.deepcopy(whole)
        wrong["spec"]["containers"][0]["resource"] = {}
        with pytest.raises(kubernetes.ValidationError):
            kubernetes.validate(wrong, latest, strict=True)
    options = job["spec"]["rayClusterSpec"]["autoscalerOptions"]
    sidecar = {name: options[name] for name in ("resources", "securityContext")} | {"name": "autoscaler"}
    whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [sidecar]}}
    kubernetes.validate(whole, latest, strict=True)


def test_its_command_reads_settings_that_are_mounted_and_valid(
    documents: dict[str, Any], job: dict[str, Any], tmp_path: Path
) -> None:
    program, command, option, file = shlex.split(job["spec"]["entrypoint"])
    assert (program, command, option) == ("infocse", "pretrain", "--config")
    head = pods(job)["head"]["spec"]
    (mount,) = head["containers"][0]["volumeMounts"]
    (volume,) = head["volumes"]
    assert volume == {"name": mount["name"], "configMap": {"name": documents["ConfigMap"]["metadata"]["name"]}}
    assert mount["readOnly"]
    folder, _, name = file.rpartition("/")
    assert mount["mountPath"] == folder
    (tmp_path / name).write_text(documents["ConfigMap"]["data"][name])
    settings = parse(Settings, [option, str(tmp_path / name)], "infocse pretrain", "")
    for uri in (settings.storage, settings.corpus.source, settings.encoder.model):
        assert str(uri).startswith("s3://")


def test_numbers_of_workers_are_given_and_fit_the_gpu_group(documents: dict[str, Any], job: dict[str, Any]) -> None:
    settings = Settings.model_validate(yaml.safe_load(next(iter(documents["ConfigMap"]["data"].values()))))
    gpu = groups(job)["gpu"]
    each = int(gpu["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
    for section in (settings.annotate, settings.train):
        most = section.num_workers[1] if isinstance(section.num_workers, list) else section.num_workers
        assert section.use_gpu is True, "a cluster that has none yet would be trained on without"
        assert most == gpu["maxReplicas"] * each


def test_the_head_runs_no_work_and_workers_start_from_none(job: dict[str, Any]) -> None:
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["enableInTreeAutoscaling"] is True
    assert (
        cluster["headGroupSpec"]["rayStartParams"] | {"num-cpus": "0", "num-gpus": "0"}
        == (cluster["headGroupSpec"]["rayStartParams"])
    )
    for name, group in groups(job).items():
        assert (group["replicas"], group["minReplicas"]) == (0, 0)
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        assert ("nvidia.com/gpu" in limits) is (name == "gpu")
    assert job["spec"]["shutdownAfterJobFinishes"] is True
    assert job["spec"]["ttlSecondsAfterFinished"] > 0
    assert job["spec"]["backoffLimit"] > 0


def test_every_ray_process_asks_for_the_token_which_is_not_here(job: dict[str, Any]) -> None:
    assert job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token", "secretName": "infocse-ray-token"}
    assert "infocse-ray-token" in (ROOT / "docs" / "cluster.md").read_text()
    assert "kind: Secret" not in TEXT
    assert "stringData" not in TEXT
    assert "LoadBalancer" not in TEXT
    assert "NodePort" not in TEXT


def test_pods_pass_the_restricted_pod_security_standard(job: dict[str, Any]) -> None:
    for pod in pods(job).values():
        context = pod["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == 1000
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    autoscaler = job["spec"]["rayClusterSpec"]["autoscalerOptions"]
    for container in [*containers(job), autoscaler]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]
    # Only the head's autoscaler talks to Kubernetes.
    assert {name for name, pod in pods(job).items() if pod["spec"].get("automountServiceAccountToken", True)} == {
        "head"
    }


def test_its_ray_and_its_image_are_those_of_this_repository(job: dict[str, Any]) -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == pins["ray"]
    assert len({container["image"] for container in containers(job)}) == 1
