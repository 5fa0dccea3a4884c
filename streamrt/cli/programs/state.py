"""`streamrt state`: queries of running applications, and maintenance of state while an application is stopped."""

from pathlib import Path
from typing import Annotated

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption, open_cluster
from streamrt.cli.output import JsonOption, echo, examples, print_json
from streamrt.cli.programs.state_queries import register
from streamrt.cli.programs.state_snapshots import snapshots
from streamrt.config import DEFAULT_STATE_DIR

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="State of applications.")


register(app)
app.command(
    "snapshots",
    epilog=examples("streamrt state snapshots shop:app", "streamrt state snapshots s3://bucket/prefix --verify"),
)(snapshots)


@app.callback()
def _group() -> None:
    """State of applications: look at it, or delete it."""


@app.command("forget", epilog=examples("streamrt state forget --group shop --topic orders --store default"))
def forget(
    group: Annotated[str, typer.Option(help="The consumer group of the application.")],
    topic: Annotated[
        list[str],
        typer.Option(help="The topic of the store; give the option once for each topic if several were merged."),
    ],
    store: Annotated[str, typer.Option(help="The name of the store.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    state_dir: Annotated[
        Path, typer.Option(envvar="STREAMRT_STATE_DIR", file_okay=False, help="The state directory.")
    ] = Path(DEFAULT_STATE_DIR),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete one store, so that it starts empty at the committed offsets; the rest of the application does not change."""
    from streamrt.runtime.driver.housekeeping.forget import StoreToForget, claimed_store

    directory = state_dir.absolute()
    with open_cluster(broker, config, timeout) as cluster:
        found = StoreToForget.find(cluster.admin, group, topic, store, directory, timeout)
        if not (yes and as_json):
            echo(
                f"Store {store!r} of {found.scope}, consumer group {group!r}. This will be deleted permanently:",
                err=as_json,
            )
            for line in found.lines():
                echo(f"  {line}", err=as_json)
        if not yes:
            typer.confirm("Delete it?", abort=True, err=as_json)
        with claimed_store(cluster.admin, cluster.connection, group, topic, store, directory, timeout) as found:
            found.forget(cluster.admin, directory, timeout)
    if as_json:
        offsets = {str(partition): offset for partition, offset in sorted(found.offsets.items())}
        files = [str(path) for path in found.files]
        about = {"group": group, "topic": found.scope, "store": store, "changelog": found.changelog}
        print_json({**about, "offsets": offsets, "files": files})
        return
    echo("Deleted. The store starts empty at the committed offsets when the application starts.")
