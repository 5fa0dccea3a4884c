"""The verification of views whose windows give one result: open windows and late records are not mistakes, others are."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from streamrt import Application
from streamrt.schema import Schema
from streamrt.sql.verify.comparison import Comparison
from streamrt.sql.verify.excuses import _excuse
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import InputRecord, TopologyTestDriver
from streamrt.windows.fixed import FixedWindow
from tests.sql.worlds import VIEW, Change, World

START = datetime(2026, 1, 1)
SCHEMA = Schema("id BIGINT, page STRING, at TIMESTAMP", time="at")
WINDOWS = "SELECT page, window.start AS s, count(*) AS n FROM visits GROUP BY page, window(at, '5 seconds')"
SESSIONS = "SELECT session_window.start AS s, count(*) AS n FROM visits GROUP BY session_window(at, '3 seconds')"
FINAL = " WITH (emit = 'final', grace = '1 second')"


def visit(number: int, seconds: float, page: str = "a") -> Change:
    return Change("visits", None, {"id": number, "page": page, "at": START + timedelta(seconds=seconds)})


def make_world(query: str, times: list[float], partitions: int = 1) -> World:
    world = World({"visits": SCHEMA}, query, partitions=partitions, options=FINAL)
    world.feed([visit(number, seconds) for number, seconds in enumerate(times)])
    return world


def test_rows_of_windows_that_are_open_may_be_missing() -> None:
    with make_world(WINDOWS, [1, 2, 7, 12]) as world:
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows, found.excused_count) == (True, 2, 0), str(found)
        assert "rows of windows that may be open, and are not in the view yet: 1" in str(found)
        world.driver.end()
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows, found.notes) == (True, 3, ()), str(found)


def test_a_row_may_be_there_only_while_other_windows_are_open() -> None:
    windows = WINDOWS.replace("GROUP BY", "WHERE id <> 2 GROUP BY")
    query = f"SELECT w.s FROM ({windows}) AS w WHERE w.n = (SELECT max(each.n) FROM ({SESSIONS}) AS each)"
    with make_world(query, [1, 7, 9]) as world:
        # The session with two records is open, and 1 is the highest count until it is over.
        assert world.rows() == [(START,)]
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows, found.excused_count) == (True, 1, 1), str(found)
        world.driver.end()
        assert world.rows() == []
        assert world.driver.verify(VIEW).equal


def test_records_that_where_leaves_out_close_no_window() -> None:
    query = WINDOWS.replace("GROUP BY", "WHERE id <> 3 GROUP BY")
    with make_world(query, [1, 2, 7, 12]) as world:
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows, found.excused_count) == (True, 1, 0), str(found)
        assert "rows of windows that may be open, and are not in the view yet: 1" in str(found)
        world.driver.end()
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows, found.notes) == (True, 2, ()), str(found)


def test_rows_that_lack_late_records_are_named_and_no_mistake() -> None:
    with make_world(WINDOWS, [1, 2, 7, 3, 12]) as world:
        found = world.driver.verify(VIEW)
        assert (found.equal, found.differing, found.excused_count) == (True, 0, 2)
        assert [(row.kind, row.row["n"]) for row in found.excused] == [("missing", 3), ("surplus", 2)]
        assert "2 rows differ because of late records or open windows:" in str(found)
        assert "as they are far behind others of their partition: 1" in str(found)
        assert "page='a'" not in str(found.hide(["page"]))


def test_sessions_are_verified() -> None:
    with make_world(SESSIONS, [0, 2, 10, 11, 3, 30, 31]) as world:
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows) == (True, 2), str(found)
        world.driver.end()
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows, found.excused_count) == (True, 3, 2), str(found)


def test_rows_without_a_time_are_in_no_window() -> None:
    for query in (WINDOWS, SESSIONS):
        world = World({"visits": SCHEMA}, query, partitions=1, options=FINAL)
        timeless = Change("visits", None, {"id": 0, "page": "a", "at": None}, 1767225601000)
        with world:
            world.feed([visit(1, 1), timeless, visit(2, 2)])
            world.driver.end()
            found = world.driver.verify(VIEW)
            assert (found.equal, [row[-1] for row in world.rows()]) == (True, [2]), str(found)


def test_pairs_of_late_records_may_be_missing() -> None:
    tables = {"visits": SCHEMA, "clicks": Schema("id BIGINT, at TIMESTAMP", time="at")}
    query = """
        SELECT v.id, c.at AS clicked FROM visits v JOIN clicks c
        ON c.id = v.id AND c.at BETWEEN v.at AND v.at + INTERVAL '2' SECONDS
    """
    with World(tables, query, partitions=1, options=" WITH (grace = '1 second')") as world:
        for number, seconds in ((1, 1), (2, 100), (3, 3)):
            click = {"id": number, "at": START + timedelta(seconds=seconds + 1)}
            world.feed([visit(number, seconds), Change("clicks", None, click)])
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows, [row.row["id"] for row in found.excused]) == (True, 2, [3]), str(found)


@pytest.fixture
def _lost_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No window has a result."""
    build = FixedWindow.build
    monkeypatch.setattr(
        FixedWindow, "build", lambda self, child, node, context: build(self, lambda *_: None, node, context)
    )


@pytest.mark.usefixtures("_lost_windows")
def test_rows_of_windows_that_are_over_may_not_be_missing() -> None:
    with make_world(WINDOWS, [1, 2, 7, 3, 12]) as world:
        found = world.driver.verify(VIEW)
        assert (found.equal, found.excused_count) == (False, 0), str(found)
        # Also without the late record, the first window has a row.
        assert [row.row["s"] for row in found.differences] == [START, START + timedelta(seconds=5)]


def test_rows_that_no_late_record_explains_are_mistakes() -> None:
    with make_world(WINDOWS, [1, 2, 7, 3, 12]) as world:
        row = {"page": "a", "s": START + timedelta(seconds=5), "n": 7}
        world.driver.table(VIEW).append([row])
        found = world.driver.verify(VIEW)
        assert (found.equal, [(each.kind, each.row) for each in found.differences]) == (False, [("surplus", row)])


def test_time_is_that_of_the_partition_that_is_furthest_behind() -> None:
    with make_world(WINDOWS, [1, 2, 30, 3], partitions=2) as world:
        # The second partition has come to 3 s, so no window is over.
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows) == (True, 0), str(found)
        assert "and are not in the view yet: 2" in str(found)


def test_queries_over_results_of_windows_are_verified() -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_table("visits", SCHEMA, num_partitions=1)
    app = Application("unused:9092", consumer_group="shop", catalog=catalog, processing_guarantee="exactly-once")
    app.sql(
        f"""
        CREATE VIEW per_window{FINAL} AS {WINDOWS};
        CREATE MATERIALIZED VIEW totals AS SELECT page, count(*) AS windows, sum(n) AS n FROM per_window GROUP BY page;
        """
    )
    with TopologyTestDriver(app) as driver:
        times: list[tuple[str, Any]] = [("a", 1), ("b", 2), ("a", 7), ("b", 3), ("a", 14), ("b", 13)]
        rows = [visit(number, seconds, page).row for number, (page, seconds) in enumerate(times)]
        driver.pipe_many(InputRecord("default.visits", row) for row in rows)
        found = driver.verify("totals")
        assert (found.equal, found.rows) == (True, 2), str(found)


PER_COUNT = f"SELECT c.n, count(*) AS windows FROM ({WINDOWS}) AS c GROUP BY c.n"


def test_a_record_may_be_late_for_some_of_its_windows() -> None:
    hopping = WINDOWS.replace("'5 seconds'", "'6 seconds', '3 seconds'")
    per_page = f"SELECT c.page, count(*) AS windows FROM ({hopping}) AS c GROUP BY c.page"
    query = f"SELECT p.windows, count(*) AS pages FROM ({per_page}) AS p GROUP BY p.windows HAVING count(*) > 1"
    with make_world(query, []) as world:
        # The record at 10.4 s is late for the window from 6 s, and in time for the one from 9 s.
        times = [("b", 4.7), ("a", 13.7), ("b", 10.4), ("a", 15.1), ("b", 24.1)]
        world.feed([visit(number, seconds, page) for number, (page, seconds) in enumerate(times)])
        assert world.rows() == [(3, 2)]
        found = world.driver.verify(VIEW)
        assert (found.equal, found.excused_count) == (True, 1), str(found)


def test_rows_over_results_of_windows_are_proved_if_it_is_known_which_are_open() -> None:
    with make_world(PER_COUNT, [1, 2, 7, 12]) as world:
        found = world.driver.verify(VIEW)
        assert (found.equal, found.rows) == (True, 2), str(found)
        world.driver.table(VIEW).upsert([{"n": 7, "windows": 1}])
        found = world.driver.verify(VIEW)
        assert [(each.kind, each.row["n"]) for each in found.differences] == [("surplus", 7)], str(found)


def test_rows_are_excused_only_as_often_as_their_records_are_late() -> None:
    changes = {
        "open": Comparison([], []),
        "late": Comparison([("a", 3)], [("a", 1)]),
        "both": Comparison([("a", 3)], []),
    }
    differing = Comparison([("a", 3), ("b", 1)], [("a", 2), ("c", 1)])
    # Of two late records of the window, one was counted.
    keyed = _excuse(differing, changes, [0], 2)
    assert (keyed.differing, keyed.excused) == (Comparison([("b", 1)], [("c", 1)]), Comparison([("a", 3)], [("a", 2)]))
    bare = _excuse(differing, changes, [], 2)
    assert (bare.differing, bare.excused) == (Comparison([("b", 1)], [("c", 1)]), Comparison([("a", 3)], [("a", 2)]))
