"""`streamrt run`: which value a setting gets, and what is refused. A run of a process is in tests/spark."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamrt.cli.programs.run_settings import in_environment
from streamrt.config import ApplicationConfig
from tests.command_line import Outcome, streamrt
from tests.support import unique

PROGRAM = """
import logging

from streamrt import Application, ConnectionConfig


def make():
    app = Application(commit_every=7, loglevel=None)
    print(app.config.commit_interval, app.config.commit_every, app.config.auto_create_topics, app.config.state_dir)
    return app


def login():
    return Application(ConnectionConfig(bootstrap_servers="kafka:9093"), loglevel=None)


def guarded():
    return Application("kafka:9092", loglevel=None, control_token="canary-of-program")


def logs():
    logger = logging.getLogger("streamrt")
    logger.addHandler(logging.NullHandler())
    logger.setLevel("ERROR")
    return Application("kafka:9092")


def plain():
    app = Application("kafka:9092")
    print(app.config.loglevel, app.config.progress_timeout, app.config.control)
    return app


def session():
    return Application("kafka:9092", loglevel=None, spark_session=object())
"""

Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a function of the program as an application. It has no dataframe, so its run is refused, after all checks."""
    name = unique("shop").replace("-", "_")
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for field in ApplicationConfig.model_fields:
        monkeypatch.delenv(ApplicationConfig.variable(field), raising=False)
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", "kafka:9092")
    return lambda function, *arguments: streamrt("run", f"{name}:{function}", *arguments)


def shown(outcome: Outcome) -> str:
    assert "there is nothing to run" in outcome.sentence
    return outcome.out.strip()


def test_flags_go_before_the_environment_and_that_before_the_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('commit_interval = 2\nauto_create_topics = false\nstate_dir = "file"\n')
    assert shown(run("make")) == "5.0 7 True .streamrt/state"
    assert shown(run("make", "--settings", path)) == "2.0 7 False file"
    # Variables are read regardless of case.
    monkeypatch.setenv("streamrt_state_dir", "environment")
    before = dict(os.environ)
    assert shown(run("make", "--settings", path)) == "2.0 7 False environment"
    assert shown(run("make", "--settings", path, "--set", "state_dir=flag")) == "2.0 7 False flag"
    assert dict(os.environ) == before
    monkeypatch.setenv("STREAMRT_SETTINGS_FILE", str(path))
    assert shown(run("make", "--set", "commit_interval=0.5")) == "0.5 7 False environment"


def test_a_flag_or_file_that_the_program_overrules_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("commit_every = 8\n")
    assert run("make", "--settings", path, "--set", "loglevel=debug").sentence == (
        "streamrt: loglevel=DEBUG of --set has no effect, because the program passes loglevel=None to Application; "
        f"commit_every=8 of {path} has no effect, because the program passes commit_every=7 to Application: "
        "remove it in one of the two places"
    )
    # The same value is not a contradiction; the environment is for several programs.
    shown(run("make", "--set", "commit_every=7"))
    monkeypatch.setenv("STREAMRT_COMMIT_EVERY", "9")
    shown(run("make", "--settings", path))
    shown(run("login"))
    shown(run("login", "--broker", "kafka:9093"))
    assert "passes broker_address=kafka:9093" in run("login", "--broker", "other:9092").sentence
    assert "passes a spark_session" in run("session", "--set", "spark_master=local[1]").sentence


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The package's logger, as if nothing had configured it."""
    package = logging.getLogger("streamrt")
    before = (package.handlers[:], package.level, package.propagate)
    package.handlers[:] = []
    yield package
    package.handlers[:], package.level, package.propagate = before


def test_logging_that_the_program_has_configured_is_not_overruled_in_silence(run: Run, logger: logging.Logger) -> None:
    of_logger = "has no effect in this process, because the program gives the logger 'streamrt'"
    assert run("logs", "--set", "loglevel=debug", "--set", "log_format=json").sentence == (
        f"streamrt: loglevel=DEBUG of --set {of_logger} the level ERROR; "
        f"log_format=json of --set {of_logger} handlers with another format: remove it in one of the two places"
    )
    shown(run("logs", "--set", "loglevel=error", "--set", "log_format=text"))
    shown(run("logs", "--set", "loglevel=none"))
    logger.handlers[:] = []
    shown(run("plain", "--set", "loglevel=debug", "--set", "log_format=json"))
    assert logger.level == logging.DEBUG


def test_none_is_a_word_of_files_and_flags(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logger: logging.Logger
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('loglevel = "none"\nprogress_timeout = "None"\n')
    monkeypatch.setenv("STREAMRT_CONTROL", "7070")
    assert shown(run("plain", "--settings", path, "--set", "control=none")) == "None None None"
    assert logger.handlers == []
    assert "passes commit_every=7" in run("make", "--set", "loglevel=none", "--set", "commit_every=1").sentence


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--set", "commit_evry=1"], "commit_evry is not a setting; did you mean commit_every?"),
        (["--set", "colour=1"], "colour is not a setting: docs/configuration.md lists them"),
        (["--set", "spark_config=1"], "spark_config can be set by the program alone"),
        (["--set", "commit_every=ten"], "commit_every: Input should be a valid integer"),
        (["--set", "transaction_interval=0"], "transaction_interval: Input should be greater than 0"),
        (["--control", "here"], "control: must be a port or host:port"),
        (["--set", "control=1", "--control", "2"], "control is given twice"),
        (["--set", "canary"], "give NAME=VALUE"),
        (["--set", "sasl_password=canary"], "secrets belong to the program"),
        (["--set", "api_key=canary"], "secrets belong to the program"),
        (["--set", "ssl_key_pem=canary"], "secrets belong to the program"),
        (["--set", "control_token=canary"], "pass a file with --token-file"),
        (["--max-delay", "1"], "no effect without --restart"),
        (["--restart", "--count", "1"], "not with --timeout or --count"),
    ],
)
def test_wrong_options(run: Run, arguments: list[str], why: str) -> None:
    outcome = run("make", *arguments)
    assert outcome.code == 2
    assert why in " ".join(outcome.err.replace("│", " ").split())
    assert "canary" not in outcome.err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "commit_evry = 1\ncommit_every = true",
            "commit_evry is not a setting; did you mean commit_every?; commit_every:",
        ),
        ("control_token = 'canary'", "control_token is a secret: set the variable STREAMRT_CONTROL_TOKEN"),
        ("[shop]\ncommit_every = 1", "shop is not a setting"),
        ("commit_interval = [1]", "commit_interval: Input should be a valid number"),
        ("commit_every =", "it is not TOML"),
    ],
)
def test_wrong_files(run: Run, tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    sentence = run("make", "--settings", path).sentence
    assert why in sentence
    assert str(path) in sentence
    assert "canary" not in sentence


def test_a_file_that_cannot_be_read(run: Run, tmp_path: Path) -> None:
    assert "No such file" in run("make", "--settings", tmp_path / "none.toml").sentence
    (tmp_path / "latin.toml").write_bytes(b"state_dir = '\xff'")
    assert "is not UTF-8" in run("make", "--settings", tmp_path / "latin.toml").sentence


def test_rules_between_settings_are_those_of_the_application(run: Run) -> None:
    assert (
        "has no effect with processing_mode='micro-batch'" in run("make", "--set", "transaction_interval=0.2").sentence
    )
    resident = ["--set", "processing_mode=resident", "--set", "processing_guarantee=exactly-once"]
    shown(run("make", "--set", "transaction_interval=0.2", *resident))


def test_the_token_of_the_control_server_comes_from_a_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text("canary-of-file\n")
    by_file = ["--token-file", path]
    assert "without a control server" in run("make", *by_file).sentence
    assert "set control_token" in run("make", "--control", "0.0.0.0:0").sentence
    shown(run("make", "--control", "0.0.0.0:0", *by_file))
    assert "STREAMRT_CONTROL_TOKEN" not in os.environ
    overruled = run("guarded", "--control", "0", *by_file).sentence
    assert "the program passes control_token" in overruled
    assert "canary" not in overruled
    monkeypatch.setenv("STREAMRT_CONTROL_TOKEN_FILE", str(path))
    shown(run("guarded", "--control", "0"))


def test_policies_of_restarts(run: Run) -> None:
    shown(run("make", "--restart", "--max-failures", "3", "--initial-delay", "1", "--delay-increment", "2"))
    assert "above max_delay=1" in run("make", "--restart", "--initial-delay", "2", "--max-delay", "1").sentence


def test_the_environment_is_as_before_after_an_error() -> None:
    before = dict(os.environ)
    with pytest.raises(KeyError), in_environment({"STREAMRT_COMMIT_EVERY": "1"}):
        os.environ.pop("STREAMRT_NO_SUCH_VARIABLE")
    assert dict(os.environ) == before
