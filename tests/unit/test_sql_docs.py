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
    programs, texts = _find_blocks("python"), _find_blocks("sql")
    assert (len(programs), len(texts)) == (2, 2)
    for text in texts:
        app.sql(text)
    for program in programs:
        own = re.sub(r"^(from streamrt import Application|app = Application\(.*\))$", "", program, flags=re.MULTILINE)
        exec(own, names)
    driver = TopologyTestDriver(app)
    for number, amount in enumerate((20, 30, 5), 1):
        driver.pipe("shop.orders", {"id": number, "customer": "ann", "amount": amount}, key=number)
    (row,) = driver.table("shop.totals").scan().rows()
    assert (row["customer"], row["total"], row["n"]) == ("ann", 50, 2)
    for number, prices in enumerate(([3, 9], [None]), 1):
        driver.pipe("shop.baskets", {"id": number, "prices": prices, "discount": 4}, key=number)
    assert list(driver.table("shop.checked").scan().rows()) == [{"id": 1, "dear": [9], "total": 4}]
    driver.pipe("clicks", {"page": "a", "n": 3})
    assert [record.value for record in driver.read("scaled")] == [{"page": "a", "n": 6}]


def _find_blocks(kind: str) -> list[str]:
    text = DOCS.read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
