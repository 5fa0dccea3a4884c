"""The Helm chart, rendered by Helm, and the plain manifests, checked by the schemas of Kubernetes."""

import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from streamrt.common.addresses import parse_address
from streamrt.config import ApplicationConfig
from tests import helm

ROOT = Path(__file__).parents[2]
# The oldest version that the chart allows, and newer ones.
VERSIONS = ("1.27", "1.31", "1.34", "1.37")
# Settings that have values of their own.
OWN = {"broker_address", "consumer_group", "control", "spark_master", "state_dir"}
uses_helm = pytest.mark.skipif(not helm.AVAILABLE, reason="Helm is a library for Linux on x86_64")
REQUIRED: dict[str, Any] = {
    "image": {"repository": "registry.example.org/shop", "tag": "1.0.0"},
    "broker": "kafka:9092",
    "consumerGroup": "shop",
    "control": {"tokenSecret": {"name": "shop-control"}},
}


def documents(text: str) -> dict[str, Any]:
    """Return manifests by kind."""
    yaml: Any = importlib.import_module("yaml")
    found = [document for document in yaml.safe_load_all(text) if document]
    by_kind = {document["kind"]: document for document in found}
    assert len(by_kind) == len(found)
    return by_kind


def values(name: str) -> Any:
    yaml: Any = importlib.import_module("yaml")
    return yaml.safe_load((helm.CHART / name).read_text())


def rendered(directory: Path, **changes: Any) -> dict[str, Any]:
    """Return the manifests for the required values and others."""
    path = directory / "values.json"
    path.write_text(json.dumps({**REQUIRED, **changes}))
    return documents(helm.template("shop", path))


def check(document: Any) -> None:
    """Check a manifest against the schemas of Kubernetes, in which unknown fields are errors."""
    kubernetes: Any = importlib.import_module("kubernetes_validate")
    for version in VERSIONS:
        kubernetes.validate(document, version, strict=True)


def plain(kind: str) -> dict[str, Any]:
    return documents((helm.PLAIN / f"{kind}.yaml").read_text())


def pod(found: dict[str, Any]) -> Any:
    return (found.get("StatefulSet") or found["Deployment"])["spec"]["template"]


@uses_helm
@pytest.mark.slow
def test_helm_finds_no_fault(tmp_path: Path) -> None:
    # It looks at the default values only, and some are required.
    chart = Path(shutil.copytree(helm.CHART, tmp_path / "streamrt"))
    defaults = values("values.yaml")
    given = {
        name: {**defaults[name], **value} if isinstance(value, dict) else value for name, value in REQUIRED.items()
    }
    given["control"]["tokenSecret"] = {"name": "shop-control", "key": "token"}
    (chart / "values.yaml").write_text(json.dumps({**defaults, **given}))
    said = helm.lint(chart)
    assert "Failed: false" in said
    assert "WARNING" not in said
    assert "ERROR" not in said


@uses_helm
@pytest.mark.slow
@pytest.mark.parametrize("kind", helm.KINDS)
def test_plain_manifests_are_those_of_the_chart(kind: str) -> None:
    # Otherwise: python -m tests.helm
    assert (helm.PLAIN / f"{kind}.yaml").read_text() == helm.plain(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", helm.KINDS)
def test_plain_manifests_are_valid(kind: str) -> None:
    found = plain(kind)
    workload = "StatefulSet" if kind == "stateful" else "Deployment"
    assert set(found) == {"ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Service", workload}
    for document in found.values():
        check(document)


def test_a_wrong_manifest_is_noticed() -> None:
    document = plain("stateful")["StatefulSet"]
    document["spec"]["template"]["spec"]["containers"][0]["readinessprobe"] = {}
    with pytest.raises(Exception, match="readinessprobe"):
        check(document)


@pytest.mark.parametrize("kind", helm.KINDS)
def test_manifests_agree_with_each_other(kind: str) -> None:
    found = plain(kind)
    template, workload = pod(found), found.get("StatefulSet") or found["Deployment"]
    labels = template["metadata"]["labels"]
    [container] = template["spec"]["containers"]
    selectors = [
        workload["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    [port] = container["ports"]
    [service_port] = found["Service"]["spec"]["ports"]
    [rule] = found["NetworkPolicy"]["spec"]["ingress"]
    assert port["name"] == service_port["targetPort"] == rule["ports"][0]["port"] == "control"
    assert container["envFrom"] == [{"configMapRef": {"name": found["ConfigMap"]["metadata"]["name"]}}]
    volumes = {volume["name"] for volume in template["spec"]["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    if kind == "stateful":
        assert workload["spec"]["serviceName"] == found["Service"]["metadata"]["name"]
        assert [claim["metadata"]["name"] for claim in workload["spec"]["volumeClaimTemplates"]] == ["streamrt"]


@pytest.mark.parametrize("kind", helm.KINDS)
def test_pods_fulfil_the_restricted_standard(kind: str) -> None:
    """See https://kubernetes.io/docs/concepts/security/pod-security-standards/."""
    spec = pod(plain(kind))["spec"]
    [container] = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert all({"emptyDir"} == set(volume) - {"name"} for volume in spec["volumes"])
    assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("kind", helm.KINDS)
def test_manifests_agree_with_the_image(kind: str) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    spec = pod(plain(kind))["spec"]
    [container] = spec["containers"]
    user = spec["securityContext"]
    [image_user] = re.findall(r"^USER (\d+:\d+)$", dockerfile, re.MULTILINE)
    assert image_user == f"{user['runAsUser']}:{user['runAsGroup']}"
    assert user["fsGroup"] == user["runAsGroup"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    # What the test with a read-only root leaves writable.
    assert mounted == {"/var/lib/streamrt", "/dev/shm", "/tmp"}
    assert set(re.findall(r"^VOLUME (\S+)$", dockerfile, re.MULTILINE)) <= mounted
    # Stopping takes up to 10 s.
    assert spec["terminationGracePeriodSeconds"] >= 30


@pytest.mark.parametrize("kind", helm.KINDS)
def test_probes_ask_routes_that_need_no_token(kind: str) -> None:
    [container] = pod(plain(kind))["spec"]["containers"]
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/live", "liveness": "/live", "readiness": "/ready"}
    page = (ROOT / "docs" / "control.md").read_text()
    assert all(f"`GET {path}`" in page for path in paths.values())
    assert "`/live` and `/ready` need none" in page
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 300


@pytest.mark.parametrize("kind", helm.KINDS)
def test_settings_are_accepted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plain(kind)
    for name, value in found["ConfigMap"]["data"].items():
        monkeypatch.setenv(name, value)
    config = ApplicationConfig.create()
    assert config.consumer_group == "shop"
    assert config.spark_master == "local[2]"
    [container] = pod(found)["spec"]["containers"]
    address = parse_address(str(config.control))
    assert address.port == container["ports"][0]["containerPort"]
    [token] = container["env"]
    assert token["name"] == "STREAMRT_CONTROL_TOKEN"
    assert token["valueFrom"] == {"secretKeyRef": {"name": "shop-control", "key": "token"}}


def test_the_schema_knows_every_setting_and_every_value() -> None:
    schema = json.loads((helm.CHART / "values.schema.json").read_text())
    assert set(schema["properties"]["config"]["properties"]) == set(ApplicationConfig.model_fields) - OWN
    assert set(schema["properties"]) == set(values("values.yaml")) | {"global"}


@uses_helm
@pytest.mark.slow
def test_the_example_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deployment-kubernetes.md").read_text()
    [example] = re.findall(r"^```yaml\n(# shop.yaml\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "shop.yaml").write_text(example)
    found = documents(helm.template("shop", tmp_path / "shop.yaml"))
    assert found["StatefulSet"]["spec"]["serviceName"] == "shop"
    for document in found.values():
        check(document)


@uses_helm
@pytest.mark.slow
def test_numbers_and_flags_arrive_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"commit_every": 1_000_000, "commit_interval": 0.5, "auto_create_topics": False, "loglevel": "DEBUG"}
    data = rendered(tmp_path, config=config)["ConfigMap"]["data"]
    assert data["STREAMRT_COMMIT_EVERY"] == "1000000"
    for name, value in data.items():
        monkeypatch.setenv(name, value)
    settings = ApplicationConfig.create()
    assert {name: getattr(settings, name) for name in config} == config


@uses_helm
@pytest.mark.slow
def test_slots_can_be_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in rendered(tmp_path, processes=True, slots=4)["ConfigMap"]["data"].items():
        monkeypatch.setenv(name, value)
    settings = ApplicationConfig.create()
    assert (settings.spark_master, settings.processing_mode) == ("processes[4]", "resident")


@uses_helm
@pytest.mark.slow
def test_new_settings_need_new_pods(tmp_path: Path) -> None:
    annotations = [
        pod(rendered(tmp_path, config={"commit_interval": seconds}))["metadata"]["annotations"] for seconds in (1, 1, 2)
    ]
    assert annotations[0] == annotations[1] != annotations[2]


@uses_helm
@pytest.mark.slow
def test_all_options(tmp_path: Path) -> None:
    found = rendered(
        tmp_path,
        stateful=True,
        fullnameOverride="orders",
        image={"repository": "registry.example.org/shop", "digest": f"sha256:{'0' * 64}"},
        imagePullSecrets=[{"name": "registry"}],
        command=["python", "-m", "shop"],
        replicas=3,
        slots=4,
        env=[{"name": "ZONE", "value": "a"}],
        envFrom=[{"secretRef": {"name": "kafka"}}],
        secretMounts=[{"name": "certificates", "mountPath": "/etc/kafka"}],
        extraVolumes=[{"name": "models", "emptyDir": {}}],
        extraVolumeMounts=[{"name": "models", "mountPath": "/models"}],
        volume={"size": "20Gi", "storageClassName": "local-ssd", "whenScaled": "Delete"},
        serviceMonitor={"enabled": True, "labels": {"release": "prometheus"}},
        serviceAccountName="shop",
        podAnnotations={"team": "shop"},
        podLabels={"tier": "stream"},
        nodeSelector={"disk": "ssd"},
        tolerations=[{"key": "stream", "operator": "Exists"}],
        affinity={"podAntiAffinity": {}},
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
    )
    # A resource of the Prometheus operator, whose schema is not one of Kubernetes.
    monitor = found.pop("ServiceMonitor")
    for document in found.values():
        check(document)
        assert document["metadata"]["name"] == "orders"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] == found["Service"]["spec"]["ports"][0]["name"]
    assert endpoint["authorization"] == {"credentials": {"name": "shop-control", "key": "token"}}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= found["Service"]["metadata"]["labels"].items()
    # The alerts look for the job of this name.
    assert found["Service"]["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "streamrt"
    [container] = pod(found)["spec"]["containers"]
    assert container["image"] == f"registry.example.org/shop@sha256:{'0' * 64}"
    assert container["args"] == ["python", "-m", "shop"]
    assert "command" not in container
    [claim] = found["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "local-ssd"
    assert found["ConfigMap"]["data"]["STREAMRT_SPARK_MASTER"] == "local[4]"


@uses_helm
@pytest.mark.slow
def test_parts_can_be_left_out(tmp_path: Path) -> None:
    off = {"enabled": False}
    found = rendered(tmp_path, podDisruptionBudget=off, networkPolicy=off)
    assert set(found) == {"ConfigMap", "Deployment", "Service"}
    found = rendered(tmp_path, networkPolicy={"from": []})
    assert found["NetworkPolicy"]["spec"]["ingress"] == []
    check(found["NetworkPolicy"])


@uses_helm
@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"broker": ""}, "/broker"),
        ({"consumerGroup": ""}, "/consumerGroup"),
        ({"control": {"tokenSecret": {"name": ""}}}, "/control/tokenSecret/name"),
        ({"image": {"repository": "shop"}}, "/image"),
        ({"config": {"comit_interval": 1}}, "comit_interval"),
        ({"config": {"processing_mode": "batch"}}, "/config/processing_mode"),
        ({"statefull": True}, "statefull"),
        ({"volume": {"size": "much"}}, "/volume/size"),
        ({"terminationGracePeriodSeconds": 5}, "/terminationGracePeriodSeconds"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(helm.HelmError, match=re.escape(named)):
        rendered(tmp_path, **changes)
