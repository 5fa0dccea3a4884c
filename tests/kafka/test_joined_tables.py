"""Tables in applications on a real broker, in processes without Spark; ordinary runs have the other guarantee on Spark."""

import pytest

from tests.kafka.joined_tables import keep_joined_tables
from tests.support import LONG, Kafka

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"] if LONG else ["at-least-once"])
def test_joined_tables_are_kept_across_a_lost_disk(kafka: Kafka, guarantee: str) -> None:
    keep_joined_tables(kafka, processing_guarantee=guarantee, processing_mode="resident", spark_master="processes[1]")
