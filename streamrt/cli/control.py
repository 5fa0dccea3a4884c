"""`streamrt status`, `pause`, `resume`, `stop` and `checkpoint`: a running application, through its control address."""

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamrt.cli.output import JsonOption, echo, examples
from streamrt.common.addresses import DEFAULT_CONTROL_URL
from streamrt.common.texts import one_line
from streamrt.errors import ConfigurationError, ControlUnavailableError

if TYPE_CHECKING:
    from streamrt.control import Client

__all__ = ["TokenFileOption", "connected", "read_token", "register"]

_URL = Annotated[
    str,
    typer.Option("--url", envvar="STREAMRT_CONTROL_URL", help="The control address of the application."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="STREAMRT_CONTROL_TOKEN_FILE",
        dir_okay=False,
        help="File with the token. Without it, the variable STREAMRT_CONTROL_TOKEN has the token, if there is one.",
    ),
]
_WAIT = Annotated[float, typer.Option("--wait", min=0.0, help="Seconds to wait until it is done.")]
_TOPIC = Annotated[str | None, typer.Argument(help="An input topic; without it, the whole application.")]
_SOURCE = Annotated[str | None, typer.Option("--source", help="A source, instead of topics.")]


def register(app: typer.Typer) -> None:
    """Add the commands.

    Args:
        app: gets them.
    """
    for command, lines in (
        (status, ("streamrt status", "streamrt status --url http://127.0.0.1:7070 --json")),
        (pause, ("streamrt pause", "streamrt pause orders --wait 60")),
        (resume, ("streamrt resume", "streamrt resume orders")),
        (stop, ("streamrt stop --wait 120", "streamrt stop --fail")),
        (checkpoint, ("streamrt checkpoint", "streamrt checkpoint --json | jq .offsets")),
    ):
        app.command(command.__name__, epilog=examples(*lines))(command)


def status(url: _URL = DEFAULT_CONTROL_URL, token_file: TokenFileOption = None, as_json: JsonOption = False) -> None:
    """Show the state of an application.

    The exit code is 0 if it works, paused or not, and 1 if it does not, or does not answer.
    """
    with connected(url, token_file) as client:
        try:
            found = client.describe_status()
            ready, reasons = client.ready()
        except ControlUnavailableError as error:
            if not as_json:
                raise
            found, ready, reasons = {"status": "unreachable"}, False, [str(error)]
    found = {**found, "ready": ready, "reasons": reasons}
    if as_json:
        echo(json.dumps(found))
    else:
        echo(f"{found['group']}: {found['status']} since {found['since']}, wanted: {found['desired_status']}")
        for name in ("paused_topics", "paused_sources"):
            if found[name]:
                echo(f"  {name.replace('_', ' ')}: {', '.join(found[name])}")
        if found["error"] is not None:
            echo(f"  {found['error']['error']}: {found['error']['message']}")
            # An application of an earlier version sends no code.
            if code := found["error"].get("code"):
                echo(f"  streamrt explain {one_line(code)} says more")
        for reason in reasons:
            echo(f"  not ready: {reason}")
    if not ready:
        raise typer.Exit(1)


def pause(
    topic: _TOPIC = None,
    source: _SOURCE = None,
    wait: _WAIT = 30.0,
    url: _URL = DEFAULT_CONTROL_URL,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pause an application, one of its topics, or a source; return when everything that was read is committed."""
    _request_change("paused", topic, source, wait, url, token_file, as_json=as_json)


def resume(
    topic: _TOPIC = None,
    source: _SOURCE = None,
    wait: _WAIT = 30.0,
    url: _URL = DEFAULT_CONTROL_URL,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resume an application, one of its topics, or a source."""
    _request_change("resumed", topic, source, wait, url, token_file, as_json=as_json)


def stop(
    fail: Annotated[
        bool, typer.Option("--fail", help="Do not commit: work since the last commit is repeated.")
    ] = False,
    wait: _WAIT = 60.0,
    url: _URL = DEFAULT_CONTROL_URL,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop an application, with a commit, and wait until it has stopped."""
    from streamrt.runtime.driver.life.lifecycle import ApplicationStatus

    with connected(url, token_file) as client:
        client.stop(fail=fail, wait=wait > 0, timeout=wait)
        state = client.status
        if wait > 0 and state is ApplicationStatus.UNREACHABLE:
            # Its process has ended.
            state = ApplicationStatus.STOPPED
    _print_answer({"status": state.value}, f"the application is {state.value}", as_json=as_json)


def checkpoint(
    wait: _WAIT = 300.0,
    url: _URL = DEFAULT_CONTROL_URL,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Commit everything that was processed, and show the committed offsets."""
    with connected(url, token_file) as client:
        made = client.checkpoint(wait=wait > 0, timeout=wait)
    offsets = {str(partition): offset for partition, offset in sorted(made.offsets.items())}
    document = {"number": made.number, "status": made.status, "offsets": offsets, "error": made.error}
    lines = [f"checkpoint {made.number}: {made.status}" + (f": {made.error}" if made.error else "")]
    lines += [f"  {partition} at offset {offset}" for partition, offset in offsets.items()]
    _print_answer(document, "\n".join(lines), as_json=as_json)
    if made.status == "failure":
        raise typer.Exit(1)


def _request_change(
    done: str,
    topic: str | None,
    source: str | None,
    wait: float,
    url: str,
    token_file: Path | None,
    *,
    as_json: bool,
) -> None:
    if topic is not None and source is not None:
        raise typer.BadParameter("give a topic or a source, not both", param_hint="--source")
    with connected(url, token_file) as client:
        change: Callable[[], None]
        if source is not None:
            change = functools.partial(client.pause_source if done == "paused" else client.resume_source, source)
        else:
            change = functools.partial(client.pause if done == "paused" else client.resume, topic, wait)
        change()
        found = client.describe_status()
    what = f"source {source}" if source is not None else f"topic {topic}" if topic is not None else "the application"
    state = "" if what == "the application" and found["status"] == done else f"; the application is {found['status']}"
    _print_answer(found, f"{what} is {done}{state}", as_json=as_json)


def connected(url: str, token_file: Path | None, follow_hosts: Sequence[str] = ()) -> "Client":
    """Return a client with the token of a file, or of the environment.

    Args:
        url: the control address.
        token_file: the file, or None.
        follow_hosts: other hosts that may get the token.

    Raises:
        ConfigurationError: if the file cannot be read.
    """
    from streamrt.control import Client

    token = None if token_file is None else read_token(token_file)
    return Client(url, token, follow_hosts=follow_hosts)


def read_token(path: Path) -> str:
    """Return the token in a file.

    Raises:
        ConfigurationError: if the file cannot be read.
    """
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"the token file {path} cannot be read: {why}") from None


def _print_answer(document: dict[str, Any], words: str, *, as_json: bool) -> None:
    echo(json.dumps(document) if as_json else words)
