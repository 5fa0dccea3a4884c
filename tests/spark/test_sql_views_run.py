"""Materialized views of a program in SQL, with micro-batches on Spark."""

import pytest

from streamrt.tables import Catalog
from tests.kafka.sql_views import VIEWS, World
from tests.support import LONG, Kafka, running

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_views_have_the_rows_of_their_queries(kafka: Kafka) -> None:
    with Catalog(kafka.address) as catalog:
        world = World(kafka, catalog, 34, VIEWS if LONG else ["totals", "nothing"])
        for changes in (100, 60) if LONG else (100,):
            app = kafka.app(world.group, processing_mode="micro-batch", processing_guarantee="exactly-once")
            app.sql(world.program)
            with running(app):
                # Before any record, and again after a start: the rows that need none.
                world.expect(world.batch_result())
                world.change(changes)
                world.expect(world.batch_result())
