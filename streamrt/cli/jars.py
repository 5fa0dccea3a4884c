"""`streamrt jars`: downloads the Java libraries in advance."""

from enum import Enum
from pathlib import Path
from typing import Annotated, get_args

import typer

from streamrt.cli.output import JsonOption, echo, examples, print_json
from streamrt.jvm.jars import JarSet, fetch_jars

__all__ = ["EXAMPLES", "SetName", "jars"]

EXAMPLES = examples("streamrt jars", "streamrt jars --set spark --directory jars", "streamrt jars --list")


class SetName(str, Enum):
    """Which libraries to provide."""

    spark = "spark"
    kafka = "kafka"
    registry = "registry"
    all = "all"


def jars(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            file_okay=False,
            help="Directory for the files; set STREAMRT_JARS_DIR to it on machines without network.",
        ),
    ] = None,
    set_name: Annotated[
        SetName | None,
        typer.Option(
            "--set",
            help="Which set: Spark's Kafka connector, the embedded broker, the embedded schema registry (160 MB), or "
            "all; without it, the first two.",
        ),
    ] = None,
    list_paths: Annotated[
        bool, typer.Option("--list", help="Print comma-separated paths, in the form of spark.jars.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch and check the Java libraries that StreamRT uses; existing files are kept."""
    if list_paths:
        if as_json:
            raise typer.BadParameter("choose one of --list and --json", param_hint="--list")
        if set_name is SetName.all:
            raise typer.BadParameter("the sets hold different versions: list one of them", param_hint="--set")
        chosen: JarSet = "spark" if set_name is None else set_name.value
        echo(",".join(str(path) for path in fetch_jars(chosen, directory=directory)))
        return
    found = []
    for name in get_args(JarSet):
        # Only tests with a registry need its libraries, which are larger than all others together.
        if set_name in (SetName.all, SetName(name)) or (set_name is None and name != "registry"):
            paths = fetch_jars(name, directory=directory)
            size = sum(path.stat().st_size for path in paths)
            found.append({"set": name, "bytes": size, "paths": [str(path) for path in paths]})
            if not as_json:
                where = f" in {directory}" if directory is not None else ""
                echo(f"{name}: {len(paths)} libraries ({size / 1e6:.1f} MB){where}")
    if as_json:
        print_json({"sets": found})
