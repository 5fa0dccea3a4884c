"""`streamrt repartition`: gives a stopped application with state more partitions."""

from typing import Annotated

import typer

from streamrt.cli.output import JsonOption, echo, examples, print_json
from streamrt.cli.programs.loading import ApplicationArgument
from streamrt.cli.programs.run_settings import SettingsOption, TokenFileOption, configured_application

__all__ = ["EXAMPLES", "repartition"]

EXAMPLES = examples(
    "streamrt repartition shop:app --partitions 12 --dry-run",
    "streamrt repartition shop:app --partitions 12 --yes",
)


def repartition(
    context: typer.Context,
    application: ApplicationArgument,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="The new number of partitions of inputs and internal topics.")
    ],
    settings: SettingsOption = None,
    token_file: TokenFileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Give an application more partitions, and move the state of each key to its new one.

    First end the producers of its inputs, let it process everything, and stop all instances. If the command ends in the
    middle, give it again: it continues.
    """
    with configured_application(context, application, settings, token_file) as app:
        report = app.repartition(partitions, dry_run=True)
        if not dry_run:
            if not yes:
                for line in report.lines():
                    echo(line, err=as_json)
                typer.confirm(
                    f"Repartition consumer group {report.group!r}? Kafka cannot take partitions away again.",
                    abort=True,
                    err=as_json,
                )
            report = app.repartition(partitions)
    if as_json:
        print_json(report.as_dict())
        return
    echo(f"Consumer group {report.group!r}{' (nothing was changed)' if dry_run else ''}:")
    for line in report.lines():
        echo(f"  {line}")
