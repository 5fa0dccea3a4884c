"""A bounded run: adds up meter readings of a list, by room and hour and then by hour, and ends by itself.

At the end all windows close, first those of the rooms, and then those behind `group_by`, which gets the last results of the
rooms. The totals are also written to `energy`.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/energy.py
"""

from datetime import timedelta

from streamrt import Application, StreamingDataFrame

HOUR = timedelta(hours=1)
READINGS = [
    {"room": "hall", "watt_hours": 120, "at": 1_704_067_200_000},
    {"room": "attic", "watt_hours": 30, "at": 1_704_068_000_000},
    {"room": "hall", "watt_hours": 80, "at": 1_704_069_000_000},
    {"room": "hall", "watt_hours": 60, "at": 1_704_071_000_000},
    {"room": "attic", "watt_hours": 45, "at": 1_704_072_000_000},
]


def build(app: Application, energy: str = "energy", source: str = "readings") -> StreamingDataFrame:
    """Add source and dataframe of this example to an application; return the totals by hour."""
    rooms = app.from_collection(
        READINGS, source, key=lambda reading: reading["room"], timestamp=lambda reading: reading["at"]
    )
    rooms = rooms.apply(lambda reading: reading["watt_hours"]).tumbling_window(HOUR).sum().final()
    house = rooms.apply(lambda hour: hour["value"]).group_by(lambda value: "house", name="house")
    totals = house.tumbling_window(HOUR).sum().final()
    totals.to_topic(app.topic(energy, key_serializer="json"))
    return totals


if __name__ == "__main__":
    app = Application(consumer_group="energy", auto_offset_reset="earliest")
    with app.collect(build(app)) as hours:
        for hour in hours:
            print(hour)
