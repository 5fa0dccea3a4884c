"""The programs of docs/sql.md run."""

import re
from pathlib import Path
from typing import Any

from streamrt import Application
from streamrt.tables import Catalog, MemoryCatalog
from streamrt.testing import TopologyTestDriver

DOCS = Path(__file__).parents[2] / "docs" / "sql.md"


def test_the_programs_run() -> None:
    catalog = Catalog(store=MemoryCatalog())
    catalog.create_database("shop")
    app = Application("unused:9092", consumer_group="shop", catalog=catalog)
    app.register_function("domain", lambda address: address.partition("@")[2], "STRING", ["STRING"])
    names: dict[str, Any] = {"app": app}
    programs = re.findall(r"^```python\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert len(programs) == 2
    for program in programs:
        own = re.sub(r"^(from streamrt import Application|app = Application\(.*\))$", "", program, flags=re.MULTILINE)
        exec(own, names)
    driver = TopologyTestDriver(app)
    for number, amount in enumerate((20, 30, 5), 1):
        driver.pipe("shop.orders", {"id": number, "customer": "ann", "amount": amount}, key=number)
    (row,) = driver.table("shop.totals").scan().rows()
    assert (row["customer"], row["total"], row["n"]) == ("ann", 50, 2)
    driver.pipe("clicks", {"page": "a", "n": 3})
    assert [record.value for record in driver.read("scaled")] == [{"page": "a", "n": 6}]
