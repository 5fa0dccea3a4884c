"""Replays a DataFrame as a stream with its own time: tries a window on data of the past, before real records come.

polars reads weather.csv, and the source produces its rows to the topic `source__history`, with the days as timestamps.
Each row updates the week of its station in `weeks`. The program ends when no more rows come.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/weeks.py
"""

from datetime import timedelta
from pathlib import Path

import polars as pl

from streamrt import Application
from streamrt.connectors import PolarsDataFrameSource
from streamrt.windows import Count, Max, Min

WEATHER = Path(__file__).with_name("weather.csv")


def build(app: Application, weather: Path = WEATHER) -> None:
    """Add source and dataframe of this example to an application."""
    days = pl.read_csv(weather, try_parse_dates=True).with_columns(pl.col("day").cast(pl.Datetime("ms"))).sort("day")
    history = PolarsDataFrameSource(days, key_column="station", timestamp_column="day", name="history")
    weeks = app.topic("weeks")

    sdf = app.dataframe(source=history)
    sdf = sdf.tumbling_window(timedelta(days=7)).agg(days=Count(), coldest=Min("low"), warmest=Max("high")).current()
    sdf.to_topic(weeks)


if __name__ == "__main__":
    app = Application(consumer_group="weeks", auto_offset_reset="earliest")
    build(app)
    app.run(timeout=5)
