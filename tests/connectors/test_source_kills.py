"""Applications with sources that are killed again and again: with exactly-once, each record comes out once, in order."""

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import psycopg
import pymysql
import pytest

from streamrt.testing import EmbeddedKafka
from tests.chaos import Flow, Outputs, judge, kill_tree
from tests.connectors.changes import Connection, MariaDBConnection, PostgresConnection
from tests.connectors.mariadb_server import mariadb
from tests.postgres import postgres
from tests.support import LONG, PROCESSING_MODES, Kafka, RunningProgram, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

PROGRAM = """
from streamrt import Application
from streamrt.connectors import {kind}


def number(value, state):
    n = state.get("n", 0) + 1
    state.set("n", n)
    return {{"id": {identity}, "n": n}}


app = Application(
    {address!r},
    consumer_group={group!r},
    auto_offset_reset="earliest",
    state_dir={state_dir!r},
    processing_guarantee="exactly-once",
    commit_interval=1.0,
    # The group gives the partitions of a killed process to the next one at once.
    consumer_extra_config={{"session.timeout.ms": 6_000}},
)
sdf = app.dataframe(app.topic({topic!r}), source={kind}({arguments}))
sdf.apply(number, stateful=True).to_topic(app.topic({target!r}))

if __name__ == "__main__":
    app.run()
"""
KILLS = 10 if LONG else 2
RESTARTS = (2, 5, 8)
"""The lives of an application in which the system that it reads is killed before it."""
ROWS = 20_000
"""Rows of a table before the first start. The first lives of an application end while it reads them."""
HOT_ROWS = 60
LOST = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    pymysql.err.OperationalError,
    pymysql.err.InterfaceError,
    OSError,
)
END = b"end"


class Killed:
    """An application with a source, which is killed and started again.

    Args:
        kafka: the broker of the application.
        program: starts a program.
        kind: the class of the source.
        arguments: arguments of the source, but for its name.
        identity: an expression for what is unique in a value.
    """

    def __init__(
        self, kafka: Kafka, program: Callable[..., RunningProgram], kind: str, arguments: str, identity: str
    ) -> None:
        self.seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {self.seed}")
        self._kafka = kafka
        self._program = program
        self._chance = random.Random(self.seed)
        self._lives = 0
        self._modes = itertools.cycle(PROCESSING_MODES)
        self._topic = kafka.topic("source", partitions=2)
        self._target = kafka.topic("out", partitions=2)
        self._text = PROGRAM.format(
            kind=kind,
            arguments=f"name='origin', {arguments}",
            topic=self._topic,
            identity=identity,
            address=kafka.address,
            group=unique("group"),
            state_dir=str(kafka.state_dir),
            target=self._target,
        )
        self.outputs = Outputs(kafka.address, self._target)

    def live(self, most: int, restart: Callable[[], None] | None = None) -> None:
        """Start the application, and kill it with all its processes in the middle of its work.

        Args:
            most: records that it or its source produces before, at most.
            restart: kills and starts the system that the source reads.
        """
        app = self._start()
        if restart is not None:
            # A source that cannot connect when it starts ends its application.
            self._wait_for_more(app, self._produced, most)
            restart()
            self._wait_for_more(app, self._produced, most)
        # Odd lives end in the middle of what the source does, others in the middle of what is behind it.
        self._lives += 1
        self._wait_for_more(app, self._produced if self._lives % 2 else lambda: self.outputs.count, most)
        kill_tree(app)

    def finish(self, complete: Callable[[], bool]) -> None:
        """Run the application until its output is complete, then read whatever comes after it."""
        app = self._start()
        wait_until(lambda: self._goes_on(app) and complete(), 600, "all outputs")
        code, _ = app.end()
        assert code == 0, app.err
        for partition in range(2):
            self._kafka.produce(self._target, [{"id": partition, "n": 0}], key=END, partition=partition)
        wait_until(lambda: len(self.outputs.received.get(END, ())) == 2, what="the end of the topic")
        del self.outputs.received[END]

    def _start(self) -> RunningProgram:
        return self._program(self._text, STREAMRT_PROCESSING_MODE=next(self._modes))

    def _wait_for_more(self, app: RunningProgram, counted: Callable[[], int], most: int) -> None:
        """Wait until there are some more records."""
        # More than the markers of a commit.
        wanted = counted() + self._chance.randint(10, most)
        wait_until(lambda: self._goes_on(app) and counted() >= wanted, what=f"{wanted} records")

    def _produced(self) -> int:
        """Return how many records the source has produced, committed or not."""
        return self._kafka.end(self._topic)

    def _goes_on(self, app: RunningProgram) -> bool:
        assert app.process.poll() is None, f"the program ended: {app.err}"
        return True


def test_each_record_of_a_topic_is_copied_once(kafka: Kafka, program: Callable[..., RunningProgram]) -> None:
    with EmbeddedKafka() as broker:
        other = Kafka(broker.bootstrap_servers, kafka.state_dir)
        topic = other.topic("orders", partitions=2)
        arguments = (
            f"app_config=app.config, topic={topic!r}, broker_address={other.address!r}, auto_offset_reset='earliest'"
        )
        killed = Killed(kafka, program, "KafkaReplicatorSource", arguments, 'value["id"]')
        outputs = killed.outputs

        def restart() -> None:
            broker.kill()
            broker.start()

        flow = Flow(other.address, topic, killed.seed)
        try:
            with flow.running(outputs, per_step=120, pause_s=0.1):
                for number in range(KILLS):
                    killed.live(300, restart if LONG and number in RESTARTS else None)
            flow.read_back()
            killed.finish(lambda: outputs.count >= flow.count)
            judge(flow, outputs)
        finally:
            outputs.close()
    print(f"{flow.count} records, {KILLS} kills")


class Written(NamedTuple):
    """A change of a row.

    Attributes:
        transaction: number of the transaction.
        op: "r" if the row was there before the first transaction, "c" if it was inserted, "u" or "d".
        v: number of the write, which is in the row; None if the row was deleted.
    """

    transaction: int
    op: str
    v: int | None


class Database(Protocol):
    """A server of a database."""

    def execute(self, *statements: str) -> None: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


class Ledger:
    """Writes to a table at random, and knows the committed changes of each key.

    Each transaction updates the table `progress` last, so that the outcome is known where the server died in a commit.

    Args:
        server: the server.
        connect: connects to it.
        seed: makes the changes.
    """

    PROGRESS = b'{"place":1}'

    def __init__(self, server: Database, connect: Callable[[], Connection], seed: int) -> None:
        self._connect = connect
        self._chance = random.Random(seed)
        self._v = ROWS
        self._rows = {number: number + 1 for number in range(ROWS)}
        self.written: dict[bytes, list[Written]] = {}
        self.transactions = 0
        # The last transaction whose commit was asked for: its number of the last write, its changes, and the rows after it.
        self._doubtful: tuple[int, list[tuple[bytes, Written]], dict[int, int]] | None = None
        self._error: Exception | None = None
        values = ", ".join(f"({number}, {v})" for number, v in self._rows.items())
        server.execute(
            "CREATE TABLE accounts (id INT PRIMARY KEY, v BIGINT)",
            "CREATE TABLE progress (place INT PRIMARY KEY, v BIGINT)",
            f"INSERT INTO accounts VALUES {values}",
            "INSERT INTO progress VALUES (1, 0)",
        )
        for number, v in self._rows.items():
            self.written[_key(number)] = [Written(0, "r", v)]
        self.written[self.PROGRESS] = [Written(0, "r", 0)]

    @contextlib.contextmanager
    def running(self, pause_s: float) -> Iterator[None]:
        """Go on writing as long as the context lasts."""
        over = threading.Event()

        def run() -> None:
            try:
                self._run(over, pause_s)
            except Exception as error:
                self._error = error

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if self._error is not None:
            raise self._error

    def _run(self, over: threading.Event, pause_s: float) -> None:
        connection: Connection | None = None
        while not over.wait(pause_s):
            try:
                connection = connection or self._connected()
                self._transact(connection)
            except LOST:
                if connection is not None:
                    with contextlib.suppress(*LOST):
                        connection.close()
                connection = None
        wait_until(lambda: self._settle(connection), what="the outcome of the last transaction")

    def _settle(self, connection: Connection | None) -> bool:
        with contextlib.suppress(*LOST):
            (connection or self._connected()).close()
            return True
        return False

    def _connected(self) -> Connection:
        connection = self._connect()
        [(v,)] = connection.execute("SELECT v FROM progress")
        connection.rollback()
        if self._doubtful is not None and v == self._doubtful[0]:
            self._note()
        self._doubtful = None
        return connection

    def _transact(self, connection: Connection) -> None:
        rows = dict(self._rows)
        changes = [
            change for _ in range(self._chance.choice((1, 1, 2, 5, 30))) for change in self._write(connection, rows)
        ]
        v = self._next()
        connection.execute("UPDATE progress SET v = %s", (v,))
        changes.append((self.PROGRESS, self._change("u", v)))
        if self._chance.random() < 0.1:
            connection.rollback()
            return
        self._doubtful = v, changes, rows
        connection.commit()
        self._note()
        self._doubtful = None

    def _note(self) -> None:
        assert self._doubtful is not None
        _, changes, self._rows = self._doubtful
        for key, change in changes:
            self.written.setdefault(key, []).append(change)
        self.transactions += 1

    def _write(self, connection: Connection, rows: dict[int, int]) -> Iterator[tuple[bytes, Written]]:
        number = self._chance.randrange(HOT_ROWS if self._chance.random() < 0.7 else ROWS)
        other = self._chance.randrange(HOT_ROWS)
        kind = self._chance.random()
        v = self._next()
        if number not in rows:
            connection.execute("INSERT INTO accounts VALUES (%s, %s)", (number, v))
            rows[number] = v
            yield _key(number), self._change("c", v)
        elif kind < 0.3:
            connection.execute("DELETE FROM accounts WHERE id = %s", (number,))
            del rows[number]
            yield _key(number), self._change("d", None)
        elif kind < 0.6 and other not in rows:
            # Records of different keys are in different partitions.
            connection.execute("UPDATE accounts SET id = %s, v = %s WHERE id = %s", (other, v, number))
            del rows[number]
            rows[other] = v
            yield _key(number), self._change("d", None)
            yield _key(other), self._change("c", v)
        else:
            connection.execute("UPDATE accounts SET v = %s WHERE id = %s", (v, number))
            rows[number] = v
            yield _key(number), self._change("u", v)

    def _change(self, op: str, v: int | None) -> Written:
        return Written(self.transactions + 1, op, v)

    def _next(self) -> int:
        self._v += 1
        return self._v


def _key(number: int) -> bytes:
    return b'{"id":%d}' % number


class Expected(NamedTuple):
    """Records that must come out for a key, and those that have.

    Attributes:
        row: the row of the snapshot, if it has come.
        possible: values that it may have; None if it need not come.
        changes: the changes that have come.
        written: those that must come.
    """

    row: list[Any] | None
    possible: set[int | None]
    changes: list[list[Any]]
    written: list[list[Any]]


def compared(ledger: Ledger, outputs: Outputs) -> dict[bytes, Expected]:
    """Return what must come out, and what has, by key; nothing if the log has not come yet.

    Each change since the begin of the log must come once. Rows of the snapshot come before. A snapshot that was interrupted
    goes on with rows that are newer than the begin of the log.
    """
    changes = {key: [change for change, _ in found] for key, found in list(outputs.received.items())}
    rows = {key: found.pop(0) for key, found in changes.items() if found[0][0] == "r"}
    if not changes.get(ledger.PROGRESS):
        return {}
    _, first = changes[ledger.PROGRESS][0]
    [begin] = [each.transaction for each in ledger.written[ledger.PROGRESS] if each.v == first]
    expected = {}
    for key, written in ledger.written.items():
        before = [each.v for each in written if each.transaction < begin]
        after = [each for each in written if each.transaction >= begin]
        possible = {*(before[-1:] or [None]), *(each.v for each in after)}
        expected[key] = Expected(rows.get(key), possible, changes.get(key, []), [[each.op, each.v] for each in after])
    return expected


def is_complete(ledger: Ledger, outputs: Outputs) -> bool:
    """Return whether as much has come out as must."""
    expected = compared(ledger, outputs)
    return bool(expected) and all(
        len(each.changes) >= len(each.written) and (each.row is not None or None in each.possible)
        for each in expected.values()
    )


def judge_changes(ledger: Ledger, outputs: Outputs) -> None:
    """Compare what came out with what was written: each change since the begin of the log once, in order by key."""
    assert outputs.received.keys() <= ledger.written.keys()
    for found in outputs.received.values():
        assert [n for _, n in found] == list(range(1, len(found) + 1)), found[:50]
    for key, each in compared(ledger, outputs).items():
        assert each.changes == each.written, f"{key!r}: {each}"
        if each.row is not None:
            assert each.row[1] in each.possible - {None}, f"{key!r}: {each}"


def check_kills(
    kafka: Kafka,
    program: Callable[..., RunningProgram],
    server: Database,
    connect: Callable[[], Connection],
    kind: str,
    arguments: str,
) -> None:
    """Kill an application, and now and then its database, while others write to the database."""

    def restart() -> None:
        server.kill()
        server.start()

    # Small flushes: a kill is in the middle of one, or of a snapshot.
    arguments += ", tables=['accounts', 'progress'], snapshot_chunk=1_000, commit_every=500, commit_interval=0.5"
    identity = '[value["op"], (value["after"] or {}).get("v")]'
    killed = Killed(kafka, program, kind, arguments, identity)
    outputs = killed.outputs
    try:
        ledger = Ledger(server, connect, killed.seed)
        with ledger.running(pause_s=0.05):
            for number in range(KILLS):
                killed.live(1_000 if number < 3 else 300, restart if number in RESTARTS else None)
        killed.finish(lambda: is_complete(ledger, outputs))
        judge_changes(ledger, outputs)
    finally:
        outputs.close()
    print(f"{ROWS} rows, {ledger.transactions} transactions, {outputs.count} records, {KILLS} kills")


@pytest.mark.skipif(not LONG, reason="STREAMRT_LONG_TESTS is not set")
def test_each_change_of_postgresql_comes_once(kafka: Kafka, program: Callable[..., RunningProgram]) -> None:
    with postgres({"wal_level": "logical", "wal_sender_timeout": "5s"}) as server:
        arguments = ", ".join(f"{name}={value!r}" for name, value in server.settings.items())
        check_kills(kafka, program, server, lambda: PostgresConnection(server), "PostgresCdcSource", arguments)


@pytest.mark.skipif(not LONG, reason="STREAMRT_LONG_TESTS is not set")
def test_each_change_of_mariadb_comes_once(kafka: Kafka, program: Callable[..., RunningProgram]) -> None:
    options = {
        "log-bin": "binlog",
        "server-id": "1",
        "binlog-format": "ROW",
        "binlog-row-image": "FULL",
        "binlog-row-metadata": "FULL",
    }
    with mariadb(options) as server:
        arguments = ", ".join(f"{name}={value!r}" for name, value in {**server.settings, "tls": False}.items())
        check_kills(kafka, program, server, lambda: MariaDBConnection(server), "MySQLCdcSource", arguments)
