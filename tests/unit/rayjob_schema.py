"""A schema of the fields of KubeRay's RayJob that deploy/rayjob.yaml uses, or could by a slip of the pen.

It is this project's own, written after KubeRay's API reference (ray.io/v1, KubeRay 1.6): names, types, allowed values,
what is required. KubeRay's own schema, far larger, is in its CustomResourceDefinition `rayjobs.ray.io`, which no
package on PyPI has; tests/unit/test_rayjob.py validates against that too where RAYJOB_CRD names its file. Pod templates
are Kubernetes' own and are validated with Kubernetes' schemas.
"""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
FLAG: dict[str, Any] = {"type": "boolean"}
POD: dict[str, Any] = {"type": "object", "required": ["spec"]}
OBJECT: dict[str, Any] = {"type": "object"}


def fields(required: list[str], **properties: Any) -> dict[str, Any]:
    """An object with these fields and no others."""
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


AUTOSCALER = fields(
    [],
    env={"type": "array"},
    envFrom={"type": "array"},
    idleTimeoutSeconds=COUNT,
    image=TEXT,
    imagePullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
    resources=OBJECT,
    securityContext=OBJECT,
    upscalingMode={"enum": ["Default", "Aggressive", "Conservative"]},
    version={"enum": ["v1", "v2"]},
    volumeMounts={"type": "array"},
)
HEAD = fields(
    ["template"],
    enableIngress=FLAG,
    headService=OBJECT,
    labels=TEXTS,
    rayStartParams=TEXTS,
    resources=TEXTS,
    serviceType={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    template=POD,
)
WORKERS = fields(
    ["groupName", "maxReplicas", "minReplicas", "template"],
    groupName=TEXT,
    idleTimeoutSeconds=COUNT,
    labels=TEXTS,
    maxReplicas=COUNT,
    minReplicas=COUNT,
    numOfHosts=COUNT,
    rayStartParams=TEXTS,
    replicas=COUNT,
    resources=TEXTS,
    suspend=FLAG,
    template=POD,
)
CLUSTER = fields(
    ["headGroupSpec"],
    authOptions=fields([], enableK8sTokenAuth=FLAG, mode={"enum": ["disabled", "token"]}, secretName=TEXT),
    autoscalerOptions=AUTOSCALER,
    enableInTreeAutoscaling=FLAG,
    gcsFaultToleranceOptions=OBJECT,
    headGroupSpec=HEAD,
    headServiceAnnotations=TEXTS,
    managedBy={"enum": ["ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"]},
    rayVersion=TEXT,
    suspend=FLAG,
    workerGroupSpecs={"type": "array", "items": WORKERS},
)
SPEC = fields(
    [],
    activeDeadlineSeconds=COUNT | {"minimum": 1},
    backoffLimit=COUNT,
    clusterSelector=TEXTS,
    entrypoint=TEXT,
    entrypointNumCpus={"type": "number"},
    entrypointNumGpus={"type": "number"},
    entrypointResources=TEXT,
    jobId=TEXT,
    managedBy={"enum": ["ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"]},
    metadata=TEXTS,
    preRunningDeadlineSeconds=COUNT,
    rayClusterSpec=CLUSTER,
    runtimeEnvYAML=TEXT,
    shutdownAfterJobFinishes=FLAG,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
    submitterConfig=fields([], backoffLimit=COUNT),
    submitterPodTemplate=POD,
    suspend=FLAG,
    ttlSecondsAfterFinished=COUNT,
)
RAYJOB = fields(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=fields(
        ["name"], name={"type": "string", "maxLength": 47}, namespace=TEXT, labels=TEXTS, annotations=TEXTS
    ),
    spec=SPEC,
)
