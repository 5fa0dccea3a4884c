"""`streamrt swap`: puts a version of a view that an application has built in the place of the view."""

from typing import Annotated

import typer

from streamrt.cli.output import echo, examples
from streamrt.cli.programs.loading import ApplicationArgument
from streamrt.cli.programs.run_settings import SettingsOption, TokenFileOption, configured_application

__all__ = ["EXAMPLES", "swap"]

EXAMPLES = examples("streamrt swap shop:app shop.totals", "streamrt swap shop:app shop.totals --timeout 3600")


def swap(
    context: typer.Context,
    application: ApplicationArgument,
    view: Annotated[str, typer.Argument(help="Name of the materialized view.", show_default=False)],
    settings: SettingsOption = None,
    token_file: TokenFileOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.0, help="Seconds to wait until the new version has caught up.")
    ] = 600.0,
) -> None:
    """Let a materialized view have the rows that this application builds next to it, once it has caught up.

    The application runs meanwhile, in other processes. The former rows are then in TABLE_next.
    """
    with configured_application(context, application, settings, token_file) as app:
        info = app.swap_view(view, timeout=timeout)
    echo(f"{info.name} has the rows of consumer group {info.maintained_by}, in topic {info.topic}")
