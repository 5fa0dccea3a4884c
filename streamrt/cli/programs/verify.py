"""`streamrt verify`: compares the views of an application with their queries."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamrt.cli.output import JsonOption, echo, examples, print_json
from streamrt.cli.programs.loading import ApplicationArgument
from streamrt.cli.programs.run_settings import SettingsOption, TokenFileOption, configured_application

if TYPE_CHECKING:
    from streamrt.sql.verify import DifferingRow, Verification

__all__ = ["EXAMPLES", "verify"]

EXAMPLES = examples(
    "streamrt verify shop:app",
    "streamrt verify shop:app shop.totals --hide customer",
    "streamrt verify shop:app --timeout 300 --json",
)


def verify(
    context: typer.Context,
    application: ApplicationArgument,
    views: Annotated[
        list[str] | None, typer.Argument(help="Names of materialized views; all by default.", show_default=False)
    ] = None,
    settings: SettingsOption = None,
    token_file: TokenFileOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.0, help="Seconds to wait until no records of a view are in flight.")
    ] = 60.0,
    hide: Annotated[
        list[str] | None, typer.Option("--hide", help="Column whose values are not shown; may be repeated.")
    ] = None,
    hide_values: Annotated[bool, typer.Option("--hide-values", help="Show no values of rows at all.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the rows of materialized views with those of their queries, which DuckDB computes over the same records.

    The application may run or be stopped. Exit code 1 if rows differ.
    """
    with configured_application(context, application, settings, token_file) as app:
        names = views or [view.name for view in app.views() if view.table is not None]
        if not names:
            echo("the application has no materialized view", err=True)
            raise typer.Exit(2)
        verifications = []
        for name in names:
            found = app.verify(name, timeout=timeout, hide=hide_values or hide or ())
            verifications.append(found)
            if not as_json:
                echo(str(found))
    if as_json:
        print_json({"views": [_as_dict(each) for each in verifications]})
    if not all(each.equal for each in verifications):
        raise typer.Exit(1)


def _as_dict(found: "Verification") -> dict[str, Any]:
    return {
        "view": found.view,
        "equal": found.equal,
        "offsets": str(found.offsets),
        "rows": found.rows,
        "differing": found.differing,
        "differences": [_row_as_dict(each) for each in found.differences],
        "excused_count": found.excused_count,
        "excused": [_row_as_dict(each) for each in found.excused],
        "notes": list(found.notes),
    }


def _row_as_dict(row: "DifferingRow") -> dict[str, Any]:
    return {
        "kind": row.kind,
        "row": {name: _shown(value) for name, value in row.row.items()},
        "records": [record._asdict() for record in row.records],
    }


def _shown(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
