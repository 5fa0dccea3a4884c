"""`--settings`: commands that load an application give it what `streamrt run` would. They end before they need a broker."""

import os
from pathlib import Path

import pytest

from streamrt.config import ApplicationConfig
from tests.command_line import every_command, streamrt
from tests.support import unique

PROGRAM = """
from streamrt import Application
from streamrt.errors import InvalidOperationError


class Shown(Application):
    def reset(self, *arguments, **options):
        raise InvalidOperationError(f"{self.config.consumer_group} at {self.config.broker_address}: {arguments} {options}")

    repartition = savepoint = verify = swap_view = reset


def make():
    app = Shown(commit_every=7, loglevel=None, state_snapshots="file:///nowhere/snapshots")
    app.dataframe(app.topic("orders"))
    return app
"""
COMMANDS = {
    "plan": ["plan"],
    "plan diff": ["plan", "diff", "--timeout", "0.1"],
    "reset": ["reset", "--dry-run"],
    "repartition": ["repartition", "--partitions", "4", "--dry-run"],
    "savepoint create": ["savepoint", "create"],
    "verify": ["verify"],
    "swap": ["swap"],
    "state snapshots": ["state", "snapshots", "--timeout", "0.1"],
}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = unique("shop").replace("-", "_")
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for field in ApplicationConfig.model_fields:
        monkeypatch.delenv(ApplicationConfig.variable(field), raising=False)
    return f"{name}:make"


def arguments(command: str, program: str) -> list[str]:
    return [*COMMANDS[command], program, *(["before-2"] if command in ("savepoint create", "swap", "verify") else [])]


def test_every_command_that_loads_an_application_has_the_option() -> None:
    loading = {
        words
        for words, command in every_command()
        if any("MODULE:APP" in (each.metavar or "") and each.param_type_name == "argument" for each in command.params)
    }
    having = {words for words, command in every_command() if any("--settings" in each.opts for each in command.params)}
    # `show` may be left out.
    assert loading == having == {*COMMANDS, "plan show", "run"} - {"plan"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_application_has_the_settings_of_the_file(
    command: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('consumer_group = "shop-of-file"\nbroker_address = "127.0.0.1:1"\n')
    before = dict(os.environ)

    outcome = streamrt(*arguments(command, program), "--settings", path)
    shown = outcome.out if command == "plan" else outcome.sentence
    assert "127.0.0.1:1" in shown
    if command not in ("plan diff", "state snapshots"):
        assert "shop-of-file" in shown
    assert dict(os.environ) == before

    # The environment goes before the file, and may name it.
    monkeypatch.setenv("STREAMRT_SETTINGS_FILE", str(path))
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", "127.0.0.1:2")
    outcome = streamrt(*arguments(command, program))
    assert "127.0.0.1:2" in (outcome.out if command == "plan" else outcome.sentence)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_run_refuses_is_refused(command: str, program: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('commit_every = 8\nbroker_address = "127.0.0.1:1"\n')
    assert streamrt(*arguments(command, program), "--settings", path).sentence == (
        f"streamrt: commit_every=8 of {path} has no effect, because the program passes commit_every=7 to Application: "
        "remove it in one of the two places"
    )
    path.write_text("commit_evry = 8\n")
    assert "did you mean commit_every?" in streamrt(*arguments(command, program), "--settings", path).sentence


def test_a_control_address_of_the_file_has_the_token_that_a_run_has(program: str, tmp_path: Path) -> None:
    path, token = tmp_path / "settings.toml", tmp_path / "token"
    path.write_text('control = "0.0.0.0:7070"\nbroker_address = "127.0.0.1:1"\n')
    token.write_text("canary\n")
    assert "set control_token" in streamrt("plan", program, "--settings", path).sentence
    outcome = streamrt("plan", program, "--settings", path, "--token-file", token)
    assert outcome.code == 0
    assert "canary" not in outcome.out + outcome.err
