"""Finds the days with frost in a CSV file and writes them to another one: a source and a sink.

The source produces the rows of weather.csv to the topic `source__weather`. Days with frost are written to frost.csv, in
the current directory, with the position of each record, which identifies rows that a crash repeats. The program ends
when no more rows come.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/frost.py
"""

from datetime import datetime, timezone
from pathlib import Path

from streamrt import Application
from streamrt.connectors import CSVSink, CSVSource

WEATHER = Path(__file__).with_name("weather.csv")


def station(row: dict[str, str]) -> str:
    """Return the key of a row."""
    return row["station"]


def midnight(row: dict[str, str]) -> int:
    """Return the timestamp of a row, in milliseconds."""
    return int(datetime.fromisoformat(row["day"]).replace(tzinfo=timezone.utc).timestamp() * 1000)


def build(app: Application, weather: Path = WEATHER, frost: Path = Path("frost.csv")) -> None:
    """Add source and dataframe of this example to an application."""
    source = CSVSource(weather, name="weather", key_extractor=station, timestamp_extractor=midnight)

    sdf = app.dataframe(source=source)
    # Fields of CSV files are strings.
    sdf["low"] = sdf["low"].apply(float)
    sdf = sdf[sdf["low"] < 0]
    sdf["text"] = sdf["day"] + ": " + sdf["low"].apply(str) + " °C"
    sdf = sdf.apply(lambda day: day["text"])
    sdf.sink(CSVSink(frost, value_serializer=str))


if __name__ == "__main__":
    app = Application(consumer_group="frost", auto_offset_reset="earliest")
    build(app)
    app.run(timeout=5)
