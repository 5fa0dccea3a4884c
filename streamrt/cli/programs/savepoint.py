"""`streamrt savepoint`: named copies of what a stopped application has committed, and groups that begin there."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption, open_cluster
from streamrt.cli.output import JsonOption, echo, examples, note, print_json, print_table
from streamrt.cli.programs.loading import ApplicationArgument
from streamrt.cli.programs.run_settings import SettingsOption, TokenFileOption, configured_application

if TYPE_CHECKING:
    from streamrt.cli.broker import Cluster
    from streamrt.errors import SavepointError
    from streamrt.savepoints.format import Savepoint

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Savepoints: named copies of state and offsets of stopped applications.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the savepoint.")]
GroupOption = Annotated[str, typer.Option("--group", help="The consumer group that the savepoint is from.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.callback()
def _group() -> None:
    """Savepoints: named copies of state and offsets of stopped applications."""


@app.command("create", epilog=examples("streamrt savepoint create shop:app before-2.0"))
def create(
    context: typer.Context,
    application: ApplicationArgument,
    name: NameArgument,
    settings: SettingsOption = None,
    token_file: TokenFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy everything that an application has committed. Stop all instances first.

    The version must be the one that has run last.
    """
    with configured_application(context, application, settings, token_file) as loaded:
        made = loaded.savepoint(name)
    _print_savepoint(made, as_json=as_json)


@app.command("list", epilog=examples("streamrt savepoint list --group shop"))
def list_savepoints(
    group: GroupOption,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """List the savepoints of a consumer group."""
    from streamrt.errors import SavepointError
    from streamrt.savepoints.format import Savepoint, all_savepoints

    with open_cluster(broker, config, timeout) as cluster:
        found = list(all_savepoints(cluster.admin, cluster.connection, group, timeout))
    if as_json:
        print_json({"savepoints": [_make_entry(name, group, each) for name, each in found]})
        return
    rows = [
        [name, each.created.isoformat(timespec="seconds"), "complete", len(each.stores)]
        if isinstance(each, Savepoint)
        else [name, "", "incomplete" if each is None else "damaged", ""]
        for name, each in found
    ]
    print_table(["NAME", "CREATED", "STATUS", "STORES"], rows)
    for _, each in found:
        if isinstance(each, SavepointError):
            note(str(each))


def _make_entry(name: str, group: str, found: "Savepoint | SavepointError | None") -> dict[str, Any]:
    from streamrt.savepoints.format import Savepoint

    if isinstance(found, Savepoint):
        return {**found.as_dict(), "complete": True}
    entry = {"name": name, "group": group, "complete": False}
    return entry if found is None else {**entry, "error": str(found)}


@app.command("show", epilog=examples("streamrt savepoint show before-2.0 --group shop"))
def show(
    name: NameArgument,
    group: GroupOption,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a savepoint."""
    with open_cluster(broker, config, timeout) as cluster:
        found = _find_savepoint(cluster, group, name)
    _print_savepoint(found, as_json=as_json)


@app.command("restore", epilog=examples("streamrt savepoint restore before-2.0 --group shop --to shop-trial"))
def restore(
    name: NameArgument,
    group: GroupOption,
    to: Annotated[
        str,
        typer.Option("--to", help="The consumer group that begins there: a new one, or the same one after a reset."),
    ],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Let a consumer group begin at a savepoint, which stays as it is. Then start the application with this group."""
    from streamrt.kafka.completion_token import Offsets
    from streamrt.savepoints.restore import restore_savepoint

    with open_cluster(broker, config, timeout) as cluster:
        found = _find_savepoint(cluster, group, name)
        offsets = Offsets(restore_savepoint(cluster.admin, cluster.connection, found, to, timeout=timeout))
    listed = {topic: offsets.partition_map(topic) for topic in offsets.topics}
    if as_json:
        print_json(
            {
                "group": to,
                "offsets": {
                    topic: {str(number): offset for number, offset in at.items()} for topic, at in listed.items()
                },
            }
        )
        return
    echo(f"consumer group {to!r} begins at savepoint {name!r} of {group!r}:")
    for topic, at in listed.items():
        text = ", ".join(f"{number}: {offset}" for number, offset in at.items())
        echo(f"  {topic}: offset {text} (by partition)")


@app.command("delete", epilog=examples("streamrt savepoint delete before-2.0 --group shop"))
def delete(
    name: NameArgument,
    group: GroupOption,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a savepoint, complete or not. Groups that were restored from it keep what they have."""
    from streamrt.errors import SavepointError
    from streamrt.savepoints.format import all_savepoints, savepoint_topic

    with open_cluster(broker, config, timeout) as cluster:
        if name not in dict(all_savepoints(cluster.admin, cluster.connection, group, timeout)):
            raise SavepointError(f"consumer group {group!r} has no savepoint {name!r}")
        if not yes:
            typer.confirm(f"Delete savepoint {name!r} of consumer group {group!r} permanently?", abort=True, err=True)
        cluster.admin.delete_topics([savepoint_topic(group, name)], timeout)
    if as_json:
        print_json({"deleted": name, "group": group})
    else:
        echo(f"deleted savepoint {name!r} of consumer group {group!r}")


def _find_savepoint(cluster: "Cluster", group: str, name: str) -> "Savepoint":
    from streamrt.errors import SavepointError
    from streamrt.savepoints.format import find_savepoint

    found = find_savepoint(cluster.admin, cluster.connection, group, name, cluster.timeout)
    if found is None:
        raise SavepointError(
            f"consumer group {group!r} has no complete savepoint {name!r}: `streamrt savepoint list --group {group}` "
            "lists them"
        )
    return found


def _print_savepoint(savepoint: "Savepoint", *, as_json: bool) -> None:
    if as_json:
        print_json(savepoint.as_dict())
        return
    created = savepoint.created.isoformat(timespec="seconds")
    echo(f"savepoint {savepoint.name!r} of consumer group {savepoint.group!r}, made at {created}:")
    for line in savepoint.lines():
        echo(f"  {line}")
