"""The examples of tables that are no applications, over topics in memory."""

import pytest

from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing.memory_topics import MemoryLinks
from tests.unit.test_examples import load


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(store=MemoryCatalog(), links=MemoryLinks())


def test_log(catalog: Catalog) -> None:
    found = load("tables_log").run(catalog)
    assert found.pop("position").endswith('"at":{"0":2}}}}')
    assert found == {
        "token": {0: 3},
        "scores": [{"id": 1, "score": 95.5}, {"id": 2, "score": 87.0}, {"id": 3, "score": 91.0}],
        "second": [{"name": "Bob", "id": 2}],
        "changes": {"+A"},
        "offsets": [{0: 0}, {0: 3}, {0: 0}, {0: 3}],
        "first": ["Alice", "Bob"],
        "rest": {"id": 3, "name": "Charlie", "score": 91.0},
        "refusals": found["refusals"],
    }
    too_few, delete = found["refusals"]
    assert "2 values for 3 columns" in too_few
    assert "demo.events" in delete


def test_endpoints(catalog: Catalog) -> None:
    module = load("endpoints")
    module.tables(catalog)
    assert module.detected(catalog, 1.0) == {
        "texts": ("STRING", "STRING", "STRING"),
        "new": ["city", "ok"],
        "missing": ["zip"],
        "types": ("BIGINT", "STRING", "BOOLEAN"),
        "nothing": None,
        "counters": ["1", "2", "3"],
    }
    copies = catalog.table("geo.copies")
    with pytest.raises(module.Killed):
        module.copy(catalog, killed_after=3)
    assert [row["counter"] for row in copies.scan().rows()] == [1, 2]
    assert module.copy(catalog).endswith('"at":{"0":3}}}}')
    assert [row["counter"] for row in copies.scan().rows()] == [1, 2, 3]
