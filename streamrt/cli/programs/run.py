"""`streamrt run`: runs an application of a module, with settings of flags, of the environment, and of a file."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamrt.cli.output import examples
from streamrt.cli.programs.loading import ApplicationArgument
from streamrt.cli.programs.run_settings import SettingsOption, TokenFileOption, configured_application, parse_flags

if TYPE_CHECKING:
    from streamrt.runtime.driver.life.restart import RestartPolicy

__all__ = ["EXAMPLES", "run"]

EXAMPLES = examples(
    "streamrt run shop:app",
    "streamrt run shop:app --settings production.toml --control 7070 --restart",
    "streamrt run shop:app --broker kafka:9092 --set processing_mode=resident --set commit_interval=1",
    "streamrt run shop:make_app --until end",
)
_POLICY = "Restarts"


class UntilChoice(str, Enum):
    """When a run ends by itself."""

    end = "end"


def run(
    context: typer.Context,
    application: ApplicationArgument,
    settings: SettingsOption = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting, before all others; may be repeated."),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", "--broker-address", metavar="HOST:PORT", help="The same as --set broker_address=HOST:PORT."
        ),
    ] = None,
    control: Annotated[
        str | None,
        typer.Option("--control", metavar="[HOST:]PORT", help="The same as --set control=PORT: the control server."),
    ] = None,
    token_file: TokenFileOption = None,
    until: Annotated[
        UntilChoice | None,
        typer.Option(
            "--until", help="end: stop when the sources have ended, and everything in the topics is processed."
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.0, metavar="SECONDS", help="Stop after so long without a new record.")
    ] = 0.0,
    count: Annotated[int, typer.Option("--count", min=0, help="Stop after so many outputs.")] = 0,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start again after failures that may pass.", rich_help_panel=_POLICY)
    ] = False,
    max_failures: Annotated[
        int | None,
        typer.Option(min=-1, help="With --restart: end after more failures in a row.", rich_help_panel=_POLICY),
    ] = None,
    initial_delay: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="With --restart: before the first.", rich_help_panel=_POLICY),
    ] = None,
    delay_increment: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="With --restart: longer each time.", rich_help_panel=_POLICY),
    ] = None,
    max_delay: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="SECONDS", help="With --restart: at most; 60 if not given.", rich_help_panel=_POLICY
        ),
    ] = None,
) -> None:
    """Run an application until Ctrl+C or SIGTERM, which stop it with a commit.

    Flags take precedence over the environment, and that over the file; the
    program has what none of them sets. A setting of a flag or
    of the file that the program fixes is refused, because it would have no effect.
    """
    policy = _make_policy(
        restart,
        {
            "max_failures": max_failures,
            "initial_delay": initial_delay,
            "delay_increment": delay_increment,
            "max_delay": max_delay,
        },
    )
    if policy is not None and (timeout > 0 or count > 0):
        raise typer.BadParameter("not with --timeout or --count, which end the run", param_hint="--restart")
    flags = parse_flags(sets or (), {"broker_address": ("--broker", broker), "control": ("--control", control)})
    with configured_application(context, application, settings, token_file, flags) as app:
        app.run(
            timeout=timeout, count=count, collect=False, restart=policy, until=None if until is None else until.value
        )


def _make_policy(restart: bool, parts: dict[str, Any]) -> "RestartPolicy | None":
    """Return when the application is started again.

    Raises:
        BadParameter: if there are details without `--restart`.
    """
    from streamrt.runtime.driver.life.restart import RestartPolicy

    given = {name: value for name, value in parts.items() if value is not None}
    if restart:
        return RestartPolicy(**given)
    for name in given:
        raise typer.BadParameter("it has no effect without --restart", param_hint=f"--{name.replace('_', '-')}")
    return None
