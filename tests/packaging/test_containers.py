"""The container files, as far as they can be checked without a container engine.

They are parsed, and what they refer to must exist: files, targets, commands, settings. Whether an image can be built and
runs is not tested here, because the tests need nothing but Python and Java.
"""

import fnmatch
import importlib
import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streamrt.cli import app as cli
from streamrt.config import ApplicationConfig
from tests.command_line import CliRunner
from tests.servers import free_port
from tests.unit.played import played

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = {
    *("CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "HEALTHCHECK", "RUN", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
}
OTHER_VARIABLES = {"STREAMRT_CACHE_DIR", "STREAMRT_JARS_DIR"}


@dataclass(frozen=True)
class Instruction:
    name: str
    text: str

    @property
    def words(self) -> list[str]:
        return [word for word in shlex.split(self.text) if not word.startswith("--")]


def dockerfile() -> list[Instruction]:
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    instructions = []
    for line in joined.splitlines():
        if line.strip():
            name, _, text = line.partition(" ")
            instructions.append(Instruction(name, text.strip()))
    return instructions


def last_stage() -> list[Instruction]:
    found = dockerfile()
    starts = [index for index, instruction in enumerate(found) if instruction.name == "FROM"]
    return found[starts[-1] :]


def one(instructions: list[Instruction], name: str) -> str:
    [found] = [instruction.text for instruction in instructions if instruction.name == name]
    return found


def compose() -> Any:
    yaml: Any = importlib.import_module("yaml")
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def ignored(path: str) -> bool:
    """Tell whether .dockerignore keeps a path of the top level out: the last pattern that matches decides."""
    result = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip()
        if pattern and not pattern.startswith("#") and fnmatch.fnmatch(path, pattern.lstrip("!")):
            result = not pattern.startswith("!")
    return result


def test_only_known_instructions() -> None:
    assert {instruction.name for instruction in dockerfile()} <= INSTRUCTIONS


def test_stages_have_the_same_base() -> None:
    bases = [instruction.words[0] for instruction in dockerfile() if instruction.name == "FROM"]
    assert bases == ["python:3.12-slim", "python:3.12-slim"]


def test_copied_files_exist_and_are_not_ignored() -> None:
    copied = [
        source
        for instruction in dockerfile()
        if instruction.name == "COPY" and "--from" not in instruction.text
        for source in instruction.words[:-1]
    ]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not ignored(source), source
    assert ignored(".git")
    assert ignored(".venv")
    assert ignored("tests")


def test_packages_are_all_copied() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    folders = set(re.findall(r'^"streamrt\.\w+" = "(\w+)"$', text, re.MULTILINE)) | {"streamrt"}
    copied = {word for instruction in dockerfile() if instruction.name == "COPY" for word in instruction.words[:-1]}
    assert folders <= copied


def test_stages_agree_on_their_common_folder() -> None:
    runs = " ".join(instruction.text for instruction in dockerfile() if instruction.name == "RUN")
    variables = one(last_stage(), "ENV")
    assert one(last_stage(), "COPY") == "--from=build /opt/streamrt /opt/streamrt"
    assert "jars --directory /opt/streamrt/jars --set spark" in runs
    assert "STREAMRT_JARS_DIR=/opt/streamrt/jars" in variables
    assert "PATH=/opt/streamrt/venv/bin:$PATH" in variables


def test_locked_build_tools() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    makefile = (ROOT / "Makefile").read_text()
    runs = " ".join(instruction.text for instruction in dockerfile() if instruction.name == "RUN")
    assert "setuptools|wheel|packaging" in runs
    assert "setuptools|wheel|packaging" in makefile
    for name in ("setuptools", "wheel", "packaging"):
        assert re.search(rf"^{name}==", lock, re.MULTILINE)


def environment() -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(one(last_stage(), "ENV")))


def test_runs_without_privileges() -> None:
    # A number, because Kubernetes cannot tell whether a name is root's.
    assert one(last_stage(), "USER") == "10001:10001"
    names = [instruction.name for instruction in last_stage()]
    assert names.index("USER") < names.index("CMD")
    assert "RUN" not in names[names.index("USER") :]
    runs = " ".join(instruction.text for instruction in last_stage() if instruction.name == "RUN")
    assert "--uid 10001" in runs
    # It may write its volume, and neither the program nor the libraries.
    assert one(last_stage(), "VOLUME") == "/var/lib/streamrt"
    assert "--owner=streamrt --group=streamrt /var/lib/streamrt" in runs
    assert "chown" not in runs
    for name in ("STREAMRT_STATE_DIR", "STREAMRT_CACHE_DIR"):
        assert environment()[name].startswith("/var/lib/streamrt/")


def test_layers_hold_no_secrets() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert not re.search(r"token|password|secret|credential", " ".join(environment()), re.IGNORECASE)
    assert "ARG" not in {instruction.name for instruction in dockerfile()}
    copied = [word for each in dockerfile() if each.name == "COPY" for word in each.words[:-1]]
    assert "." not in copied
    assert "--trusted-host" not in text


def test_packages_of_the_system_leave_no_lists() -> None:
    for instruction in dockerfile():
        if "apt-get install" in instruction.text:
            assert "apt-get update && apt-get install --yes --no-install-recommends" in re.sub(
                " +", " ", instruction.text
            )
            assert instruction.text.endswith("rm -rf /var/lib/apt/lists/*")


def test_commands_are_lists() -> None:
    assert json.loads(one(last_stage(), "CMD")) == ["python", "/app/main.py"]
    assert one(last_stage(), "STOPSIGNAL") == "SIGTERM"
    # It forwards signals and reaps children.
    assert json.loads(one(last_stage(), "ENTRYPOINT")) == ["/usr/bin/tini", "--"]


def health_check(address: str) -> "subprocess.CompletedProcess[str]":
    """Run the health check of the image for an application at an address."""
    text = one(last_stage(), "HEALTHCHECK")
    [python, *arguments] = json.loads(text[text.index("[") :])
    assert python == "python"
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env={"STREAMRT_CONTROL": address}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
def test_the_health_check_asks_whether_the_application_is_ready() -> None:
    with played(control_token="a-token") as app:
        address = str(app.location).removeprefix("http://")
        assert health_check(address).returncode == 0
        assert health_check(address.rpartition(":")[2]).returncode == 0
        app.stop(wait=True)
        assert health_check(address).returncode != 0
    assert health_check(f"127.0.0.1:{free_port()}").returncode != 0
    assert environment()["STREAMRT_CONTROL"] == "127.0.0.1:7070"
    assert '"streamrt[control,local]"' in (ROOT / "Dockerfile").read_text()


def test_variables_are_known() -> None:
    texts = [(ROOT / name).read_text() for name in ("Dockerfile", "docker-compose.yml")]
    named = set(re.findall(r"STREAMRT_[A-Z_]+", " ".join(texts)))
    settings = {f"STREAMRT_{name.upper()}" for name in ApplicationConfig.model_fields}
    assert named <= settings | OTHER_VARIABLES


def test_command_line_exists() -> None:
    done = CliRunner().invoke(cli, ["jars", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0
    assert "--directory" in done.output
    assert "--set" in done.output


def test_compose_services() -> None:
    services = compose()["services"]
    assert set(services) == {"kafka", "app", "kafka-ui"}
    assert services["kafka"]["image"] == "apache/kafka:4.4.0"
    assert services["kafka-ui"]["image"].startswith("ghcr.io/kafbat/kafka-ui:v")


def test_compose_refers_to_what_exists() -> None:
    document = compose()
    for service in document["services"].values():
        for mount in service.get("volumes", []):
            source, target = mount.split(":")[:2]
            assert target.startswith("/")
            assert (ROOT / source).exists() if source.startswith(".") else source in document["volumes"], source
        for name, condition in service.get("depends_on", {}).items():
            assert "healthcheck" in document["services"][name]
            assert condition == {"condition": "service_healthy"}


def test_compose_runs_an_example() -> None:
    service = compose()["services"]["app"]
    [mount] = [mount.split(":") for mount in service["volumes"] if mount.startswith("./")]
    program = service["command"][-1]
    assert (ROOT / mount[0] / program.removeprefix(f"{mount[1]}/")).is_file()
    assert (ROOT / service["build"] / "Dockerfile").is_file()
    example = (ROOT / "examples" / "words.py").read_text()
    topics = re.findall(r"topic `(\w+)`|--topic (\w+)", (ROOT / "docker-compose.yml").read_text())
    assert {name for pair in topics for name in pair if name} == {"texts", "words"}
    assert all(f'"{name}"' in example for name in ("texts", "words"))


def test_compose_runs_with_a_read_only_root() -> None:
    service = compose()["services"]["app"]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert any(mount.endswith(":/var/lib/streamrt") for mount in service["volumes"])


def test_compose_listeners_agree() -> None:
    services = compose()["services"]
    environment = services["kafka"]["environment"]
    advertised = dict(entry.split("://") for entry in environment["KAFKA_ADVERTISED_LISTENERS"].split(","))
    assert advertised["INTERNAL"] == services["app"]["environment"]["STREAMRT_BROKER_ADDRESS"]
    assert advertised["INTERNAL"] == services["kafka-ui"]["environment"]["KAFKA_CLUSTERS_0_BOOTSTRAPSERVERS"]
    assert any(port.endswith(advertised["HOST"].split(":")[1]) for port in services["kafka"]["ports"])
    protocols = dict(entry.split(":") for entry in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    listeners = dict(entry.split("://") for entry in environment["KAFKA_LISTENERS"].split(","))
    assert set(protocols) == set(listeners)


@pytest.mark.parametrize("name", ["Dockerfile", "docker-compose.yml", "requirements.lock", "Makefile"])
def test_no_place_of_one_machine(name: str) -> None:
    text = (ROOT / name).read_text()
    assert not re.search(r"--index-url|--extra-index-url|--find-links (?!/wheels)|file://|/home/|/tmp/|/root/", text)
