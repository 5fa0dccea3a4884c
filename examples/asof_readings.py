"""Joins each reading of a meter with the temperature that its room had then.

Reads `meter-readings`, such as {"watts": 230}, and `room-temperatures`, such as {"celsius": 21.5}. Keys are rooms.
Thermometers report when the temperature changes, meters every few seconds: a reading gets the last temperature that is not
newer than itself, also when it arrives late. Writes readings with their temperature to `readings-with-temperature`.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/asof_readings.py
"""

from datetime import timedelta

from streamrt import Application, StreamingDataFrame


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframes of this example to an application."""
    # Joined topics need equal numbers of partitions: a room has the same number in both.
    config = app.topic_manager.topic_config(num_partitions=2)
    readings = app.topic("meter-readings", key_deserializer="str", config=config)
    temperatures = app.topic("room-temperatures", key_deserializer="str", config=config)
    joined = app.topic("readings-with-temperature", key_deserializer="str", key_serializer="str")

    sdf = app.dataframe(readings)
    # A room without a thermometer keeps its readings. Those that come up to two days late get the temperature of their time.
    sdf = sdf.join_asof(app.dataframe(temperatures), how="left", grace_ms=timedelta(days=2))
    sdf.fill("celsius")
    return sdf.to_topic(joined)


if __name__ == "__main__":
    app = Application(consumer_group="asof-readings", auto_offset_reset="earliest")
    build(app)
    app.run()
