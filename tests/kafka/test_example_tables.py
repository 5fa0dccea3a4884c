"""The example of a log table on a real broker, and clients of Kafka for its topic."""

import pytest

from streamrt.tables import Catalog
from tests.support import Kafka
from tests.unit.test_examples import load


@pytest.mark.rows("DK-012", "DK-013")
def test_log_and_clients_of_kafka(kafka: Kafka) -> None:
    module = load("tables_log")
    with Catalog(kafka.address) as catalog:
        found = module.run(catalog)
        table = catalog.table("demo.events")
        assert (found["token"], found["offsets"]) == ({0: 3}, [{0: 0}, {0: 3}, {0: 0}, {0: 3}])
        assert (found["first"], found["rest"]) == (["Alice", "Bob"], {"id": 3, "name": "Charlie", "score": 91.0})
        with table.producer(linger_ms=1) as producer:
            producer.produce(table.topic.name, b'{"id":4}')
        with table.consumer("readers") as consumer:
            values: list[bytes | None] = []
            while len(values) < 4:
                message = consumer.poll(10.0)
                assert message is not None
                values.append(message.value())
        assert values[3] == b'{"id":4}'
        assert table.scan(["id"], start={0: 3}).to_arrow().to_pylist() == [{"id": 4}]
        catalog.drop_table("demo.events", delete_data=True)
