"""`streamrt reset`: lets a stopped application start over."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from streamrt.cli.output import JsonOption, echo, examples, print_json
from streamrt.cli.programs.loading import ApplicationArgument
from streamrt.cli.programs.run_settings import SettingsOption, TokenFileOption, configured_application

if TYPE_CHECKING:
    from streamrt.runtime.driver.housekeeping.application_reset import ResetTo

__all__ = ["EXAMPLES", "reset"]

EXAMPLES = examples("streamrt reset shop:app --dry-run", "streamrt reset shop:app --to 2026-03-01T12:00 --yes")


def reset(
    context: typer.Context,
    application: ApplicationArgument,
    to: Annotated[
        str,
        typer.Option(
            help="Where to begin in the input topics: earliest, latest, a time such as 2026-03-01T12:00 (UTC unless it has "
            "a zone), or offsets as str(checkpoint.offsets) has them."
        ),
    ] = "earliest",
    settings: SettingsOption = None,
    token_file: TokenFileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Let an application start over: delete its state and its repartition topics, and set its offsets.

    Stop all instances first. Input and output topics stay as they are.
    """
    start = _read_start(to)

    with configured_application(context, application, settings, token_file) as app:
        report = app.reset(start, dry_run=True)
        if not dry_run:
            if not yes:
                for line in report.lines():
                    echo(line, err=as_json)
                typer.confirm(f"Reset consumer group {report.group!r}?", abort=True, err=as_json)
            report = app.reset(start)
    if as_json:
        print_json(report.as_dict())
        return
    echo(f"Consumer group {report.group!r}{' (nothing was changed)' if dry_run else ''}:")
    for line in report.lines():
        echo(f"  {line}")


def _read_start(text: str) -> "ResetTo":
    """Return where to begin.

    Raises:
        BadParameter: if the text is not a start.
        ConfigurationError: if it looks like offsets and is not.
    """
    from streamrt.kafka.completion_token import Offsets

    if text in ("earliest", "latest"):
        return cast("Literal['earliest', 'latest']", text)
    if text.startswith("{"):
        return Offsets.parse(text)
    try:
        # Python 3.10 does not take the Z of ISO 8601.
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not earliest, latest, a time or offsets", param_hint="--to") from None
