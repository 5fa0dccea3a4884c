"""The examples of tables that are not applications, over topics in memory."""

import pytest

from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks
from tests.example_programs import load
from tests.gallery.runs import WITHOUT_APPLICATION

SCORES = {
    "token": {0: 3},
    "scores": [{"id": 1, "score": 95.5}, {"id": 2, "score": 87.0}, {"id": 3, "score": 91.0}],
    "second": [{"name": "Bob", "id": 2}],
    "changes": {"+A"},
    "offsets": [{0: 0}, {0: 3}, {0: 0}, {0: 3}],
    "first": ["Alice", "Bob"],
    "rest": {"id": 3, "name": "Charlie", "score": 91.0},
    "refusals": [
        "2 values for 3 columns (table 'demo.events')",
        "a log table has no deletes, and 'demo.events' is one: retention ends its rows",
    ],
}
KEYED = {
    "alice": {"country": "FR", "id": 1, "name": "Alice", "visits": 4},
    "several": [{"country": "DE", "id": 1, "name": "Carol", "visits": 8}, None],
    "french": ["Alice", "Bob"],
    "rows": 3,
    "copied": 3,
    "gone": None,
    "names": ["Alice", "Carol"],
    "snapshot": ["Alice", "Carol"],
    "changes": [("-U", "Carol", 8), ("+U", "Carol", 9), ("+I", "Dino", 1), ("-D", "Alice", 4)],
}
MAINTAINED = {
    "customer": {"id": 1, "name": "Ann", "city": "Paris"},
    "totals": {"customer": 1, "total": 42, "orders": 2},
}
PREFERRED = {
    "first": [("Flux Capacitor", "HyperDrive Innovations", "10000.00"), ("Warp Core", "DarkMatter Devices", "9000.00")],
    "cheaper": [("Flux Capacitor", "DarkMatter Devices", "9500.00"), ("Warp Core", "DarkMatter Devices", "9000.00")],
    "as cheap": [
        ("Flux Capacitor", "DarkMatter Devices", "9500.00"),
        ("Warp Core", "DarkMatter Devices", "9000.00"),
        ("Warp Core", "Gravitech Dynamics", "9000.00"),
    ],
    "given up": [("Flux Capacitor", "DarkMatter Devices", "9500.00"), ("Warp Core", "Gravitech Dynamics", "9000.00")],
}
GRADED = {
    "averages": [
        {"name": "ann", "average": 91.66666666666667},
        {"name": "ben", "average": 75.66666666666667},
        {"name": "cem", "average": 50.0},
    ],
    "letters": [{"letter": "A", "students": 1, "last": "ann"}, {"letter": "B", "students": 1, "last": "ben"}],
    "letters after a change": [
        {"letter": "A", "students": 2, "last": "cem"},
        {"letter": "B", "students": 1, "last": "ben"},
    ],
}
COMPLETED = {
    "order 100": {"name": None, "country": "France"},
    "order 101": {"name": "Ann", "country": "Portugal"},
    "order 102": {"name": "Anna", "country": None},
    "order 103": {"name": None, "country": "France"},
}
DETECTED = {
    "texts": ("STRING", "STRING", "STRING"),
    "new": ["city", "ok"],
    "missing": ["zip"],
    "types": ("BIGINT", "STRING", "BOOLEAN"),
    "nothing": None,
}
FOLLOWED = {
    "first": [{"counter": "1", "zip": None}, {"counter": "2", "zip": None}],
    "position": None,
    "rest": [{"counter": "3", "zip": None}],
}


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(store=MemoryCatalog(), links=MemoryLinks())


def test_log(catalog: Catalog) -> None:
    found = load("tables_log").run(catalog)
    assert found.pop("position").endswith('"at":{"0":2}}}}')
    assert found == SCORES


def test_keyed(catalog: Catalog) -> None:
    with catalog:
        assert load("tables_keyed").run(catalog) == KEYED


def test_maintained() -> None:
    lines = list(WITHOUT_APPLICATION["tables_maintained"](load("tables_maintained")))
    assert lines == [f"{what}: {row!r}" for what, row in MAINTAINED.items()]


def test_views_in_sql() -> None:
    """Feldera's tutorial of vendors and parts."""
    lines = list(WITHOUT_APPLICATION["sql_views"](load("sql_views")))
    assert lines == [*(f"{what}: {rows!r}" for what, rows in PREFERRED.items()), "proof: 2 rows, equal"]


def test_sql_and_python() -> None:
    """Feldera's tutorial of students and grades, with a function of Python."""
    lines = list(WITHOUT_APPLICATION["sql_and_python"](load("sql_and_python")))
    assert lines == [f"{what}: {rows!r}" for what, rows in GRADED.items()]


def test_lookup() -> None:
    lines = list(WITHOUT_APPLICATION["tables_lookup"](load("tables_lookup")))
    assert lines == [f"{what}: {row!r}" for what, row in COMPLETED.items()]


def test_endpoints(catalog: Catalog) -> None:
    module = load("endpoints")
    module.tables(catalog)
    assert module.detected(catalog, 1.0) == DETECTED
    assert {**module.followed(catalog), "position": None} == FOLLOWED
    module.copy(catalog)
    module.copy(catalog)
    assert module.result(catalog) == (["1", "2", "3"], "3")


def test_cdc() -> None:
    lines = list(WITHOUT_APPLICATION["tables_cdc"](load("tables_cdc")))
    assert lines[:3] == [
        "demo.customers:",
        "  {'id': 124, 'name': 'Raul', 'city': 'Oaxaca'}",
        "  {'id': 125, 'name': 'Mercedes', 'city': 'Guadalajara'}",
    ]
    assert len(lines[3:]) == 1 + 6
    assert lines[-2:] == [
        "  {'id': 125, 'name': 'Mercedes', 'city': 'Mexicali', '__START_AT': 5, '__END_AT': 6}",
        "  {'id': 125, 'name': 'Mercedes', 'city': 'Guadalajara', '__START_AT': 6, '__END_AT': None}",
    ]


def test_sql_adhoc() -> None:
    with Catalog(store=MemoryCatalog(), links=MemoryLinks()) as catalog:
        found = load("sql_adhoc").run(catalog)
    refusals = found.pop("refusals")
    assert found == {
        "best": [("Alice", 95.5), ("Charlie", 91.0)],
        "joined": [("Alice", 27, 95.5), ("Charlie", 35, 91.0)],
        "written": 2,
        "changed": (1, 36),
        "deleted": 1,
    }
    parts = ("java_method()", "cannot be the name of a table", "cannot stand in FROM", "for execute()", "a second one")
    for sentence, part in zip(refusals, (*parts, "nowhere", "line 1, column 1:", "no primary key"), strict=True):
        assert part in sentence
