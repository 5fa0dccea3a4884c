"""Sources of database changes under crashes: writers that write at random, lives of a source that end anywhere, checks."""

import contextlib
import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import psycopg

from streamrt import Application
from streamrt.connectors import StatefulSource
from streamrt.errors import ConfigurationError, SourceError
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import MemorySourceStore, RecordingProducer, SourceRecord
from tests.connectors.mariadb_server import MariaDB
from tests.connectors.sources import Run
from tests.postgres import Postgres
from tests.support import wait_until
from tests.unit.table_homes import Tables

PATIENCE_S = 30.0


class CrashError(BaseException):
    """The process of the source dies; what only handles exceptions does not see it."""


class Point:
    """A countdown of the operations that a source still does before it dies."""

    def __init__(self) -> None:
        self.left: int | None = None

    def __call__(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise CrashError


class Producer(RecordingProducer):
    """A producer that is killed with the process: a part of what was not flushed has arrived."""

    def __init__(self, point: Point) -> None:
        super().__init__()
        self._point = point

    def produce(self, *args: Any, **options: Any) -> None:
        self._point()
        super().produce(*args, **options)

    def flush(self, timeout: float | None = None) -> int:
        self._point()
        return super().flush(timeout)

    def crash(self, chance: random.Random) -> None:
        del self.records[chance.randint(self.flushed, len(self.records)) :]


class Store(MemorySourceStore):
    """A store that loses what was not committed."""

    def __init__(self, point: Point, producer: Producer) -> None:
        super().__init__()
        self.covered = 0
        """Number of records that the committed position covers."""
        self.begun = 0
        """Number of records of earlier lives; parts of them may be delivered again."""
        self._point = point
        self._producer = producer

    def commit(self, timeout: float | None = None) -> None:
        self._point()
        super().commit(timeout)
        if self._producer.flushed > self.begun:
            self.covered = self._producer.flushed
        self._point()

    def crash(self) -> None:
        self._transaction = None


class Connection(Protocol):
    """Connection to a database, as a writer needs it."""

    def execute(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


class PostgresConnection:
    """A writer's connection to PostgreSQL."""

    def __init__(self, server: Postgres) -> None:
        self._connection = psycopg.connect(connect_timeout=5, **server.settings)

    def execute(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.encode(), arguments)
        return cursor.fetchall() if cursor.description else []

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


class MariaDBConnection:
    """A writer's connection to MariaDB."""

    def __init__(self, server: MariaDB) -> None:
        self._connection = server.connect(autocommit=False, read_timeout=10)

    def execute(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return list(cursor.fetchall())

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def living(
    source: StatefulSource, producer: RecordingProducer | None = None, store: MemorySourceStore | None = None
) -> Iterator[list[SourceRecord]]:
    """Run a source for the block; yields the list of its records."""
    run = Run(source, store, producer, copied=False).start()
    try:
        yield _Watched(run)
    finally:
        run.source.stop()
    run.to_end()


def refused(source: StatefulSource, *reasons: str, store: MemorySourceStore | None = None) -> str:
    """Start a source that must fail at once, with one sentence."""
    error = Run(source, store, copied=False).failure()
    assert isinstance(error, SourceError | ConfigurationError), error
    text = str(error)
    assert "\n" not in text
    for reason in reasons:
        assert reason in text
    return text


class _Watched(list[SourceRecord]):
    """The records of a source; looking at them raises the error of a source that failed."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def __iter__(self) -> Iterator[SourceRecord]:
        if self.run.error is not None:
            raise self.run.error
        return iter(list(self.run.records))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getitem__(self, index: Any) -> Any:
        return list(iter(self))[index]


def values(records: Sequence[SourceRecord]) -> list[Any]:
    """Return the values, as JSON."""
    return [None if record.value is None else json.loads(record.value) for record in list(records)]


def wait_for(records: Sequence[SourceRecord], count: int) -> list[Any]:
    """Wait for a number of records, and return their values."""
    wait_until(lambda: len(records) >= count, PATIENCE_S, f"{count} records")
    found = values(records)
    assert len(found) == count, found
    return found


def followed(columns: str) -> Callable[[Sequence[SourceRecord]], set[tuple[Any, ...]]]:
    """Return the function that returns the rows of a table that applies the records of a source, which are new each time.

    Args:
        columns: the columns of the table.
    """
    tables = Tables()
    tables.add("shop.rows", columns)
    app = Application("unused:9092", consumer_group="shop", catalog=tables)  # type: ignore[arg-type]
    app.dataframe(app.topic("changes")).to_table("shop.rows", change_events=True)
    driver, done = TopologyTestDriver(app), [0]
    rows: dict[Any, tuple[Any, ...]] = {}

    def follow(records: Sequence[SourceRecord]) -> set[tuple[Any, ...]]:
        for record in list(records)[done[0] :]:
            driver.pipe(
                "changes", None if record.value is None else json.loads(record.value), timestamp=record.timestamp
            )
            done[0] += 1
        for row in driver.read("shop.rows"):
            rows.pop(row.key, None)
            if row.value is not None:
                rows[row.key] = tuple(row.value.values())
        return set(rows.values())

    return follow


class Writer:
    """Writes to two tables at random, in transactions, some of which are rolled back. Each row has a number of its last
    write, `v`; numbers of committed writes are in the table `log`.
    """

    def __init__(self, connect: Callable[[], Connection], seed: int) -> None:
        self._connect = connect
        self._chance = random.Random(seed)
        self._stopped = threading.Event()
        self._next = 0
        self.transactions = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def prepare(self, rows: int) -> None:
        """Write the rows of the snapshot."""
        connection = self._connect()
        for number in range(rows):
            self._insert(connection, number)
        connection.commit()
        connection.close()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        connection: Connection | None = None
        while not self._stopped.wait(0.002):
            try:
                connection = connection or self._connect()
                for _ in range(self._chance.choice((1, 1, 2, 5, 30))):
                    self._write(connection)
                connection.rollback() if self._chance.random() < 0.1 else connection.commit()
                self.transactions += 1
            except Exception:
                # The server was killed, or a primary key is taken.
                with contextlib.suppress(Exception):
                    assert connection is not None
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _write(self, connection: Connection) -> None:
        number = self._chance.randrange(60)
        kind = self._chance.random()
        if kind < 0.3:
            self._delete(connection, number)
            self._insert(connection, number)
        elif kind < 0.7:
            connection.execute(
                "UPDATE accounts SET v = %s, note = %s WHERE id = %s", (self._v(connection), "x", number)
            )
            pair = (self._v(connection), f"a{number}", number % 3)
            connection.execute("UPDATE items SET v = %s WHERE a = %s AND b = %s", pair)
        elif kind < 0.85:
            other = self._chance.randrange(60)
            self._delete(connection, other)
            connection.execute(
                "UPDATE accounts SET id = %s, v = %s WHERE id = %s", (other, self._v(connection), number)
            )
        else:
            self._delete(connection, number)

    def _insert(self, connection: Connection, number: int) -> None:
        connection.execute("INSERT INTO accounts VALUES (%s, %s, %s)", (number, self._v(connection), "new"))
        connection.execute("INSERT INTO items VALUES (%s, %s, %s)", (f"a{number}", number % 3, self._v(connection)))

    def _delete(self, connection: Connection, number: int) -> None:
        connection.execute("DELETE FROM accounts WHERE id = %s", (number,))
        connection.execute("DELETE FROM items WHERE a = %s AND b = %s", (f"a{number}", number % 3))

    def _v(self, connection: Connection) -> int:
        self._next += 1
        connection.execute("INSERT INTO log VALUES (%s)", (self._next,))
        return self._next


TABLES = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, v BIGINT, note VARCHAR(20))",
    "CREATE TABLE items (a VARCHAR(20), b INT, v BIGINT, PRIMARY KEY (a, b))",
    "CREATE TABLE log (v BIGINT PRIMARY KEY)",
)
KEYS = {"accounts": ("id",), "items": ("a", "b"), "log": ("v",)}


def tables_of(connection: Connection) -> dict[tuple[str, str], int]:
    """Return the number of the last write by table and key, as the database has it."""
    found = {}
    for table, key in KEYS.items():
        for *key_values, v in connection.execute(f"SELECT {', '.join(key)}, v FROM {table}"):
            found[table, json.dumps(dict(zip(key, key_values, strict=True)))] = v
    connection.rollback()
    return found


def tables_from(records: Sequence[SourceRecord]) -> dict[tuple[str, str], int]:
    """Return the same from the records."""
    found: dict[tuple[str, str], int] = {}
    for record in list(records):
        assert record.value is not None
        assert record.key is not None
        value = json.loads(record.value)
        place = value["source"]["table"], json.dumps(json.loads(record.key))
        if value["op"] == "d":
            found.pop(place, None)
        else:
            found[place] = value["after"]["v"]
    return found


def crash_often(
    make: Callable[[], StatefulSource],
    connect: Callable[[], Connection],
    place: Callable[[dict[str, Any]], tuple[Any, ...]],
    *,
    lives: int,
    restarts: dict[int, Callable[[], None]],
    seed: int,
) -> None:
    """Let a source die at random while others write; check that its records are the tables in the end.

    Args:
        make: returns a source.
        connect: connects a writer.
        place: returns where a change stands in the log, from its `source`: last is its number in the transaction.
        lives: number of lives that end in a crash.
        restarts: what happens to the server during a life, by its number.
        seed: makes it repeatable, up to the timing of threads.
    """
    chance = random.Random(seed)
    point = Point()
    producer = Producer(point)
    store = Store(point, producer)
    writer = Writer(connect, seed)
    writer.prepare(60)
    for number in range(lives):
        if number == 3:
            # The first lives end in the snapshot.
            writer.start()
        point.left = chance.randrange(100) if number < 3 else chance.randrange(400)
        if number in restarts:
            point.left += 400
        begun = store.begun = len(producer.records)
        covered = places(producer.records[: store.covered], place)
        life = Run(make(), store, producer, copied=False).start()
        if number in restarts:
            wait_until(lambda: not life.running or len(producer.records) > begun, PATIENCE_S, "a record")  # noqa: B023
            restarts[number]()
        life.wait()
        assert isinstance(life.error, CrashError), life.error
        lived = places(producer.records[begun:], place)
        # The order of the log, and no repetition of what the committed position covers.
        assert lived == sorted(lived)
        assert not lived or not covered or lived[0] >= covered[-1]
        assert len(set(lived)) >= len(lived) - _key_changes(producer.records[begun:])
        producer.crash(chance)
        store.crash()
    writer.stop()
    point.left = None
    life = Run(make(), store, producer, copied=False).start()
    connection = connect()
    wait_until(
        lambda: not life.running or tables_from(producer.records) == tables_of(connection), PATIENCE_S, "equal tables"
    )
    life.stop()
    life.to_end()
    connection.close()
    assert writer.transactions > 20
    _check_order(producer.records, place)
    _check_gaps(places(producer.records, place))


def places(records: Sequence[SourceRecord], place: Callable[[dict[str, Any]], tuple[Any, ...]]) -> list[Any]:
    """Return where the changes stand in the log; rows of snapshots stand nowhere."""
    sources = [value["source"] for value in values(records)]
    return [place(source) for source in sources if not source["snapshot"]]


def _check_gaps(found: Sequence[tuple[Any, ...]]) -> None:
    numbers: dict[tuple[Any, ...], set[int]] = {}
    for *transaction, number in found:
        numbers.setdefault(tuple(transaction), set()).add(number)
    for transaction_numbers in numbers.values():
        assert transaction_numbers == set(range(1, len(transaction_numbers) + 1))


def _key_changes(records: Sequence[SourceRecord]) -> int:
    """Return how many changes may have two records."""
    return sum(1 for value in values(records) if value["op"] == "d")


def _check_order(records: Sequence[SourceRecord], place: Callable[[dict[str, Any]], tuple[Any, ...]]) -> None:
    seen = set()
    last: dict[tuple[str, bytes | None], int] = {}
    for record, value in zip(records, values(records), strict=True):
        if value["source"]["snapshot"] or value["after"] is None:
            continue
        change = (place(value["source"]), value["op"])
        if change not in seen:
            seen.add(change)
            key = (value["source"]["table"], record.key)
            assert value["after"]["v"] > last.get(key, 0)
            last[key] = value["after"]["v"]
