"""Changes captured at the origin of rows, applied to tables: the present row of each key, or its history."""

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ArgumentTypeError, ArgumentValueError, InvalidOperationError, ProcessingError
from streamrt.relations import row_history
from streamrt.testing import TopologyTestDriver
from streamrt.topics import TopicConfig
from tests.support import LONG
from tests.unit.table_homes import Tables

pytestmark = pytest.mark.usefixtures("processing_mode")

USERS = "userId BIGINT, name STRING, city STRING, PRIMARY KEY (userId)"
HISTORY = (
    "userId BIGINT, name STRING, city STRING, __START_AT BIGINT, __END_AT BIGINT, PRIMARY KEY (userId, __START_AT)"
)
COLUMNS = ("userId", "name", "city", "operation", "sequenceNum")
# The example in the documentation of `create_auto_cdc_flow`.
FEED = [
    (124, "Raul", "Oaxaca", "INSERT", 1),
    (123, "Isabel", "Monterrey", "INSERT", 1),
    (125, "Mercedes", "Tijuana", "INSERT", 2),
    (126, "Lily", "Cancun", "INSERT", 2),
    (123, None, None, "DELETE", 6),
    (125, "Mercedes", "Guadalajara", "UPDATE", 6),
    (125, "Mercedes", "Mexicali", "UPDATE", 5),
    (123, "Isabel", "Chihuahua", "UPDATE", 5),
]
TRUNCATE = (None, None, None, "TRUNCATE", 3)


def make_app(columns: str = USERS, *, partitions: int = 1, **settings: Any) -> tuple[Application, Any]:
    tables = Tables()
    tables.add("shop.users", columns)
    app = Application("unused:9092", consumer_group="shop", catalog=tables, **settings)  # type: ignore[arg-type]
    return app, app.dataframe(app.topic("feed", config=TopicConfig(partitions, 1)))


def capture(frame: Any, **arguments: Any) -> Any:
    given = {"sequence_by": "sequenceNum", "apply_as_deletes": frame["operation"] == "DELETE", **arguments}
    return frame.to_table("shop.users", **given)


def rows_of(driver: TopologyTestDriver, rows: dict[Any, Any] | None = None) -> dict[Any, Any]:
    """Return the rows of the table, by their primary key."""
    rows = {} if rows is None else rows
    for record in driver.read("shop.users"):
        if record.value is None:
            del rows[record.key]
        else:
            assert rows.get(record.key) != record.value, "nothing has changed"
            rows[record.key] = record.value
    return rows


def apply_feed(feed: list[Any], columns: str = USERS, partitions: int = 1, **arguments: Any) -> set[tuple[Any, ...]]:
    app, frame = make_app(columns, partitions=partitions)
    capture(frame, **arguments)
    driver = TopologyTestDriver(app)
    for number, values in enumerate(feed):
        driver.pipe("feed", dict(zip(COLUMNS, values, strict=True)), timestamp=number, partition=number % partitions)
    return {tuple(row.values()) for row in rows_of(driver).values()}


ORDERS = [FEED, FEED[::-1], sorted(FEED, key=lambda values: values[4]), random.Random(5).sample(FEED, len(FEED))]


@pytest.mark.parametrize("feed", ORDERS)
def test_the_present_rows_of_sparks_example(feed: list[Any]) -> None:
    assert apply_feed(feed) == {(124, "Raul", "Oaxaca"), (125, "Mercedes", "Guadalajara"), (126, "Lily", "Cancun")}


@pytest.mark.parametrize("place", [0, 4, 8])
@pytest.mark.parametrize("partitions", [1, 3])
def test_the_truncate_of_sparks_example(place: int, partitions: int) -> None:
    feed = [*FEED[:place], TRUNCATE, *FEED[place:]]
    truncates: dict[str, Any] = {"apply_as_truncates": lambda value: value["operation"] == "TRUNCATE"}
    assert apply_feed(feed, partitions=partitions, **truncates) == {(125, "Mercedes", "Guadalajara")}


@pytest.mark.parametrize("feed", ORDERS)
def test_the_history_of_sparks_example(feed: list[Any]) -> None:
    assert apply_feed(feed, HISTORY, scd=2) == {
        (123, "Isabel", "Chihuahua", 5, 6),
        (123, "Isabel", "Monterrey", 1, 5),
        (124, "Raul", "Oaxaca", 1, None),
        (125, "Mercedes", "Guadalajara", 6, None),
        (125, "Mercedes", "Mexicali", 5, 6),
        (125, "Mercedes", "Tijuana", 2, 5),
        (126, "Lily", "Cancun", 2, None),
    }


@pytest.mark.parametrize("feed", ORDERS)
@pytest.mark.parametrize("tracked", [{"track_history_columns": ["name"]}, {"track_history_except_columns": ["city"]}])
def test_the_history_of_some_columns_of_sparks_example(feed: list[Any], tracked: dict[str, Any]) -> None:
    assert apply_feed(feed, HISTORY, scd=2, **tracked) == {
        (123, "Isabel", "Chihuahua", 1, 6),
        (124, "Raul", "Oaxaca", 1, None),
        (125, "Mercedes", "Guadalajara", 2, None),
        (126, "Lily", "Cancun", 2, None),
    }


def test_a_late_change_splits_a_version() -> None:
    feed = [(1, "a", "x", "", 1), (1, "a", "x", "", 5), (1, "b", "x", "", 3)]
    assert apply_feed(feed[:2], HISTORY, scd=2) == {(1, "a", "x", 1, None)}
    assert apply_feed(feed, HISTORY, scd=2) == {(1, "a", "x", 1, 3), (1, "b", "x", 3, 5), (1, "a", "x", 5, None)}


def test_nulls_are_ignored_where_it_is_asked_for() -> None:
    feed = [(1, "ann", "Lyon", "", 1), (1, None, "Nice", "", 2), (1, "anna", None, "", 3)]
    assert apply_feed(feed) == {(1, "anna", None)}
    assert apply_feed(feed, ignore_null_updates=True) == {(1, "anna", "Nice")}
    assert apply_feed(feed[:2], ignore_null_updates=["name"]) == {(1, "ann", "Nice")}
    assert apply_feed(feed, ignore_null_updates=["name"]) == {(1, "anna", None)}
    # The older change still gives the column that the newer one leaves out.
    assert apply_feed([feed[2], feed[1], feed[0]], ignore_null_updates=True) == {(1, "anna", "Nice")}


def test_columns_that_are_not_written_stay_null() -> None:
    assert apply_feed(
        [(1, "ann", "Lyon", "", 1)], columns="userId BIGINT, name STRING, city STRING, PRIMARY KEY (userId)"
    )
    app, frame = make_app()
    capture(frame, columns=["name"])
    driver = TopologyTestDriver(app)
    driver.pipe("feed", {"userId": 1, "name": "ann", "city": "Lyon", "operation": "", "sequenceNum": 1})
    assert rows_of(driver) == {1: {"userId": 1, "name": "ann", "city": None}}
    app, frame = make_app()
    capture(frame, except_columns=["name"])
    driver = TopologyTestDriver(app)
    driver.pipe("feed", {"userId": 1, "name": "ann", "city": "Lyon", "operation": "", "sequenceNum": 1})
    assert rows_of(driver) == {1: {"userId": 1, "name": None, "city": "Lyon"}}


def test_present_rows_are_a_table_to_join() -> None:
    app, frame = make_app(HISTORY)
    users = capture(frame, scd=2)
    orders = app.dataframe(app.topic("orders")).group_by("userId").as_table()
    orders.join(users[["city"]], how="left").to_stream().to_topic(app.topic("out", key_serializer="json"))
    driver = TopologyTestDriver(app)
    driver.pipe("orders", {"userId": 125, "total": 5})
    for values in (FEED[2], FEED[5], FEED[6]):
        driver.pipe("feed", dict(zip(COLUMNS, values, strict=True)))
    cities = [record.value.get("city") for record in driver.read("out")]
    # The change that came late changes the history, and not the present row.
    assert cities == [None, "Tijuana", "Guadalajara"]


@pytest.mark.parametrize(
    "sequence_by",
    [["day", "n"], lambda value: (value["day"], value["n"]), "both"],
)
def test_sequences_of_several_parts(sequence_by: Any) -> None:
    app, frame = make_app()
    frame["both"] = frame["day"] * 1000 + frame["n"]
    frame.to_table("shop.users", sequence_by=frame["both"] if sequence_by == "both" else sequence_by)
    driver = TopologyTestDriver(app)
    for name, day, n in (("b", 2, 1), ("a", 1, 9), ("c", 2, 2)):
        driver.pipe("feed", {"userId": 1, "name": name, "day": day, "n": n})
    assert [row["name"] for row in rows_of(driver).values()] == ["c"]


def test_sequences_have_the_type_of_the_columns_of_a_history() -> None:
    columns = HISTORY.replace("__START_AT BIGINT, __END_AT BIGINT", "__START_AT TIMESTAMP, __END_AT TIMESTAMP")
    first, second = datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 2, 12)
    feed = [(1, "b", "x", "", second.isoformat()), (1, "a", "x", "", first.isoformat())]
    assert apply_feed(feed, columns, scd=2) == {(1, "a", "x", first, second), (1, "b", "x", second, None)}


# -- What is kept ------------------------------------------------------------------------------------------------------


def test_a_deletion_is_remembered_for_the_retention() -> None:
    app, frame = make_app()
    capture(frame, retention=datetime.timedelta(seconds=10))
    driver = TopologyTestDriver(app)
    rows: dict[Any, Any] = {}

    def pipe(user: int, operation: str, sequence: int, at: int) -> dict[Any, Any]:
        value = {"userId": user, "name": "ann", "city": None, "operation": operation, "sequenceNum": sequence}
        driver.pipe("feed", value, timestamp=at)
        return rows_of(driver, rows)

    assert pipe(1, "", 5, 0)
    assert not pipe(1, "DELETE", 6, 1_000)
    assert 1 not in pipe(1, "", 4, 10_999)
    pipe(2, "", 1, 11_000)
    assert 1 in pipe(1, "", 4, 11_001)


def test_a_change_that_is_too_late_for_its_history_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, frame = make_app(HISTORY, loglevel=None)
    capture(frame, scd=2, retention=10_000)
    driver = TopologyTestDriver(app)
    rows: dict[Any, Any] = {}
    for sequence, name, at in (
        (5, "a", 0),
        (7, "b", 5_000),
        (6, "late", 9_999),
        (9, "c", 20_000),
        (8, "too late", 30_000),
    ):
        value = {"userId": 1, "name": name, "city": None, "operation": "", "sequenceNum": sequence}
        driver.pipe("feed", value, timestamp=at)
        rows_of(driver, rows)
    assert [
        (row["name"], row["__START_AT"], row["__END_AT"])
        for row in sorted(rows.values(), key=lambda r: r["__START_AT"])
    ] == [
        ("a", 5, 6),
        ("late", 6, 7),
        ("b", 7, 9),
        ("c", 9, None),
    ]
    assert "left out a change" in caplog.text


def test_a_history_keeps_a_number_of_changes_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    app, frame = make_app(HISTORY)
    monkeypatch.setattr(row_history, "MOST_CHANGES", 10)
    capture(frame, scd=2)
    driver = TopologyTestDriver(app)
    for sequence in (*range(10, 22), 5, 11):
        driver.pipe(
            "feed", {"userId": 1, "name": str(sequence % 2), "city": None, "operation": "", "sequenceNum": sequence}
        )
    rows = rows_of(driver)
    assert len(rows) == 12
    assert (1, 5) not in rows


# -- Errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"sequenceNum": None}, "the sequence of a change is null"),
        ({"sequenceNum": True}, "of type bool"),
        ({"sequenceNum": "five"}, "cannot be compared: they are of types str and int"),
        ({"sequenceNum": []}, "empty list"),
        ({"userId": None}, "the key of a change, userId, must not be null"),
        ({"age": "old"}, r"column 'age' \(INT\) must be"),
    ],
)
def test_changes_that_do_not_fit(change: dict[str, Any], expected: str) -> None:
    app, frame = make_app("userId BIGINT, name STRING, age INT, PRIMARY KEY (userId)")
    capture(frame)
    driver = TopologyTestDriver(app)
    fits = {"userId": 1, "name": "ann", "age": 30, "operation": "", "sequenceNum": 1}
    driver.pipe("feed", fits)
    with pytest.raises(ProcessingError, match=expected):
        driver.pipe("feed", {**fits, **change})


def test_a_change_that_is_skipped_changes_nothing() -> None:
    app, frame = make_app("userId BIGINT, name BIGINT NOT NULL, city STRING, PRIMARY KEY (userId)", on_error="skip")
    capture(frame, ignore_null_updates=True)
    driver = TopologyTestDriver(app)
    for sequence, name in ((1, None), (2, 5), (3, "ann"), (4, None)):
        driver.pipe(
            "feed", {"userId": 1, "name": name, "city": str(sequence), "operation": "", "sequenceNum": sequence}
        )
    assert rows_of(driver) == {1: {"userId": 1, "name": 5, "city": "4"}}


def test_a_value_that_is_no_row() -> None:
    app, frame = make_app()
    frame.group_by("userId").apply(lambda value: 5).to_table("shop.users", sequence_by=lambda value: 1)
    with pytest.raises(ProcessingError, match="a change must be a row with a sequence, not int"):
        TopologyTestDriver(app).pipe("feed", {"userId": 1})


REFUSED: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    (USERS, {"sequence_by": None, "scd": 2}, ArgumentValueError, r"to_table\(scd=...\) needs sequence_by"),
    (USERS, {"sequence_by": None, "ignore_null_updates": True}, ArgumentValueError, "needs sequence_by"),
    (USERS, {"sequence_by": None, "retention": 5}, ArgumentValueError, "needs sequence_by"),
    (USERS, {"change_events": True}, ArgumentValueError, "does not go with change_events"),
    (
        USERS,
        {"sequence_by": None, "change_events": True, "apply_as_deletes": bool},
        ArgumentValueError,
        "does not go with",
    ),
    (USERS, {"sequence_by": None, "change_events": 5}, ArgumentTypeError, "True or the name of a table"),
    (USERS, {"scd": 3}, ArgumentValueError, "must be 1 or 2"),
    (USERS, {"scd": 2}, ArgumentValueError, "needs the columns __START_AT and __END_AT"),
    (HISTORY, {}, ArgumentValueError, "so it is a history: give"),
    (HISTORY.replace("userId, __", "__"), {"scd": 2}, ArgumentValueError, "needs a primary key of the columns"),
    (HISTORY.replace("__END_AT BIGINT", "__END_AT INT"), {"scd": 2}, ArgumentValueError, "of the same type"),
    (HISTORY.replace("__END_AT BIGINT", "__END_AT BIGINT NOT NULL"), {"scd": 2}, ArgumentValueError, "NOT NULL"),
    (HISTORY, {"scd": 2, "sequence_by": ["a", "b"]}, ArgumentValueError, "give a function that makes one value"),
    (USERS, {"track_history_columns": ["name"]}, ArgumentValueError, "needs scd=2"),
    (
        USERS,
        {"columns": ["name"], "except_columns": ["city"]},
        ArgumentValueError,
        "columns or except_columns, not both",
    ),
    (
        USERS,
        {"columns": ["nam"]},
        ArgumentValueError,
        r"to_table\(columns=...\) names 'nam', and table shop.users has no",
    ),
    (USERS, {"ignore_null_updates": ["userId"]}, ArgumentValueError, "no such column that is not of its key"),
    (
        USERS.replace("city STRING", "city STRING NOT NULL"),
        {"columns": ["name"]},
        ArgumentValueError,
        "must not be null",
    ),
    (
        "userId BIGINT, name STRING",
        {},
        InvalidOperationError,
        "needs a table with a primary key, and shop.users is a log",
    ),
    (USERS, {"sequence_by": 5}, ArgumentTypeError, "takes a series or a function"),
    (USERS, {"apply_as_deletes": "op"}, ArgumentTypeError, "takes a series or a function"),
    (USERS, {"retention": -1}, ArgumentValueError, "retention"),
]


@pytest.mark.parametrize(("columns", "arguments", "error", "expected"), REFUSED)
def test_refused_arguments(columns: str, arguments: dict[str, Any], error: type[Exception], expected: str) -> None:
    _, frame = make_app(columns)
    with pytest.raises(error, match=expected):
        frame.to_table("shop.users", **{"sequence_by": "n", **arguments})


def test_refused_series_of_another_frame() -> None:
    app, frame = make_app()
    other = app.dataframe(app.topic("other"))
    with pytest.raises(ArgumentValueError, match="a series of another dataframe"):
        frame.to_table("shop.users", sequence_by=other["n"])


# -- A model -----------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """Sorts all changes of a key again and again."""

    tracked: tuple[str, ...]
    ignored: tuple[str, ...]
    changes: dict[int, list[tuple[int, dict[str, Any] | None]]] = field(default_factory=dict)
    truncates: list[int] = field(default_factory=list)

    def add(self, change: dict[str, Any]) -> None:
        sequence = change["sequenceNum"]
        if change["operation"] == "TRUNCATE":
            self.truncates.append(sequence)
            for changes in self.changes.values():
                changes.append((sequence, None))
            return
        changes = self.changes.setdefault(change["userId"], [(truncate, None) for truncate in self.truncates])
        row = {name: change[name] for name in ("name", "city")}
        changes.append((sequence, None if change["operation"] == "DELETE" else row))

    def versions(self) -> dict[tuple[int, int], dict[str, Any]]:
        found = {}
        for user, changes in self.changes.items():
            current: dict[str, Any] | None = None
            for sequence in sorted({number for number, _ in changes}):
                renewed = False
                given: dict[str, Any] | None = {}
                for number, columns in changes:
                    if number != sequence:
                        continue
                    if columns is None:
                        renewed, given = True, None
                    else:
                        left = {
                            name: value
                            for name, value in columns.items()
                            if value is not None or name not in self.ignored
                        }
                        given = {**(given or {}), **left}
                before = current
                if given is None:
                    current = None
                else:
                    empty = {"userId": user, "name": None, "city": None}
                    base = empty if before is None or renewed else before
                    row = {**base, **given}
                    row = {name: row[name] for name in ("userId", "name", "city")}
                    if before is not None and not renewed and all(before[name] == row[name] for name in self.tracked):
                        before.update(row)
                        continue
                    current = {**row, "__START_AT": sequence, "__END_AT": None}
                    found[user, sequence] = current
                if before is not None:
                    before["__END_AT"] = sequence
        return found

    def rows(self) -> dict[int, dict[str, Any]]:
        return {
            user: {name: row[name] for name in ("userId", "name", "city")}
            for (user, _), row in self.versions().items()
            if row["__END_AT"] is None
        }


CASES = 100 if LONG else 2
SETTINGS: list[tuple[int, dict[str, Any], tuple[str, ...]]] = [
    (1, {}, ("name", "city")),
    (1, {"ignore_null_updates": True}, ("name", "city")),
    (2, {}, ("name", "city")),
    (2, {"ignore_null_updates": ["city"]}, ("name", "city")),
    (2, {"track_history_columns": ["name"], "ignore_null_updates": True}, ("name",)),
]


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize(("scd", "arguments", "tracked"), SETTINGS)
@pytest.mark.parametrize("seed", range(CASES))
def test_tables_follow_changes_in_any_order(
    seed: int, scd: int, arguments: dict[str, Any], tracked: tuple[str, ...], guarantee: Any
) -> None:
    if not LONG and (seed % 2 == 0) != (guarantee == "exactly-once"):
        pytest.skip("each guarantee has half of the seeds")
    dice = random.Random(f"{seed} {scd} {arguments}")
    nulls = arguments.get("ignore_null_updates", False)
    ignored = ("name", "city") if nulls is True else tuple(nulls or ())
    app, frame = make_app(USERS if scd == 1 else HISTORY, partitions=1 + seed % 3, processing_guarantee=guarantee)
    table = capture(frame, scd=scd, apply_as_truncates=frame["operation"] == "TRUNCATE", **arguments)
    table.to_stream("both").to_topic(app.topic("changes", key_serializer="json", key_deserializer="json"))
    driver, model = TopologyTestDriver(app), Model(tracked, ignored)
    expected: Callable[[], dict[Any, Any]] = model.rows if scd == 1 else model.versions
    rows: dict[Any, Any] = {}
    present: dict[Any, Any] = {}
    history: list[dict[str, Any]] = []
    for number in range(60):
        change = {
            "userId": dice.randrange(3),
            "name": dice.choice(["a", "b", None]),
            "city": dice.choice(["x", "y", None]),
            "operation": dice.choices(["UPDATE", "DELETE", "TRUNCATE"], [20, 5, 1])[0],
            "sequenceNum": max(0, number + dice.randrange(-25, 10)),
        }
        if history and dice.random() < 0.1:
            change = dice.choice(history)
        history.append(change)
        model.add(change)
        driver.pipe("feed", change, timestamp=number, partition=number % (1 + seed % 3))
        rows_of(driver, rows)
        assert rows == expected(), (number, change)
        for record in driver.read("changes"):
            before, after, user = record.value["before"], record.value["after"], record.key
            assert present.get(user) == before, (number, change)
            present.pop(user, None)
            if after is not None:
                present[user] = after
        named = {user: {name: row[name] for name in ("userId", "name", "city")} for user, row in present.items()}
        assert named == model.rows(), (number, change)
