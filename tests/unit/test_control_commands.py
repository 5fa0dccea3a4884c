"""The commands for a running application."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from streamrt import ApplicationStatus
from streamrt.cli import app as commands
from streamrt.errors import (
    ArgumentValueError,
    ConfigurationError,
    ControlRefusedError,
    ControlUnavailableError,
    ProcessingError,
    StateUnavailableError,
)
from tests.command_line import CliRunner
from tests.support import wait_until
from tests.unit.played import Played, played


@pytest.fixture
def command(app: Played, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command for the application."""
    monkeypatch.setenv("STREAMRT_CONTROL_URL", str(app.location))
    return lambda *arguments: CliRunner().invoke(commands, list(arguments))


def test_commands(app: Played, command: Callable[..., Result]) -> None:
    done = command("status")
    assert (done.exit_code, done.output[:14]) == (0, "shop: running ")
    done = command("pause", "orders")
    assert (done.exit_code, done.output) == (0, "topic orders is paused; the application is running\n")
    assert "paused topics: orders" in command("status").output
    assert command("resume", "orders").exit_code == 0
    assert command("pause").output == "the application is paused\n"
    assert json.loads(command("status", "--json").output)["status"] == "paused"
    assert json.loads(command("resume", "--json").output)["status"] == "running"
    assert command("checkpoint").output == "checkpoint 1: success\n  orders[0] at offset 5\n"
    assert json.loads(command("checkpoint", "--json").output)["offsets"] == {"orders[0]": 5}
    assert command("pause", "orders", "--source", "a").exit_code == 2
    assert isinstance(command("pause", "--source", "a").exception, ArgumentValueError)
    assert command("stop").output == "the application is stopped\n"
    done = command("status")
    assert (done.exit_code, "not ready: the application is stopped" in done.output) == (1, True)


def test_the_status_of_a_failed_application_leads_to_its_error(app: Played, command: Callable[..., Result]) -> None:
    app.failure = ProcessingError("apply-1 failed on orders[0] at offset 17")
    wait_until(lambda: app.status is ApplicationStatus.FAILED)
    shown = command("status").output
    assert "  ProcessingError: apply-1 failed on orders[0] at offset 17\n  streamrt explain E501 says more\n" in shown
    assert json.loads(command("status", "--json").output)["error"]["code"] == "E501"


def test_commands_with_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STREAMRT_CONTROL_TOKEN", raising=False)
    path = tmp_path / "token"
    path.write_text("sesame\n")
    with played(control_token="sesame") as app:
        run = CliRunner().invoke
        address = ["--url", str(app.location)]
        assert isinstance(run(commands, ["status", *address]).exception, ControlRefusedError)
        assert run(commands, ["status", *address, "--token-file", str(path)]).exit_code == 0
        assert run(commands, ["status", *address], env={"STREAMRT_CONTROL_TOKEN": "sesame"}).exit_code == 0
        by_file = {"STREAMRT_CONTROL_TOKEN_FILE": str(path)}
        assert run(commands, ["status", *address], env=by_file).exit_code == 0
        # This application has no state. It answers only those that have the token.
        stores = run(commands, ["state", "stores", *address], env=by_file)
        assert isinstance(stores.exception, StateUnavailableError)
        missing = run(commands, ["status", *address, "--token-file", str(tmp_path / "none")])
        assert isinstance(missing.exception, ConfigurationError)
    gone = run(commands, ["status", *address, "--json", "--token-file", str(path)])
    assert (gone.exit_code, json.loads(gone.output)["status"]) == (1, "unreachable")
    assert isinstance(run(commands, ["status", *address]).exception, ControlUnavailableError)
