"""`streamrt table`: lists, shows, creates, changes and drops tables."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption
from streamrt.cli.output import JsonOption, echo, examples, print_json, print_table
from streamrt.cli.tables import table_get, table_rows, table_writes
from streamrt.cli.tables.catalog import CatalogOption, IfExistsChoice, IfExistsOption, open_catalog

if TYPE_CHECKING:
    from streamrt.tables import TableInfo, Usage

__all__ = ["app"]

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="DATABASE.TABLE, or the name of a table in the database 'default'.")
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="Additional text, kept with the table; in alter, an empty value removes it.",
    ),
]
app = typer.Typer(no_args_is_help=True, help="List, show, create, change and drop tables.")


@app.callback()
def _group() -> None:
    """List, show, create, change and drop tables."""


@app.command(
    "list",
    epilog=examples("streamrt table list shop", "streamrt table list --json | jq -r '.tables[].name'"),
)
def list_tables(
    database: Annotated[str | None, typer.Argument(help="Only tables of this database.")] = None,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tables of the catalogue."""
    with open_catalog(broker, config, timeout, catalog) as opened:
        found = opened.infos(database)
    if as_json:
        print_json({"tables": [info.as_dict() for info in found]})
        return
    rows = [
        [info.name, _show_kind(info), info.topic or info.connector, info.num_partitions, info.format, info.comment]
        for info in found
    ]
    print_table(["TABLE", "KIND", "TOPIC", "PARTITIONS", "FORMAT", "COMMENT"], rows)


@app.command(
    "show",
    epilog=examples("streamrt table show shop.orders", "streamrt table show shop.orders --json | jq .schema.columns"),
)
def show(
    table: TableArgument,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a table: columns, topic, formats, and the applications that use it."""
    with open_catalog(broker, config, timeout, catalog) as opened:
        info = opened.load(table)
        usages = opened.usages(table)
    if as_json:
        used = [
            {"kind": usage.kind, "application": usage.application, "since": _format_since(usage)} for usage in usages
        ]
        print_json({**info.as_dict(), "usages": used})
        return
    print_table(["PROPERTY", "VALUE"], [[name, value] for name, value in _list_properties(info).items() if value])
    if info.schema is not None:
        echo("")
        rows = [
            [each.name, each.word, "" if each.nullable else "NOT NULL", each.comment] for each in info.schema.fields
        ]
        print_table(["COLUMN", "TYPE", "NULL", "COMMENT"], rows)
    if usages:
        echo("")
        print_table(
            ["APPLICATION", "USE", "SINCE"], [[usage.application, usage.kind, _format_since(usage)] for usage in usages]
        )


@app.command(
    "create",
    epilog=examples(
        'streamrt table create shop.orders "id BIGINT NOT NULL, customer STRING" --key customer --partitions 4',
        "streamrt table create orders --topic orders-v1",
        'streamrt table create shop.orders "id BIGINT" --format avro --set retention.ms=604800000 --if-exists ignore',
        'streamrt table create shop.customers "id BIGINT, n BIGINT, PRIMARY KEY (id)" --merge "aggregate(n=sum)" --ttl 30d',
        'streamrt table create shop.rides "id BIGINT" --connector http-sse --connector-option url=https://rides.example/x',
    ),
)
def create(
    table: TableArgument,
    columns: Annotated[
        str | None,
        typer.Argument(metavar="COLUMNS", help='Such as "id BIGINT NOT NULL, name STRING"; none for no schema.'),
    ] = None,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    topic: Annotated[str | None, typer.Option(help="Topic; by default the name of the table.")] = None,
    connector: Annotated[
        str | None, typer.Option(metavar="WORD", help="Connector of another system, such as http-sse, sqs or source.")
    ] = None,
    connector_options: Annotated[
        list[str] | None,
        typer.Option(
            "--connector-option",
            metavar="NAME=VALUE",
            help="Option of the connector; secrets as env:NAME or file:PATH.",
        ),
    ] = None,
    connection: Annotated[str | None, typer.Option(metavar="NAME", help="Connection of the catalogue.")] = None,
    row_format: Annotated[str, typer.Option("--format", help="Format of the rows.")] = "json",
    format_options: Annotated[
        list[str] | None,
        typer.Option("--format-option", metavar="NAME=VALUE", help="Option of the format; may be repeated."),
    ] = None,
    key: Annotated[list[str] | None, typer.Option(help="Column of the key; may be repeated.")] = None,
    key_format: Annotated[str, typer.Option(help="Format of the keys.")] = "json",
    event_time: Annotated[str | None, typer.Option("--time", help="Column with the event time.")] = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="Partitions of a new topic.")] = None,
    replication_factor: Annotated[int | None, typer.Option(min=1, help="Replicas of a new topic.")] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="Option of a new topic; may be repeated.")
    ] = None,
    maintained: Annotated[
        bool, typer.Option("--maintained", help="An application merges all writes; follows from the next four.")
    ] = False,
    merge: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="What an upsert does: last, first, versioned(at), sequence_groups(at: a, b) or aggregate(n=sum).",
        ),
    ] = None,
    deletes: Annotated[str | None, typer.Option(help="What a delete does: allow, ignore or refuse.")] = None,
    changelog: Annotated[bool, typer.Option("--changelog", help="Write all changes to TABLE$changelog.")] = False,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long a row is kept that is not written again, such as 30d.")
    ] = None,
    comment: Annotated[str | None, typer.Option(help="What a row means.")] = None,
    properties: PropertyOption = None,
    if_exists: IfExistsOption = IfExistsChoice.error,
    create_database: Annotated[
        bool, typer.Option("--create-database", help="Create the database, too, if it does not exist.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, and create nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create a table, and its topic if it does not exist."""
    from streamrt.tables.descriptions.connectors import connector_of_texts
    from streamrt.tables.descriptions.rule_texts import parse_merge, parse_ttl
    from streamrt.tables.descriptions.variables import from_text

    settings = _read_options(connector_options, "NAME=VALUE", "--connector-option")
    if settings and connector is None:
        raise typer.BadParameter("there is no --connector that could have it", param_hint="--connector-option")
    with open_catalog(broker, config, timeout, catalog) as opened:
        if create_database and "." in table and not dry_run:
            opened.create_database(table.partition(".")[0], if_exists="ignore")
        made = opened.create_table(
            table,
            columns,
            topic=topic,
            connector=None if connector is None else connector_of_texts(connector, settings),
            connection=connection,
            format=row_format,
            format_options={
                name: from_text(text)
                for name, text in _read_options(format_options, "NAME=VALUE", "--format-option").items()
            },
            key=key,
            key_format=key_format,
            time=event_time,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=_read_options(options, "OPTION=VALUE", "--set"),
            maintained=maintained or None,
            merge="last" if merge is None else parse_merge(merge),
            deletes=deletes,  # type: ignore[arg-type]  # checked there
            changelog=changelog,
            ttl=None if ttl is None else parse_ttl(ttl),
            comment=comment,
            properties=_read_options(properties, "NAME=VALUE", "--property"),
            if_exists=if_exists.value,
            dry_run=dry_run,
        )
    if as_json:
        print_json({**made.info.as_dict(), "dry_run": dry_run})
        return
    where = f"connector {made.info.connector}" if made.kind == "external" else f"topic {made.info.topic}"
    echo(f"{'would create' if dry_run else 'created'} {made.name}: {where}")


@app.command(
    "alter",
    epilog=examples(
        "streamrt table alter shop.orders --add \"voucher STRING COMMENT 'code'\"",
        "streamrt table alter shop.orders --drop voucher --expect 3",
        "streamrt table alter shop.orders --widen amount=BIGINT --comment 'paid orders'",
        "streamrt table alter shop.orders --topic-config retention.ms=86400000",
    ),
)
def alter(
    table: TableArgument,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    add: Annotated[str | None, typer.Option(metavar="COLUMNS", help='Such as "name STRING".')] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column to drop; may be repeated.")] = None,
    widen: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=TYPE", help="A wider type; may be repeated.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Another topic.")] = None,
    url: Annotated[str | None, typer.Option(help="Another URL, of a table in another system.")] = None,
    connection: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another connection, of a table in another system.")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="All columns, instead of --add, --drop and --widen.")
    ] = None,
    properties: PropertyOption = None,
    comment: Annotated[str | None, typer.Option(help="Another comment; an empty one removes it.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--topic-config", metavar="OPTION=VALUE", help="Setting of the topic; without a value, the cluster's."
        ),
    ] = None,
    expect: Annotated[
        int | None, typer.Option(metavar="VERSION", help="Refuse if the table has another version.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Change the schema although rows that exist do not fit it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Change a table. Rows that exist stay readable, or the change is refused."""
    changes: dict[str, Any] = {"add": add, "schema": schema, "topic": topic, "url": url, "comment": comment}
    changes["connection"] = connection
    with open_catalog(broker, config, timeout, catalog) as opened:
        info = opened.alter_table(
            table,
            drop=drop or (),
            widen=_read_options(widen, "COLUMN=TYPE", "--widen"),
            properties={
                name: value or None for name, value in _read_options(properties, "NAME=VALUE", "--property").items()
            },
            config={
                name: value or None for name, value in _read_options(settings, "OPTION=VALUE", "--topic-config").items()
            },
            expect=expect,
            force=force,
            **changes,
        )
    if as_json:
        print_json(info.as_dict())
    else:
        echo(f"{info.name} has version {info.version}, with schema version {info.schema_version}")


@app.command(
    "drop",
    epilog=examples("streamrt table drop shop.orders", "streamrt table drop shop.orders --delete-data --yes"),
)
def drop(
    table: TableArgument,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    delete_data: Annotated[bool, typer.Option("--delete-data", help="Delete the topic with all records, too.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Drop it although a running application uses it.")] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if there is no such table.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Drop a table; its topic and its records stay, unless --delete-data says otherwise."""
    if delete_data and not yes:
        typer.confirm(f"Delete {table} with all records?", abort=True, err=as_json)
    with open_catalog(broker, config, timeout, catalog, need_broker=delete_data) as opened:
        present = not if_exists or table in opened
        if present:
            opened.drop_table(table, delete_data=delete_data, force=force)
    if as_json:
        print_json({"table": table, "dropped": present, "deleted_data": present and delete_data})
    else:
        echo(f"dropped {table}" if present else f"there is no table {table}")


table_rows.register(app)
table_get.register(app)
table_writes.register(app)


def _show_kind(info: "TableInfo") -> str:
    role = "maintained" if info.maintenance is not None else "view" if info.is_view else None
    return info.kind if role is None else f"{info.kind}, {role}"


def _list_properties(info: "TableInfo") -> dict[str, object]:
    where = {name: value for name, value in info.location().items() if name not in ("table", "connection", "connector")}
    return {
        "name": info.name,
        "kind": _show_kind(info),
        "connector": info.connector,
        "connection": info.connection,
        **where,
        "partitions": info.num_partitions,
        "format": info.format,
        "key": ", ".join(info.key),
        "time": None if info.schema is None else info.schema.time,
        **_list_rules(info),
        "maintained by": info.maintained_by,
        "comment": info.comment,
        "version": info.version,
        "schema version": info.schema_version,
        "modified": info.modified_at.isoformat().replace("+00:00", "Z"),
        **dict(info.properties),
    }


def _list_rules(info: "TableInfo") -> dict[str, object]:
    from streamrt.tables.descriptions.maintenance import CHANGELOG_SUFFIX, describe_merge
    from streamrt.tables.descriptions.rule_texts import show_ttl

    rules = info.maintenance
    if rules is None:
        return {}
    return {
        "merge": describe_merge(rules.merge),
        "deletes": rules.deletes,
        "ttl": None if rules.ttl_ms is None else show_ttl(rules.ttl_ms),
        "changelog": f"{info.name}{CHANGELOG_SUFFIX}" if rules.changelog else None,
        "requests": info.requests_topic,
    }


def _format_since(usage: "Usage") -> str:
    return usage.since.isoformat().replace("+00:00", "Z")


def _read_options(texts: list[str] | None, form: str, hint: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        # The value may be a secret that belongs elsewhere.
        if not name or not equals:
            raise typer.BadParameter(f"{name!r} is not {form}", param_hint=hint)
        if name in given:
            raise typer.BadParameter(f"{name!r} is there twice", param_hint=hint)
        given[name] = value
    return given
