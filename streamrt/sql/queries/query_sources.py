"""What queries can read: tables of a catalogue, state of the own application, and system tables."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from sqlglot import exp

from streamrt.errors import ArgumentValueError, ControlRefusedError, StreamRTError, TableNotFoundError
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.sql.expressions.failures import make_analysis_error
from streamrt.sql.queries.fixed_keys import find_fixed_keys
from streamrt.tables.access.links import TableLinks
from streamrt.tables.access.positions import TopicPositions
from streamrt.tables.catalogue.table_names import find_table_name
from streamrt.tables.reading.reads import TableReads
from streamrt.tables.reading.scan import TableScan
from streamrt.tables.rows.key_encoder import KeyEncoder
from streamrt.tables.table import Table

__all__ = [
    "QueriedApplication",
    "QueryHome",
    "Rights",
    "RowSource",
    "SystemTable",
    "TableRows",
    "find_source",
    "find_table",
]

SYSTEM = "system"
STATE = "streamrt_state"


@dataclass(frozen=True)
class SystemTable:
    """A table whose rows are made when a query reads them.

    Attributes:
        schema: its columns.
        rows: returns its rows.
    """

    schema: pa.Schema
    rows: Callable[[], Iterable[Mapping[str, Any]]]


class TableHolder(Protocol):
    """Where tables are; a `Catalog` is one, and so are the tables of a test driver."""

    @property
    def links(self) -> TableLinks:
        """How their topics are reached."""

    def table(self, name: str) -> Table:
        """Return a table."""


class Rights(Protocol):
    """The tables that a caller may use; names have their database."""

    def may_read(self, name: str) -> bool:
        """Return whether queries may read a table."""

    def may_write(self, name: str) -> bool:
        """Return whether statements may change rows of a table."""


class QueriedApplication(Protocol):
    """The application whose tables, views and state a query reads."""

    def wait_for(self, token: Offsets, timeout: float | None = 60.0) -> None:
        """Wait until everything below a token is processed, and its outputs are durable."""

    def input_topics(self) -> Collection[str]:
        """Return the topics that it reads."""

    def output_tables(self) -> Collection[str]:
        """Return the names of the tables that it writes."""


@dataclass(frozen=True)
class QueryHome:
    """Where the names in a query lead.

    Attributes:
        tables: the tables of the catalogue.
        system: system tables by their names, without `system.`.
        names: returns the names of tables.
        state: returns the state of a store of the own application; None outside of one.
        view: returns the query of a view that is not a table, and the names of its columns; None if there is none; see
            `ViewFinder`.
        application: the application whose answers follow from its inputs; None outside of one.
        rights: the tables that the caller may use; None for all. `restrict` makes a home with rights.
    """

    tables: TableHolder
    system: Mapping[str, SystemTable] = field(default_factory=dict)
    names: Callable[[], Sequence[str]] = tuple
    state: Callable[[str], SystemTable] | None = None
    view: Callable[[str, Sequence[str]], tuple[exp.Expr, Sequence[str]] | None] | None = None
    application: QueriedApplication | None = None
    rights: Rights | None = None


class RowSource(Protocol):
    """Rows for a query, fixed before they are read."""

    name: str
    schema: pa.Schema
    topics: Sequence[str]

    def fix(self, columns: Sequence[str], after: Offsets | None, timeout: float, *, fresh: bool = False) -> Offsets:
        """Fix what is read, and return the offsets up to which it is.

        `fresh` means all records that are there now, also those that an open transaction hides.
        """

    def batches(self, on_poll: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that were fixed, again with each call."""


class TableRows:
    """The rows of a table, up to offsets that are fixed once.

    Args:
        table: the table.
        keys: the only keys that are wanted; None means all.
    """

    def __init__(self, table: Table, keys: Sequence[Mapping[str, Any]] | None) -> None:
        self._table = table
        self.name = table.name
        self._keys = None if keys is None else self._encode(keys)
        self._scan: TableScan | None = None
        self._on_poll: Callable[[int], None] = lambda _: None
        self.schema: pa.Schema = table.schema.arrow
        requests = table.info.requests_topic
        self.topics: Sequence[str] = [each for each in (table.info.topic, requests) if each is not None]

    @property
    def table(self) -> Table:
        """The table."""
        return self._table

    @property
    def scan(self) -> TableScan | None:
        """What is read, once it is fixed."""
        return self._scan

    @property
    def key_set(self) -> frozenset[bytes] | None:
        """The only keys that are read, as bytes; None if all are."""
        return self._keys

    def fix(self, columns: Sequence[str], after: Offsets | None, timeout: float, *, fresh: bool = False) -> Offsets:
        """Fix the offsets, after waiting for those of a token."""
        token = None if after is None else _part_of(after, self.topics)
        if fresh:
            token = self._read_ends() if token is None else token | self._read_ends()
        reads = TableReads(self._table.info, self._table.home)
        self._scan = reads.scan(
            # A query that only counts needs some column.
            list(columns) or [self.schema.names[0]],
            *("earliest", "latest", None, None),
            after=token,
            timeout=timeout,
            method="query",
            keys=self._keys,
            on_poll=lambda count: self._on_poll(count),
        )
        return self._scan.end

    def batches(self, on_poll: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        self._on_poll = on_poll
        if self._scan is not None:
            for each in self._scan.batches():
                yield each.batch

    def _read_ends(self) -> Offsets:
        """Return the offsets after the last records, whether they can be read or not."""
        home, topic = self._table.home, str(self._table.info.topic)
        positions = TopicPositions(home.links.admin(), topic, self.name, home.timeout)
        bounds = positions.read_bounds(range(positions.count()))
        ids = {} if bounds.topic_id is None else {topic: bounds.topic_id}
        return Offsets({(topic, number): high for number, high in bounds.high.items()}, ids)

    def _encode(self, keys: Sequence[Mapping[str, Any]]) -> frozenset[bytes] | None:
        """Return the keys as bytes; None if one does not fit its column, so that all rows must be compared."""
        key_format = self._table.home.key_format(self._table.info)
        if key_format is None:
            return None
        try:
            encoder = KeyEncoder(self.name, key_format)
            return frozenset(encoder.key(dict(key)) for key in keys)
        except (StreamRTError, ValueError):
            return None


class SystemRows:
    """The rows of a system table, which are made once.

    Args:
        name: its name.
        table: the table.
    """

    topics: Sequence[str] = ()

    def __init__(self, name: str, table: SystemTable) -> None:
        self.name = name
        self.schema = table.schema
        self._table = table
        self._rows: pa.Table | None = None

    def fix(self, columns: Sequence[str], after: Offsets | None, timeout: float, *, fresh: bool = False) -> Offsets:
        """Make the rows."""
        if self._rows is None:
            self._rows = pa.Table.from_pylist([dict(row) for row in self._table.rows()], schema=self.schema)
        return Offsets({})

    def batches(self, on_poll: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        on_poll(0)
        if self._rows is not None:
            yield from self._rows.to_batches()


def find_source(home: QueryHome, node: exp.Table) -> RowSource:
    """Return the rows that a name in FROM stands for.

    Raises:
        TableNotFoundError: if there is no such table.
        SQLAnalysisError: if it has no schema, or is in another system.
        ControlRefusedError: if the caller may not read it.
    """
    parts = [part.name for part in node.parts]
    name = ".".join(parts)
    if len(parts) == 2 and parts[0].lower() == SYSTEM:
        found = home.system.get(parts[1].lower())
        if found is None and home.rights is not None:
            raise _refuse("read", name)
        if found is None:
            raise TableNotFoundError(
                f"there is no {name!r}; there are {', '.join(f'system.{each}' for each in home.system)}"
            )
        return SystemRows(f"{SYSTEM}.{parts[1].lower()}", found)
    if len(parts) == 2 and parts[0].lower() == STATE:
        if home.rights is not None:
            raise _refuse("read", name)
        if home.state is None:
            raise make_analysis_error(f"{STATE} is the state of a running application: ask by app.query()", node)
        return SystemRows(f"{STATE}.{parts[1]}", home.state(parts[1]))
    if len(parts) > 2:
        raise TableNotFoundError(f"there is no table {name!r}: names are <database>.<table>")
    table = find_table(home, name, node)
    if table.info.schema is None:
        raise make_analysis_error(f"table {table.name!r} has no schema: give it one by table.set_schema()", node)
    if table.info.topic is None:
        raise make_analysis_error(
            f"table {table.name!r} is in another system ({table.info.connector}), which a query cannot read: write it to a "
            "table by app.dataframe(table).to_table(...)",
            node,
        )
    keys = find_fixed_keys(node, table.schema) if table.kind == "primary-key" else None
    return TableRows(table, keys)


def find_table(home: QueryHome, name: str, node: exp.Expr, *, writes: bool = False) -> Table:
    """Return a table of the catalogue.

    Args:
        home: where names lead.
        name: the name in the text.
        node: where it is there.
        writes: whether its rows are changed, and not read.

    Raises:
        TableNotFoundError: if there is no such table.
        SQLAnalysisError: if no table can have the name.
        ControlRefusedError: if the caller may not use it so.
    """

    def may_use(each: str) -> bool:
        return home.rights is None or (home.rights.may_write(each) if writes else home.rights.may_read(each))

    def load(each: str) -> Table:
        # Nothing is looked up of other tables, so that the answer is the same whether they exist or not.
        if not may_use(each if "." in each else f"default.{each}"):
            raise _refuse("write" if writes else "read", name)
        return home.tables.table(each)

    try:
        try:
            table = load(name)
        except (TableNotFoundError, ControlRefusedError):
            found = find_table_name(name, filter(may_use, home.names()))
            if found is None or found == name:
                raise
            table = load(found)
    except ArgumentValueError as error:
        raise make_analysis_error(str(error), node) from None
    if not may_use(table.name):
        raise _refuse("write" if writes else "read", name)
    return table


def _refuse(verb: str, name: str) -> ControlRefusedError:
    return ControlRefusedError(f"this token may not {verb} {name!r}")


def _part_of(token: Offsets, topics: Sequence[str]) -> Offsets | None:
    """Return what a token says of topics, or None if it says nothing."""
    at: dict[TopicPartition, int] = {each: offset for each, offset in token.items() if each.topic in topics}
    return Offsets(at, token.ids) if at else None
