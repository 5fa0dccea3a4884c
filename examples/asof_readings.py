"""Joins each reading of a meter with the temperature of its room at that time.

Reads `meter-readings`, such as {"watts": 230}, and `room-temperatures`, such as {"celsius": 21.5}. Keys are rooms.
Thermometers report when the temperature changes, meters every few seconds. A reading gets the last temperature that is
not newer than itself, even if it arrives late. Writes the joined readings to `readings-with-temperature`.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/asof_readings.py
"""

from datetime import timedelta

from streamrt import Application, StreamingDataFrame


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframes of this example to an application."""
    # Joined topics need equal partition counts: a room then has the same partition in both.
    config = app.topic_manager.topic_config(num_partitions=2)
    readings = app.topic("meter-readings", key_deserializer="str", config=config)
    temperatures = app.topic("room-temperatures", key_deserializer="str", config=config)
    joined = app.topic("readings-with-temperature", key_deserializer="str", key_serializer="str")

    sdf = app.dataframe(readings)
    # A room without a thermometer keeps its readings. A reading up to two days late gets the temperature of its time.
    sdf = sdf.join_asof(app.dataframe(temperatures), how="left", grace_ms=timedelta(days=2))
    sdf.fill("celsius")
    return sdf.to_topic(joined)


if __name__ == "__main__":
    app = Application(consumer_group="asof-readings", auto_offset_reset="earliest")
    build(app)
    app.run()
