"""Versions of a program in SQL on a real broker: each start has the tables of the last one, and tells what has changed."""

from typing import Any

import pytest

from streamrt import Application
from streamrt.app import definition_of, environment_of
from streamrt.application.startup_plan import plan_deployment
from streamrt.errors import SQLAnalysisError, TableExistsError
from streamrt.tables import Catalog
from tests.support import Kafka, running, unique, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

PROGRAM = """
CREATE DATABASE {database};
CREATE TABLE {database}.clicks (page STRING, n BIGINT) WITH ('partitions' = 2);
CREATE MATERIALIZED VIEW {database}.pages AS SELECT page, sum(n) AS s FROM {database}.clicks WHERE n > 0 GROUP BY page;
"""


def test_a_start_tells_of_another_plan(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    group, database = unique("versions"), unique("shop").replace("-", "_")
    program = PROGRAM.format(database=database)

    def make_app(text: str) -> Application:
        app = kafka.app(group, processing_mode="resident", spark_master="processes[1]")
        app.sql(text)
        return app

    def tell(text: str) -> list[str]:
        """Return what the plan of a version says of queries; its start must say the same."""
        app = make_app(text)
        plan = plan_deployment(definition_of(app), environment_of(app))
        return [each.detail for each in plan.changes if "another plan" in each.detail]

    def run(text: str, page: str, wanted: dict[str, Any]) -> list[str]:
        caplog.clear()
        app = make_app(text)
        with Catalog(kafka.address) as catalog:
            catalog.table(f"{database}.clicks").append([[page, 1], [page, 10]])
            pages = catalog.table(f"{database}.pages")
            with running(app):
                wait_until(lambda: {row["page"]: row["s"] for row in pages.scan().rows()} == wanted, 60, "the rows")
        return [text for text in caplog.messages if "another plan" in text]

    assert run(program, "a", {"a": 11}) == []
    assert run(program.replace("n > 0 ", "(n > 0)\n"), "b", {"a": 11, "b": 11}) == []
    changed = program.replace("n > 0", "n > 5")
    (planned,) = tell(changed)
    (said,) = run(changed, "a", {"a": 21, "b": 11})
    assert said == planned
    assert "streamrt reset" in said
    # It is the last version now.
    assert tell(changed) == []
    with pytest.raises(SQLAnalysisError, match="with other columns than the view"):
        make_app(program.replace(" AS s", " AS total"))
    with pytest.raises(TableExistsError, match="partitions 3, and the table has 2"):
        make_app(program.replace("= 2", "= 3"))
