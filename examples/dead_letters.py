"""Sets bad records aside without losing them.

Reads `readings`, such as {"sensor": "a", "celsius": "21.5"} with the number of the device as key. Three things can be
wrong with such a record:

- Its value is not JSON, or lacks something: `parse` detects it, and a branch writes the bytes to `readings-dead`.
- Its key is not a number and cannot be deserialized: the error callback logs the record and skips it.
- Its processing fails for another reason: the other callback logs the record and skips it.

Without the callbacks the application would stop at such a record with exit code 1, and again after a restart.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/dead_letters.py
"""

import json
import logging
from typing import Any

from streamrt import Application, StreamingDataFrame

ABSOLUTE_ZERO = -273.15


def parse(raw: bytes | None) -> dict[str, Any]:
    """Return a reading, or its problem as `error`."""
    try:
        reading = json.loads(raw or b"")
        return {"sensor": reading["sensor"], "celsius": float(reading["celsius"])}
    except (ValueError, KeyError, TypeError) as error:
        return {"error": f"{type(error).__name__}: {error}", "raw": (raw or b"").decode("latin-1")}


def kelvin(celsius: float) -> float:
    """Convert a temperature."""
    if celsius < ABSOLUTE_ZERO:
        raise ValueError(f"{celsius} °C is below absolute zero")
    return round(celsius - ABSOLUTE_ZERO, 2)


def skip_undecodable(error: Exception, record: Any, logger: logging.Logger) -> bool:
    """Log a record that cannot be deserialized, and skip it."""
    logger.warning("skipped: %s", error)
    return True


def skip_failed(error: Exception, record: Any, logger: logging.Logger) -> bool:
    """Log a record that cannot be processed, and skip it if its data is the cause."""
    logger.warning("skipped %s: %s", record, error)
    return isinstance(error, ValueError)


CALLBACKS: dict[str, Any] = {"on_consumer_error": skip_undecodable, "on_processing_error": skip_failed}


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application that was made with `CALLBACKS`."""
    readings = app.topic("readings", value_deserializer="bytes", key_deserializer="int", key_serializer="int")
    parsed = app.topic("readings-parsed", key_deserializer="int", key_serializer="int")
    dead = app.topic("readings-dead", key_deserializer="int", key_serializer="int")

    sdf = app.dataframe(readings).apply(parse)
    sdf[sdf.contains("error")].to_topic(dead)
    good = sdf[~sdf.contains("error")]
    good["kelvin"] = good["celsius"].apply(kelvin)
    return good.to_topic(parsed)


if __name__ == "__main__":
    app = Application(consumer_group="dead-letters", auto_offset_reset="earliest", **CALLBACKS)
    build(app)
    app.run()
