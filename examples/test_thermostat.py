"""Tests an application without Kafka, Spark or Java, in milliseconds.

`TopologyTestDriver` runs the production code on the records of a test.

    python examples/test_thermostat.py        # or: pytest examples/test_thermostat.py
"""
# ruff: noqa: D103, S101 - tests assert, and their names describe them

from datetime import timedelta

import pytest

from streamrt import Application
from streamrt.errors import ConsumerError, ProcessingError
from streamrt.testing import TopologyTestDriver


def build(app: Application) -> None:
    """Add the dataframe of this example to an application."""
    temperatures = app.topic("temperatures", key_deserializer="str", key_serializer="str")
    commands = app.topic("heating", key_deserializer="str", key_serializer="str")

    sdf = app.dataframe(temperatures)
    sdf["cold"] = sdf["celsius"] < sdf["wanted"]
    sdf = sdf[sdf["cold"]]
    sdf["degrees"] = sdf["wanted"] - sdf["celsius"]
    sdf[["degrees"]].to_topic(commands)


@pytest.fixture
def driver() -> TopologyTestDriver:
    # The broker is not contacted, so any address works.
    app = Application(broker_address="unused:9092", consumer_group="thermostat")
    build(app)
    return TopologyTestDriver(app, start=1_000)


def test_heats_cold_rooms(driver: TopologyTestDriver) -> None:
    driver.pipe("temperatures", {"celsius": 17, "wanted": 20}, key="kitchen")
    driver.pipe("temperatures", {"celsius": 21, "wanted": 20}, key="hall")

    [record] = driver.read("heating")
    assert (record.key, record.value) == ("kitchen", {"degrees": 3})
    assert driver.read("heating") == []  # each record is read once


def test_keeps_the_time_of_the_measurement(driver: TopologyTestDriver) -> None:
    driver.pipe("temperatures", {"celsius": 17, "wanted": 20}, key="kitchen", timestamp=500)
    driver.advance(timedelta(seconds=2))  # only the test moves the wall clock
    driver.pipe("temperatures", {"celsius": 17, "wanted": 20}, key="kitchen")

    assert [record.timestamp for record in driver.read("heating")] == [500, 3_000]


def test_names_the_column_that_is_missing(driver: TopologyTestDriver) -> None:
    with pytest.raises(ProcessingError, match="column 'wanted' is missing; the value has 'celsius'"):
        driver.pipe("temperatures", {"celsius": 17}, key="kitchen")


def test_refuses_what_is_no_json(driver: TopologyTestDriver) -> None:
    with pytest.raises(ConsumerError, match="offset 0"):
        driver.pipe_bytes("temperatures", b"17 degrees", key=b"kitchen")


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__]))
