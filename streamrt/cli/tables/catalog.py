"""The catalogue that a command works with, and `streamrt catalog`: export, import and lineage."""

import contextlib
import enum
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption, connection_from
from streamrt.cli.output import JsonOption, echo, examples, plural, print_json
from streamrt.errors import ConfigurationError

if TYPE_CHECKING:
    from streamrt.tables import Catalog

__all__ = ["CatalogOption", "IfExistsChoice", "IfExistsOption", "app", "open_catalog"]

CatalogOption = Annotated[
    Path | None,
    typer.Option(
        "--catalog",
        envvar="STREAMRT_CATALOG_DIR",
        metavar="DIR",
        help="Directory of a catalogue in files; by default the catalogue is in the cluster.",
    ),
]


class IfExistsChoice(enum.Enum):
    """Treatment of objects that exist already."""

    error = "error"
    ignore = "ignore"
    replace = "replace"


IfExistsOption = Annotated[IfExistsChoice, typer.Option("--if-exists", help="What happens to what exists already.")]

app = typer.Typer(no_args_is_help=True, help="Copy the catalogue of tables, and show who uses them.")


@contextlib.contextmanager
def open_catalog(
    broker: str | None, config: Path | None, timeout: float, directory: Path | None, *, need_broker: bool = False
) -> "Iterator[Catalog]":
    """Open a catalogue, and close it at the end.

    Args:
        broker: the option `--broker`.
        config: the option `--config`.
        timeout: the option `--timeout`.
        directory: the option `--catalog`.
        need_broker: whether a catalogue in files also needs a broker, because topics are changed.

    Raises:
        ConfigurationError: if settings are missing or invalid.
        KafkaBrokerUnavailableError: if no broker answers in time.
    """
    from streamrt.cli.records.schemas import registry_of
    from streamrt.tables import Catalog, FileCatalog

    store = None if directory is None else FileCatalog(directory)
    has_broker = broker is not None or config is not None
    connection = connection_from(broker, config) if store is None or need_broker or has_broker else None
    registry = registry_of(None, config)
    with Catalog(
        connection, store=store, timeout=timeout, connect=connection is not None, schema_registry=registry
    ) as catalog:
        yield catalog


@app.callback()
def _group() -> None:
    """Copy the catalogue of tables, and show who uses them."""


@app.command(
    "export",
    epilog=examples(
        "streamrt catalog export --broker localhost:9092 > catalog.json",
        "streamrt catalog export --catalog tables/ | jq '.objects | keys'",
    ),
)
def export(
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
) -> None:
    """Print databases, connections and tables as one JSON document: no records, no usages and no secrets."""
    with open_catalog(broker, config, timeout, catalog) as opened:
        print_json(opened.export())


@app.command(
    "import",
    epilog=examples(
        "streamrt catalog import catalog.json --broker localhost:9092",
        "streamrt catalog import - --if-exists replace < catalog.json",
    ),
)
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` has printed; - for standard input.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    if_exists: IfExistsOption = IfExistsChoice.error,
    as_json: JsonOption = False,
) -> None:
    """Add databases, connections and tables, and create the topics that do not exist.

    If something exists already, nothing is imported, unless --if-exists says otherwise.
    """
    import orjson

    try:
        document = orjson.loads(sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError:
        raise ConfigurationError(
            f"{file} is not a JSON document: pass what `streamrt catalog export` has printed"
        ) from None
    with open_catalog(broker, config, timeout, catalog) as opened:
        written = opened.import_objects(document, if_exists=if_exists.value)
    if as_json:
        print_json({"imported": written})
    else:
        echo(f"imported {plural(len(written), 'object')}")


@app.command(
    "lineage",
    epilog=examples("streamrt catalog lineage", "streamrt catalog lineage --json | jq .edges"),
)
def lineage(
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print tables and the applications that read and write them, as a Mermaid flowchart."""
    with open_catalog(broker, config, timeout, catalog) as opened:
        found = opened.lineage()
    if as_json:
        print_json(found.as_dict())
    else:
        echo(found.as_mermaid())


@app.command(
    "forget",
    epilog=examples(
        "streamrt catalog forget late-orders", "streamrt catalog forget late-orders --broker production:9092"
    ),
)
def forget(
    application: Annotated[str, typer.Argument(metavar="APPLICATION", help="Consumer group of the application.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    catalog: CatalogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget which tables an application reads and writes, because it is gone.

    One that runs is in the catalogue again after its next start.
    """
    with open_catalog(broker, config, timeout, catalog) as opened:
        known = application in {each.name for each in opened.applications()}
        opened.forget_usage(application)
    if as_json:
        print_json({"application": application, "forgotten": known})
        return
    echo(f"forgot {application}" if known else f"the catalogue knows no application {application}")
