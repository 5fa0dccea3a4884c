"""Uses and changes the metadata of a record: position, timestamp and headers.

Reads `measurements`, such as {"watts": 230, "measured_at_ms": 1700000000000}, keyed by meter.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/metadata.py
"""

from typing import Any

from streamrt import Application, StreamingDataFrame, message_context


def with_origin(value: dict[str, Any]) -> dict[str, Any]:
    """Add the position of the input record."""
    context = message_context()
    return {**value, "origin": f"{context.topic}[{context.partition}] at {context.offset}"}


def with_delay(value: dict[str, Any], key: str, timestamp: int, headers: Any) -> dict[str, Any]:
    """Add the meter, and the time that the measurement took to arrive in Kafka."""
    return {**value, "meter": key, "delay_ms": timestamp - value["measured_at_ms"]}


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    measurements = app.topic("measurements", key_deserializer="str")
    enriched = app.topic("measurements-enriched", key_serializer="str")

    sdf = app.dataframe(measurements)
    sdf = sdf.apply(with_origin)
    sdf = sdf.apply(with_delay, metadata=True)
    # From here on the record's timestamp is the time of measurement, not the time of sending.
    sdf = sdf.set_timestamp(lambda value, key, timestamp, headers: value["measured_at_ms"])
    sdf = sdf.set_headers(lambda value, key, timestamp, headers: [*(headers or []), ("unit", b"W")])
    return sdf.to_topic(enriched)


if __name__ == "__main__":
    app = Application(consumer_group="metadata", auto_offset_reset="earliest")
    build(app)
    app.run()
