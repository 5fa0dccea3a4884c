"""A join whose sides are both grouped, with a backlog on both, on Spark and a real broker."""

import pytest

from streamrt.kafka import Producer
from tests.support import Kafka, unique

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

CUSTOMERS, VERSIONS, ORDERS = 4, 60, 40


@pytest.mark.both_modes
def test_a19_orders_of_a_backlog_meet_the_newest_older_version_of_their_customer(kafka: Kafka) -> None:
    orders, customers, group = kafka.topic("orders", 2), kafka.topic("customers", 2), unique("backlog")
    with Producer(kafka.address) as producer:
        # The customers are many, and all of them are older than the orders, which are few.
        for version in range(VERSIONS):
            for customer in range(CUSTOMERS):
                value = b'{"customer": "c%d", "version": %d}' % (customer, version)
                producer.produce(
                    customers, value, key=b"c%d" % customer, partition=customer % 2, timestamp=1_000 + version
                )
        for number in range(ORDERS):
            value = b'{"customer": "c%d", "number": %d}' % (number % CUSTOMERS, number)
            producer.produce(orders, value, key=b"o%d" % number, partition=number // 4 % 2, timestamp=10_000 + number)

    def run() -> list[tuple[int, int]]:
        # Small batches, so that there are many of them.
        app = kafka.app(group, commit_every=40)
        left, right = (app.dataframe(app.topic(name, key_deserializer="str")) for name in (orders, customers))
        left.group_by("customer").join_asof(
            right.group_by("customer"), on_merge=lambda order, customer: (order["number"], customer["version"])
        )
        return [row["_value"] for row in app.run(timeout=2, metadata=True) if row["_timestamp"] >= 10_000]

    assert sorted(map(tuple, run())) == [(number, VERSIONS - 1) for number in range(ORDERS)]
    # After a restart, records that come together on both sides are a backlog as well.
    with Producer(kafka.address) as producer:
        for customer in range(CUSTOMERS):
            value = b'{"customer": "c%d", "version": %d}' % (customer, VERSIONS)
            producer.produce(customers, value, key=b"c%d" % customer, partition=customer % 2, timestamp=20_000)
        for number in range(ORDERS):
            value = b'{"customer": "c%d", "number": %d}' % (number % CUSTOMERS, number)
            producer.produce(orders, value, key=b"o%d" % number, partition=number // 4 % 2, timestamp=20_001 + number)
    assert sorted(map(tuple, run())) == [(number, VERSIONS) for number in range(ORDERS)]
