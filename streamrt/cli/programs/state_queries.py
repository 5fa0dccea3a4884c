"""`streamrt state stores`, `get` and `scan`: the state of a running application, through its control address."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamrt.cli.control import TokenFileOption, connected
from streamrt.cli.output import JsonOption, echo, examples
from streamrt.common.addresses import DEFAULT_CONTROL_URL

if TYPE_CHECKING:
    from streamrt.queries.stored_state import StateAnswer

__all__ = ["register"]

_URL = Annotated[
    str,
    typer.Option(
        "--url", envvar="STREAMRT_CONTROL_URL", help="The control address of any instance of the application."
    ),
]
_STORE = Annotated[str, typer.Argument(help="The name of the store.")]
_TOPIC = Annotated[
    str | None, typer.Option("--topic", help="The topic of the store, if several have one of this name.")
]
_WAIT = Annotated[float, typer.Option("--wait", min=0.0, help="Seconds to wait, while the partition moves, too.")]
_FOLLOW = Annotated[
    bool,
    typer.Option("--follow/--no-follow", help="Ask the owner, with the same token, if another instance owns the key."),
]
_FOLLOW_HOST = Annotated[
    list[str] | None,
    typer.Option(
        "--follow-host",
        envvar="STREAMRT_CONTROL_FOLLOW_HOSTS",
        help="A host of another instance that may get the token: a name, with * for any characters, or a network such as "
        "10.0.0.0/8. That of --url needs no entry.",
    ),
]
_FORM = Annotated[
    Literal["text", "json", "base64"],
    typer.Option("--key-format", help="The form of keys: text as its bytes or characters, JSON, or base64 for bytes."),
]
_CURSOR = Annotated[str | None, typer.Option("--cursor", help="Go on there: the cursor of a former answer.")]


def register(app: typer.Typer) -> None:
    """Add the commands.

    Args:
        app: gets them.
    """
    app.command("stores", epilog=examples("streamrt state stores"))(stores)
    app.command(
        "get", epilog=examples("streamrt state get default ann", "streamrt state get default ann total --json")
    )(get)
    app.command("scan", epilog=examples("streamrt state scan default --partition 0 --prefix customer-"))(scan)


def stores(url: _URL = DEFAULT_CONTROL_URL, token_file: TokenFileOption = None, as_json: JsonOption = False) -> None:
    """List the stores of a running application."""
    with connected(url, token_file) as client:
        found = client.state_stores()
    if as_json:
        echo(json.dumps([vars(each) for each in found]))
        return
    for each in found:
        echo(f"{each.store} of {each.topic}: {each.kind}, {each.partitions} partitions")


def get(
    store: _STORE,
    key: Annotated[str, typer.Argument(help="The message key.")],
    state_key: Annotated[
        str | None, typer.Argument(help="A key of the state, as JSON or text; all without it.")
    ] = None,
    key_format: _FORM = "text",
    topic: _TOPIC = None,
    partition: Annotated[int | None, typer.Option("--partition", help="The partition, if not that of the key.")] = None,
    from_ms: Annotated[
        int | None, typer.Option("--from", help="Windows that start at this time or later, in ms.")
    ] = None,
    to_ms: Annotated[int | None, typer.Option("--to", help="Windows that start before this time, in ms.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, max=1000, help="Maximum number of entries.")] = None,
    cursor: _CURSOR = None,
    wait: _WAIT = 10.0,
    follow: _FOLLOW = True,
    follow_host: _FOLLOW_HOST = None,
    url: _URL = DEFAULT_CONTROL_URL,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the committed state of a message key, with its position.

    The exit code is 1 if the key has no state.
    """
    query: dict[str, Any] = {"key_format": key_format, "topic": topic, "partition": partition, "state_key": state_key}
    query.update({"from": from_ms, "to": to_ms, "limit": limit, "cursor": cursor})
    with connected(url, token_file, follow_host or ()) as client:
        answer = client.query_state_text(store, key, query, wait, follow=follow)
    _print_answer(answer, as_json=as_json)
    if not answer.found:
        raise typer.Exit(1)


def scan(
    store: _STORE,
    partition: Annotated[int, typer.Option("--partition", min=0, help="The partition.")] = 0,
    prefix: Annotated[str | None, typer.Option("--prefix", help="Only keys that begin so.")] = None,
    start: Annotated[str | None, typer.Option("--start", help="Only keys from this one on.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Only keys before this one.")] = None,
    key_format: _FORM = "text",
    topic: _TOPIC = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of entries.")] = 100,
    cursor: _CURSOR = None,
    wait: _WAIT = 10.0,
    follow: _FOLLOW = True,
    follow_host: _FOLLOW_HOST = None,
    url: _URL = DEFAULT_CONTROL_URL,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the committed state of several message keys of a partition, in the order of the store."""
    query: dict[str, Any] = {"key_format": key_format, "topic": topic, "partition": partition}
    query.update(prefix=prefix, start=start, end=end, limit=limit, cursor=cursor)
    with connected(url, token_file, follow_host or ()) as client:
        answer = client.query_state_text(store, None, query, wait, follow=follow)
    _print_answer(answer, as_json=as_json)


def _print_answer(answer: "StateAnswer", *, as_json: bool) -> None:
    from streamrt.control.state_answers import dict_of_answer, shown_value

    if as_json:
        echo(json.dumps(dict_of_answer(answer)))
        return
    for entry in answer.entries:
        key, value = json.dumps(_plain_key(entry.key)), json.dumps(shown_value(entry.value))
        if entry.start_ms is None:
            echo(f"{key} {json.dumps(shown_value(entry.state_key))}: {value}")
        else:
            echo(f"{key} [{entry.start_ms}, {entry.end_ms}): {value}")
    if not answer.entries:
        echo("no state")
    position = ", ".join(f"{partition} at offset {offset}" for partition, offset in sorted(answer.position.items()))
    echo(f"position: {position}")
    if answer.cursor is not None:
        echo(f"more: --cursor {answer.cursor}")


def _plain_key(key: Any) -> Any:
    from streamrt.control.state_answers import shown_value

    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            pass
    return shown_value(key)
