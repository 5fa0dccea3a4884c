"""Maintainers of a table that are killed, exactly once: rows are the fold of all requests, and each change is logged once."""

import datetime
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamrt.records import TopicPartition
from streamrt.relations import RowMerger
from streamrt.tables import Aggregate, Catalog, Table
from tests.chaos import kill_tree
from tests.support import LONG, Kafka, Program, unique, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

KILLS, INSTANCES = (20, 2) if LONG else (2, 1)
KEYS = 60
MERGED = 20
"""Requests that are merged before the next kill, at least."""
PROGRAM = """
from streamrt import Application

app = Application(
    {address!r},
    consumer_group={group!r},
    state_dir={state_dir!r},
    processing_guarantee="exactly-once",
    processing_mode="resident",
    spark_master="processes[2]",
    commit_interval=0.3,
)
app.maintain({table!r})

if __name__ == "__main__":
    app.run()
"""


class Writers:
    """Writes requests from several threads all the time: whole rows, some columns, and deletes.

    Each request is flushed, so its token says where it is.

    Args:
        table: the table.
        seed: makes the requests.
    """

    def __init__(self, table: Table, seed: int) -> None:
        self._table = table
        self._seed = seed
        self._requests: dict[tuple[TopicPartition, int], dict[str, Any] | int] = {}

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write as long as the context lasts."""
        over = threading.Event()
        threads = [
            threading.Thread(target=self._write, args=(over, random.Random(self._seed + number), columns))
            for number, columns in enumerate((None, ["k", "total"], ["k", "last"]))
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def _write(self, over: threading.Event, dice: random.Random, columns: list[str] | None) -> None:
        with self._table.writer(columns=columns) as writer:
            while not over.wait(0.03):
                k = dice.randrange(KEYS)
                request: dict[str, Any] | int
                if columns is None and dice.random() < 0.2:
                    token, request = writer.delete(k).token, k
                else:
                    row = {"k": k, "total": dice.randrange(1, 100), "last": f"text {dice.randrange(1000)}"}
                    given = {name: value for name, value in row.items() if columns is None or name in columns}
                    token, request = writer.upsert(given).token, given
                ((partition, end),) = token.items()
                self._requests[partition, end] = request

    def __len__(self) -> int:
        return len(self._requests)

    def fold(self) -> tuple[dict[int, Any], dict[int, list[tuple[str, Any]]]]:
        """Return the rows, and the changes of each key, after all requests in the order of their offsets."""
        info = self._table.info
        assert info.maintenance is not None
        merger = RowMerger(self._table.schema, info.key, info.maintenance)
        upsert, delete = merger.make_upsert(), merger.make_delete()
        rows: dict[int, Any] = {}
        changes: dict[int, list[tuple[str, Any]]] = {k: [] for k in range(KEYS)}
        for _, given in sorted(self._requests.items(), key=lambda each: each[0]):
            k = given if isinstance(given, int) else given["k"]
            before = rows.pop(k, None)
            after = upsert(before, given) if isinstance(given, dict) else delete(before, None)
            if after is not None:
                rows[k] = after
            if after != before:
                changes[k] += [] if before is None else [("-D" if after is None else "-U", before)]
                changes[k] += [] if after is None else [("+I" if before is None else "+U", after)]
        return rows, changes


def test_rows_are_the_fold_of_the_requests(kafka: Kafka, program: Callable[..., Program], tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    name = f"default.{unique('totals')}".replace("-", "_")
    with Catalog(kafka.address) as catalog:
        table = catalog.create_table(
            name,
            "k BIGINT, total BIGINT, last STRING, PRIMARY KEY (k)",
            num_partitions=4,
            merge=Aggregate(total="sum"),
            deletes="allow",
            changelog=True,
        )
        log = catalog.table(f"{name}$changelog")
        writers, group = Writers(table, seed), unique("maintainer")
        states = [tmp_path / f"state-{number}" for number in range(INSTANCES)]
        texts = [
            PROGRAM.format(address=kafka.address, group=group, state_dir=str(state), table=name) for state in states
        ]
        requests = [TopicPartition(f"{table.info.topic}.requests", number) for number in range(4)]

        def merged() -> int:
            return sum(offset or 0 for offset in kafka.admin.committed(group, requests).values())

        def merge_more() -> None:
            before = merged()
            wait_until(lambda: merged() >= before + MERGED, 120, "more merged requests")

        apps = [program(text) for text in texts]
        with writers.writing():
            for kill in range(KILLS):
                merge_more()
                number = kill % INSTANCES
                kill_tree(apps[number])
                if kill % 2:
                    # All stores come from their changelogs.
                    shutil.rmtree(states[number])
                apps[number] = program(texts[number])
            merge_more()
        with table.writer() as last:
            token = last.delete(KEYS).token | last.flush()
        ends = kafka.admin.offset_bounds(requests)
        wait_until(
            lambda: all(
                (offset or 0) >= ends[each][1] for each, offset in kafka.admin.committed(group, requests).items()
            ),
            120,
            "the last requests",
        )
        rows, changes = writers.fold()
        assert table.get(KEYS, after=token) is None
        assert {row["k"]: row for row in table.scan().to_arrow().to_pylist()} == rows
        logged: dict[int, list[tuple[str, Any]]] = {k: [] for k in range(KEYS)}
        for row in log.scan().to_arrow().to_pylist():
            kind, at = row.pop("_change_type"), row.pop("_at")
            assert isinstance(at, datetime.datetime)
            logged[row["k"]].append((kind, row))
        assert logged == changes
        print(
            f"{KILLS} kills of {INSTANCES} instances, {len(writers)} requests, {sum(map(len, changes.values()))} changes"
        )
        for app in apps:
            code, _ = app.end()
            assert code == 0, "".join(app.err)
