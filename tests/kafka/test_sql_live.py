"""Queries next to an application that runs: offsets and lag of its group, and rows that a token has brought about."""

from collections.abc import Iterator
from typing import Any

import pytest

from streamrt import Application, Offsets
from streamrt.errors import ApplicationStateError, ApplicationTimeoutError, ArgumentValueError
from streamrt.tables import Catalog
from tests.support import LONG, MASTER, Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PROGRAM = """
CREATE DATABASE {database};
CREATE TABLE {database}.clicks (page STRING, n BIGINT) WITH ('partitions' = 2);
CREATE MATERIALIZED VIEW {database}.pages AS SELECT page, sum(n) AS s FROM {database}.clicks WHERE n > 0 GROUP BY page;
"""


class Clicks:
    """An application with a view, behind a repartition topic, of a table that a test writes."""

    def __init__(self, kafka: Kafka, **settings: Any) -> None:
        self.database, self.group = unique("clicked").replace("-", "_"), unique("clicks")
        self._kafka, self._settings = kafka, settings
        self.app = self.make(self.group)
        self.catalog = Catalog(kafka.address)
        self._clicks = self.catalog.table(f"{self.database}.clicks")
        self.caught_up: dict[str, int | None] = dict.fromkeys(self.app.topology.sources, 0)

    def make(self, group: str) -> Application:
        """Return an application of this program in a group."""
        app = self._kafka.app(group, commit_interval=0.2, **self._settings)
        app.sql(PROGRAM.format(database=self.database))
        return app

    def click(self, page: str, *numbers: int) -> Offsets:
        """Write records, and return their token."""
        token = self._clicks.append([[page, n] for n in numbers])
        assert isinstance(token, Offsets)
        return token

    def sum_of(self, page: str, after: Offsets, timeout: float = 60.0) -> int | None:
        """Return the sum of a page, once the view has the records of a token."""
        sql = f"SELECT s FROM {self.database}.pages WHERE page = :page"
        found = self.app.query(sql, {"page": page}, after=after, timeout=timeout).to_arrow()["s"].to_pylist()
        return found[0] if found else None

    def lags(self, app: Application | None = None) -> dict[str, int | None]:
        """Return the lag of each topic of a group, by `system.lag`; None if nothing is committed."""
        sql = "SELECT topic, sum(lag) AS lag FROM system.lag GROUP BY topic"
        return {row["topic"]: row["lag"] for row in (app or self.app).query(sql)}


RESIDENT = {"spark_master": "processes[1]", "processing_mode": "resident"}


@pytest.fixture
def clicks(kafka: Kafka) -> Iterator[Clicks]:
    made = Clicks(kafka, **RESIDENT)
    yield made
    made.app.stop(wait=True, timeout=60)
    made.catalog.close()


def test_lag_rises_while_an_application_is_away_and_falls_after(clicks: Clicks) -> None:
    app, topic = clicks.app, f"{clicks.database}.clicks"
    other = clicks.make(unique("other"))
    clicks.click("a", 1, 2)
    app.start(timeout=60)
    wait_until(lambda: clicks.lags() == clicks.caught_up, 60, "no lag")
    committed = app.query("SELECT * FROM system.offsets ORDER BY topic, partition").to_arrow().to_pylist()
    assert {row["application"] for row in committed} == {clicks.group}
    assert sum(row["committed"] or 0 for row in committed if row["topic"] == topic) == 2
    app.pause()
    clicks.click("b", 1, 2, 3)
    assert clicks.lags() == {**clicks.caught_up, topic: 3}
    app.resume()
    wait_until(lambda: clicks.lags() == clicks.caught_up, 60, "no lag")
    app.stop(wait=True, timeout=60)
    clicks.click("c", 1, 2)
    rows = app.query("SELECT * FROM system.lag").to_arrow().to_pylist()
    assert sum(row["lag"] for row in rows if row["topic"] == topic) == 2
    assert sum(row["end_offset"] for row in rows if row["topic"] == topic) == 7
    assert all(row["end_offset"] - row["committed"] == row["lag"] for row in rows if row["committed"] is not None)
    # The figures are those of the group of the application that is asked.
    assert set(clicks.lags(other).values()) == {None}
    clicks.app = app = clicks.make(clicks.group)
    app.start(timeout=60)
    wait_until(lambda: clicks.lags() == clicks.caught_up, 60, "no lag")
    reads = f"SELECT a.name FROM system.applications a WHERE array_contains(a.reads, '{topic}')"
    assert [row["name"] for row in app.query(reads)] == [clicks.group]
    joined = (
        "SELECT t.name, t.partitions, u.kind, o.ends FROM system.tables t JOIN system.usages u ON u.table = t.name "
        "JOIN (SELECT table, sum(end_offset) AS ends FROM system.topics GROUP BY table) o ON o.table = t.name "
        "WHERE u.application = :group AND u.kind = 'reads'"
    )
    found = app.query(joined, {"group": clicks.group}).one()
    assert tuple(found.values()) == (topic, 2, "reads", 7)


def ask_after_tokens(clicks: Clicks) -> None:
    """Ask a running application for rows that tokens of its input have brought about."""
    app, total = clicks.app, 0
    for number in range(1, 6):
        total += number
        assert clicks.sum_of("a", clicks.click("a", number)) == total
    # Records that make no row are waited for.
    assert clicks.sum_of("a", clicks.click("a", -5, -6)) == total
    assert clicks.sum_of("none", clicks.click("none", -1)) is None
    # So does a query that also reads the input.
    joined = (
        f"SELECT p.s, c.n FROM {clicks.database}.pages p JOIN {clicks.database}.clicks c ON c.page = p.page "
        "WHERE p.page = 'b'"
    )
    assert app.query(joined, after=clicks.click("b", 7)).one() == {"s": 7, "n": 7}
    token = clicks.click("a", 1)
    far = Offsets({each: offset + 1_000 for each, offset in token.items()})
    with pytest.raises(ApplicationTimeoutError, match=rf"behind after 1 s; {clicks.database}\.clicks\[\d\]"):
        clicks.sum_of("a", far, timeout=1.0)
    with pytest.raises(ArgumentValueError, match="which the application does not read; it reads"):
        clicks.sum_of("a", Offsets({("elsewhere", 0): 1}))
    app.pause()
    token = clicks.click("c", 1)
    with pytest.raises(ApplicationTimeoutError, match="paused"):
        clicks.sum_of("c", token, timeout=1.0)
    app.resume()
    assert clicks.sum_of("c", token) == 1
    app.stop(wait=True, timeout=60)
    with pytest.raises(ApplicationStateError, match="is stopped and cannot wait for a token"):
        clicks.sum_of("c", token)


def test_a_query_sees_the_rows_of_a_token(kafka: Kafka) -> None:
    clicks = Clicks(kafka, **RESIDENT, processing_guarantee="exactly-once")
    with clicks.catalog:
        try:
            clicks.app.start(timeout=60)
            ask_after_tokens(clicks)
        finally:
            clicks.app.stop(wait=True, timeout=60)


@pytest.mark.spark
@pytest.mark.skipif(not LONG, reason="set STREAMRT_LONG_TESTS=1")
def test_a_query_sees_the_rows_of_a_token_in_micro_batches(kafka: Kafka) -> None:
    clicks = Clicks(kafka, processing_mode="micro-batch", spark_master=MASTER)
    with clicks.catalog:
        try:
            clicks.app.start(timeout=180)
            ask_after_tokens(clicks)
        finally:
            clicks.app.stop(wait=True, timeout=60)
