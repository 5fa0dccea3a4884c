"""`join_lookup`: SQLite databases, custom lookups, and what they are given."""

import contextlib
import pickle
import sqlite3
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streamrt.errors import ConfigurationError, InvalidOperationError
from streamrt.joins import (
    BaseField,
    BaseLookup,
    LookupUnavailableError,
    SQLiteLookup,
    SQLiteLookupField,
    SQLiteLookupQueryField,
)
from streamrt.joins.lookups import sql
from tests.unit.apps import Stage, fails, through

UNSUPPORTED = "type 'list' is not supported" if sys.version_info >= (3, 11) else "unsupported type"
ROWS = [("UA", 1, "United"), ("UA", 2, "United Two"), ("DL", 3, "Delta"), ("O'X", 4, 'O"X')]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "airlines.sqlite"
    change(path, 'CREATE TABLE carriers (code TEXT, "no" INTEGER, Name TEXT, "odd ""name" TEXT)')
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO carriers VALUES (?, ?, ?, 'odd')", ROWS)
    return path


def change(path: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def field(*columns: str, on: str = "code", **settings: Any) -> SQLiteLookupField:
    return SQLiteLookupField("carriers", list(columns or ["Name"]), on=on, **settings)


def query(text: str, **settings: Any) -> SQLiteLookupQueryField:
    return SQLiteLookupQueryField(text, **settings)


def look(lookup: BaseLookup[Any], one: BaseField, on: Any = "UA", **value: Any) -> Any:
    lookup.join({"found": one}, on, value, b"key", 0, None)
    return value["found"]


def test_columns_of_the_first_row_or_of_all(database: Path) -> None:
    lookup = SQLiteLookup(database)
    assert look(lookup, field("no", "Name", order_by="no")) == {"no": 1, "Name": "United"}
    assert look(lookup, field("no", order_by="no", order_by_direction="DESC")) == {"no": 2}
    assert look(lookup, field("no", order_by="code, no", order_by_direction="DESC", first_match_only=False)) == [
        {"no": 2},
        {"no": 1},
    ]
    assert look(lookup, field(default="none"), on="XX") == "none"
    assert look(lookup, field(first_match_only=False, default="none"), on="XX") == []
    assert look(lookup, field(default="none"), on=None) == "none"
    # As SQLite does, names of columns are found in any case; the value gets them as they were given.
    assert look(lookup, field("NAME", on="CODE"), on="DL") == {"NAME": "Delta"}
    assert look(lookup, field('odd "name'), on="DL") == {'odd "name': "odd"}


def test_queries_get_columns_of_the_value(database: Path) -> None:
    lookup = SQLiteLookup(database)
    assert look(lookup, query("SELECT no, Name FROM carriers WHERE no = :n"), n=3) == (3, "Delta")
    assert look(
        lookup, query("SELECT no FROM carriers WHERE no >= @n AND no < $m", first_match_only=False), n=2, m=4
    ) == [
        (2,),
        (3,),
    ]
    assert look(lookup, query("SELECT no FROM carriers WHERE no = :n", default=0), n=9) == 0
    # Neither text nor comments nor names have parameters.
    text = """SELECT ':x', "code" /* :y */ FROM carriers WHERE [no] = :n -- :z"""
    assert look(lookup, query(text), n=3) == (":x", "DL")


def test_answers_are_remembered_for_their_time_to_live(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup = SQLiteLookup(database)
    remembered, fresh = field(ttl=60), field(ttl=0)
    both = query("SELECT Name FROM carriers WHERE no = :n")
    assert look(lookup, remembered, on="DL") == look(lookup, fresh, on="DL") == {"Name": "Delta"}
    assert look(lookup, both, n=3) == ("Delta",)
    assert look(lookup, remembered, on="XX") is None
    change(database, "UPDATE carriers SET Name = 'New' WHERE no = 3")
    change(database, "INSERT INTO carriers VALUES ('XX', 9, 'Late', '')")
    assert look(lookup, remembered, on="DL") == {"Name": "Delta"}
    assert look(lookup, remembered, on="XX") is None
    assert look(lookup, fresh, on="DL") == {"Name": "New"}
    # What is remembered of a query is the answer to its parameters.
    assert look(lookup, both, on="something else", n=3) == ("Delta",)
    assert look(lookup, both, n=9) == ("Late",)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    lookup.close()
    assert look(lookup, remembered, on="DL") == {"Name": "New"}
    now += 61
    change(database, "UPDATE carriers SET Name = 'Newer' WHERE no = 3")
    assert look(lookup, remembered, on="DL") == {"Name": "Newer"}


def test_the_cache_is_bounded_and_forgets_what_was_used_least_recently(database: Path) -> None:
    lookup = SQLiteLookup(database, cache_size=2)
    one = field("no", order_by="no")
    for carrier in ("UA", "DL", "UA", "O'X"):
        assert look(lookup, one, on=carrier)
    change(database, "UPDATE carriers SET no = 100 + no")
    assert [look(lookup, one, on=carrier) for carrier in ("UA", "O'X", "DL")] == [{"no": 1}, {"no": 4}, {"no": 103}]
    none = SQLiteLookup(database, cache_size=0)
    assert look(none, one) == {"no": 101}
    change(database, "UPDATE carriers SET no = 100 + no")
    assert look(none, one) == {"no": 201}


def test_equal_values_of_different_types_are_different_questions(database: Path) -> None:
    lookup = SQLiteLookup(database)
    kind = query("SELECT typeof(:n)")
    assert [look(lookup, kind, n=n) for n in (1, 1.0, "1", b"1", None)] == [
        ("integer",),
        ("real",),
        ("text",),
        ("blob",),
        ("null",),
    ]


def test_results_belong_to_their_record(database: Path) -> None:
    lookup = SQLiteLookup(database)
    one = field(first_match_only=False, default=[])
    for _ in range(2):
        found = look(lookup, one, on="DL")
        assert found == [{"Name": "Delta"}]
        found[0]["Name"] = "changed"
    missing = field(default=[])
    for _ in range(2):
        found = look(lookup, missing, on="XX")
        assert found == []
        found.append(1)


INJECTIONS = [
    "' OR '1'='1",
    "'; DROP TABLE carriers; --",
    '" OR 1=1 --',
    "UA'--",
    "%' UNION SELECT sql FROM sqlite_master --",
    "\x00",
    ":code",
    "?1",
]


@pytest.mark.parametrize("text", INJECTIONS)
def test_nothing_that_is_looked_up_becomes_sql(database: Path, text: str) -> None:
    lookup = SQLiteLookup(database)
    assert look(lookup, field(), on=text) is None
    assert look(lookup, field(), on="O'X") == {"Name": 'O"X'}
    assert look(lookup, query("SELECT Name FROM carriers WHERE code = :code"), code=text) is None
    for one in (
        SQLiteLookupField(text, ["Name"], on="code"),
        field(text),
        field(on=text),
        field(order_by=text),
        field(f'Name" FROM carriers; {text}'),
    ):
        with pytest.raises(ConfigurationError, match=r"has no (table|column)"):
            look(lookup, one)
    assert look(lookup, query("SELECT count(*) FROM carriers")) == (4,)


def test_a_database_cannot_be_written_to(database: Path) -> None:
    lookup = SQLiteLookup(database)
    with pytest.raises(ConfigurationError, match="refuses a lookup: attempt to write a readonly database"):
        look(lookup, query("DELETE FROM carriers"))


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (SQLiteLookupField("nothing", ["a"], on="b"), 'the SQLite database .* has no table "nothing"'),
        (field("nam"), "has no column 'nam'; its columns: 'code', 'no', 'Name'"),
        (query("SELECT x FROM carriers"), "refuses a lookup: no such column: x"),
        (query("SELECT ?"), "refuses a lookup"),
        (query("SELECT :n"), f"refuses a lookup: .*{UNSUPPORTED}"),
        (BaseField(), "SQLiteLookup needs fields of SQLiteLookupField or SQLiteLookupQueryField, got BaseField"),
    ],
)
def test_what_a_database_does_not_have(database: Path, one: BaseField, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        look(SQLiteLookup(database), one, n=[1])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(sql, "_LONGEST_PAUSE_S", 0.001)


@pytest.mark.usefixtures("impatient")
def test_a_database_that_is_away_is_asked_again_and_is_nobodys_fault(database: Path) -> None:
    hidden = database.with_name("hidden")
    lookup = SQLiteLookup(database)
    database.rename(hidden)
    with pytest.raises(LookupUnavailableError, match=r"did not answer a lookup, .* unable to open database file"):
        look(lookup, field())
    assert not database.exists()
    hidden.rename(database)
    assert look(lookup, field("no", order_by="no")) == {"no": 1}


@pytest.mark.usefixtures("impatient")
def test_a_locked_database_is_waited_for(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamrt.joins.lookups.sqlite._BUSY_S", 0.0)
    lookup = SQLiteLookup(database)
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LookupUnavailableError, match="database is locked"):
            look(lookup, field())
        writer.execute("ROLLBACK")
    assert look(lookup, field(), on="DL") == {"Name": "Delta"}


def test_a_lookup_travels_without_connection_and_answers(database: Path) -> None:
    lookup = SQLiteLookup(database, cache_size=7)
    look(lookup, field())
    change(database, "UPDATE carriers SET Name = 'New'")
    copied = pickle.loads(pickle.dumps(lookup))
    assert look(copied, field()) == {"Name": "New"}
    assert repr(copied) == f"SQLiteLookup({str(database)!r})"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: field(ttl=-1), r"SQLiteLookupField\(ttl=\.\.\.\) must be a number of seconds"),
        (lambda: query("SELECT 1", ttl="x"), r"SQLiteLookupQueryField\(ttl=\.\.\.\)"),
        (lambda: SQLiteLookupField("t", [], on="x"), "columns=.* must be a list of column names"),
        (lambda: SQLiteLookupField("t", "name", on="x"), "columns=.* must be a list of column names"),
        (lambda: SQLiteLookupField("", ["a"], on="x"), "non-empty names of tables and columns"),
        (lambda: field(order_by="a,"), "non-empty names of tables and columns"),
        (lambda: field(order_by_direction="UP"), "order_by_direction=.* must be 'ASC' or 'DESC'"),
        (lambda: query(" "), "needs a query"),
        (lambda: SQLiteLookup("x", cache_size=-1), "cache_size=.* must be a number, 0 or more"),
    ],
)
def test_settings_that_cannot_be_used(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


# -- Dataframes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told(BaseField):
    """A field of `Tells`."""


class Tells(BaseLookup[Told]):
    """Tells what it was given."""

    def join(
        self, fields: Mapping[str, Told], on: Any, value: dict[str, Any], key: Any, timestamp: int, headers: Any
    ) -> None:
        for column in fields:
            value[column] = [on, str(key), timestamp, str(headers)]


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize(
    ("on", "expected"),
    [(None, "k"), ("code", "UA"), (lambda value, key: f"{value['code']}-{key.decode()}", "UA-k")],
)
def test_a_custom_lookup_is_told_everything(on: Any, expected: str) -> None:
    value = {"code": "UA"}
    found = through(
        lambda sdf: sdf.join_lookup(Tells(), {"told": Told()}, on=on).update(
            lambda value: value["told"].__setitem__(0, value["told"][0].decode()) if on is None else None
        ),
        value,
        key="k",
        timestamp=5,
        headers=[("h", b"x")],
    )
    assert found == [{"code": "UA", "told": [expected, "b'k'", 5, "[('h', b'x')]"]}]


@pytest.mark.usefixtures("processing_mode")
def test_a_lookup_changes_the_frame_in_place(database: Path) -> None:
    def build(sdf: Any) -> None:
        assert sdf.join_lookup(SQLiteLookup(database), {"airline": field()}, on="code") is sdf

    assert through(build, {"code": "DL"}, {"code": "XX"}) == [
        {"code": "DL", "airline": {"Name": "Delta"}},
        {"code": "XX", "airline": None},
    ]


@pytest.mark.usefixtures("processing_mode")
def test_errors_of_records(database: Path) -> None:
    stage = Stage()
    stage.sdf.join_lookup(SQLiteLookup(database), {"x": query("SELECT :n")}, on="code")
    assert "join_lookup-1 (SQLiteLookup, x)" in fails(stage, {"n": 1})
    assert "column 'code' is missing; the value has 'n'" in fails(stage, {"n": 1})
    assert "column 'n' is missing; the value has 'code'" in fails(stage, {"code": 1})
    assert "sets columns of a dict, but the value is of type int" in fails(stage, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lookup", {"x": Told()}), "needs a lookup, such as SQLiteLookup.*, got str"),
        ((Tells(), {}), "must be a dict of at least one column"),
        ((Tells(), {"x": 5}), "got 'x': int"),
        ((Tells(), {5: Told()}), "got 5: Told"),
        ((Tells(), {"x": Told()}, 5), "name of a column or a function of value and key; it needs a function, got int"),
        ((Tells(), {"x": Told()}, None, 5), r"buffer=\.\.\.\) must be a LookupBuffer, got int"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidOperationError, match=message):
        Stage().sdf.join_lookup(*arguments)
