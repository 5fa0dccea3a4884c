"""`streamrt table maintain` on a broker: requests of several writers become rows, and are deleted."""

from pathlib import Path

import pytest

from streamrt.errors import LookupTimeoutError
from streamrt.records import TopicPartition
from streamrt.tables import Aggregate, Catalog
from tests.command_line import streamrt
from tests.kafka.brokers import pending_commit
from tests.support import Kafka, unique

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

COLUMNS = "k BIGINT, total BIGINT, last STRING, PRIMARY KEY (k)"


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_requests_of_several_writers(kafka: Kafka, tmp_path: Path, guarantee: str) -> None:
    name, group = f"default.{unique('totals')}".replace("-", "_"), unique("maintainer")
    with Catalog(kafka.address) as catalog:
        table = catalog.create_table(
            name, COLUMNS, num_partitions=2, merge=Aggregate(total="sum"), changelog=True, replication_factor=1
        )

        def maintain() -> None:
            once = ("--exactly-once",) if guarantee == "exactly-once" else ()
            settings = {"spark_master": "processes[2]", "processing_mode": "resident", "state_dir": tmp_path / "state"}
            pairs = [part for setting, value in settings.items() for part in ("--set", f"{setting}={value}")]
            ended = streamrt(
                "table", "maintain", name, "--broker", kafka.address, "--group", group, "--end", *once, *pairs
            )
            assert ended.code == 0, ended

        expected = dict.fromkeys(range(20), 0)
        for run in range(2):
            with table.writer() as whole, table.writer(columns=["k", "total"]) as partial:
                for number in range(200):
                    k = number % 20
                    expected[k] += number
                    if number % 2:
                        whole.upsert({"k": k, "total": number, "last": f"run {run}"})
                    else:
                        partial.upsert({"k": k, "total": number})
                token = whole.flush() | partial.flush()
            with pytest.raises(LookupTimeoutError, match="wait to be merged"):
                table.get(1, after=token, timeout=0.5)
            maintain()
            assert [usage.kind for usage in table.usages()] == ["maintains"]
            row = table.get(1, after=token)
            assert row is not None
            assert row["total"] == expected[1]
            rows = {row["k"]: row for row in table.scan(after=token).to_arrow().to_pylist()}
            assert {k: row["total"] for k, row in rows.items()} == expected
            assert {row["last"] for k, row in rows.items() if k % 2} == {f"run {run}"}
            bounds = kafka.admin.offset_bounds([TopicPartition(f"{name}.requests", number) for number in range(2)])
            assert sum(end for _, end in bounds.values()) >= 200
            waiting = [end - start for start, end in bounds.values()]
            assert max(waiting) <= 3, "merged requests are still there"
        ahead = {TopicPartition(f"{name}.requests", number): 1_000 for number in range(2)}
        with pending_commit(kafka.address, group, ahead) as producer, table.writer() as writer:
            writer.upsert({"k": 1, "total": 1, "last": "held back"})
            token = writer.flush()
            with pytest.raises(
                LookupTimeoutError, match=r"wait to be merged, and application .* has an open transaction"
            ):
                table.get(1, after=token, timeout=0.5)
            producer.abort_transaction(30)
        changes = catalog.table(f"{name}$changelog").scan().count()
        assert changes >= 20 + 2 * (400 - 20) - 2 * 2
        assert table.info.maintenance is not None
