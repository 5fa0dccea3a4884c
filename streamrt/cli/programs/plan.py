"""`streamrt plan`: shows an application, and what its start would change, without running it."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from streamrt.cli.output import JsonOption, echo, examples, plural, print_json, print_table
from streamrt.cli.programs.loading import ApplicationArgument
from streamrt.cli.programs.run_settings import SettingsOption, TokenFileOption, configured_application

if TYPE_CHECKING:
    from streamrt.application.startup_plan import DeploymentPlan

__all__ = ["app"]

LOSS = 3
"""Exit code if state would be lost, or the start would be refused."""
_COLORS = {"ok": "green", "change": "cyan", "warning": "yellow", "loses state": "red", "refused": "red"}
_WIDTH = 12


class Format(str, Enum):
    """The forms of `streamrt plan`."""

    text = "text"
    mermaid = "mermaid"
    json = "json"


class _ApplicationOrCommand(TyperGroup):
    """Treats an argument that is not a command as the application to show."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_ApplicationOrCommand, no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Show an application, and what its start would change. Nothing is run, and nothing in Kafka is changed."""


@app.command(
    "show",
    epilog=examples(
        "streamrt plan shop:app",
        "streamrt plan shop:app --settings production.toml",
        "streamrt plan shop:app --format mermaid",
        "streamrt plan shop:app --json",
    ),
)
def show(
    context: typer.Context,
    application: ApplicationArgument,
    settings: SettingsOption = None,
    token_file: TokenFileOption = None,
    form: Annotated[Format, typer.Option("--format", help="Text, a Mermaid flowchart, or JSON.")] = Format.text,
    as_json: JsonOption = False,
) -> None:
    """Show topology, stores, topics and guarantees of an application; `show` may be left out. Needs no broker."""
    from streamrt.app import definition_of, environment_of
    from streamrt.runtime.driver.observation.outline import Outline

    with configured_application(context, application, settings, token_file) as loaded:
        outline = Outline.of(definition_of(loaded), environment_of(loaded).connection.bootstrap_servers)
    if as_json or form is Format.json:
        print_json(outline.as_dict())
        return
    if form is Format.mermaid:
        echo(outline.topology.as_mermaid())
        return
    echo(
        f"{outline.group} at {outline.brokers}: {outline.processing_guarantee}, {outline.processing_mode}\n\n"
        f"{outline.text}\n"
    )
    heads = ["TOPIC", "ROLE", "SETTINGS"]
    rows = [[each.name, each.role, each.settings] for each in outline.topics]
    if any(each.table for each in outline.topics):
        heads.append("TABLE")
        rows = [[*row, each.table or ""] for row, each in zip(rows, outline.topics, strict=True)]
    print_table(heads, rows)
    echo("\n" + "\n".join(outline.guarantees))


@app.command(
    "diff",
    epilog=examples(
        "streamrt plan diff shop:app",
        "streamrt plan diff shop:app --settings production.toml --all",
        "streamrt plan diff shop:app --json | jq '.findings[] | select(.kind != \"ok\")'",
    ),
)
def diff(
    context: typer.Context,
    application: ApplicationArgument,
    settings: SettingsOption = None,
    token_file: TokenFileOption = None,
    every: Annotated[bool, typer.Option("--all", help="Also print what stays as it is.")] = False,
    allow_loss: Annotated[
        bool, typer.Option("--allow-loss", help="Exit with 0 although state would be lost, unless a start is refused.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait for a broker.")
    ] = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Compare an application with what is deployed; exit code 3 if it would lose state, or could not start.

    The checks are those of a start, with a client that only reads: no topic is
    created, no offset committed, no group joined, no transaction ended. Kafka
    creates its own topic for offsets if no group ever committed.
    """
    from streamrt.app import definition_of, environment_of

    with configured_application(context, application, settings, token_file) as loaded:
        # After the application, which may name an error in less time.
        from streamrt.application.startup_plan import plan_deployment

        plan = plan_deployment(definition_of(loaded), environment_of(loaded), timeout)
    if as_json:
        print_json(plan.as_dict())
    else:
        _print_plan(plan, every=every)
    counts = plan.as_dict()["counts"]
    if counts["refused"] or (counts["loses state"] and not allow_loss):
        raise typer.Exit(LOSS)


def _print_plan(plan: "DeploymentPlan", *, every: bool) -> None:
    counts = plan.as_dict()["counts"]
    # What matters most stands last, next to the sums.
    order = list(_COLORS)
    for each in sorted(plan.changes, key=lambda change: order.index(change.kind.value)):
        if each.kind.value == "ok" and not every:
            continue
        # typer.style is removed where stdout is not a terminal.
        kind = typer.style(f"{each.kind.value:<{_WIDTH}}", fg=_COLORS[each.kind.value])
        echo(f" {each.subject}: {each.detail}", label=kind)
        if each.remedy:
            echo(f"{'':<{_WIDTH}} {each.remedy}")
    lost = counts["loses state"]
    words = [
        plural(counts["change"], "change"),
        plural(counts["warning"], "warning"),
        f"{lost} that {'loses' if lost == 1 else 'lose'} state",
        f"{counts['refused']} refused",
        f"{counts['ok']} unchanged",
    ]
    echo(f"{plan.group} at {plan.brokers}: {', '.join(words)}")
