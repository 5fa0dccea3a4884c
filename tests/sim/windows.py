"""Windows by watermark behind a `group_by`, whose results the application reads again, for the simulator."""

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

import orjson

from streamrt import Application
from tests.sim.broker import Entry

WINDOW_MS = 60
GRACE_MS = 100
"""Records of a partition are out of order, by less."""
IDLE_MS = 300
LAST = 1_000_000
"""The time of the last records of each partition, whose window stays open where time is held."""

Window = tuple[bytes, int]
"""Key and start of a window."""


def declare_windows(app: Application, *, held: bool) -> Application:
    """Declare the application: `in`, grouped, in windows, to `out`, which is copied."""
    grouped = app.dataframe(app.topic("in")).group_by("g", key_serializer="str", key_deserializer="str")
    defined = grouped.tumbling_window(
        timedelta(milliseconds=WINDOW_MS), grace_ms=timedelta(milliseconds=GRACE_MS)
    ).count()
    final = defined.final(
        closing_strategy="watermark", idle_timeout_ms=IDLE_MS, when_all_idle="hold" if held else "advance"
    )
    out = app.topic("out", key_serializer="str", key_deserializer="str")
    final.to_topic(out)
    app.dataframe(out).to_topic(app.topic("copy", key_serializer="str"))
    return app


def windows_of(records: Iterable[Entry], *, held: bool) -> Counter[Window]:
    """Return how many records each window has, without those that stay open."""
    found: Counter[Window] = Counter()
    for record in records:
        if not held or record.timestamp < LAST:
            group = orjson.loads(record.value or b"")["g"]
            found[group.encode(), record.timestamp // WINDOW_MS * WINDOW_MS] += 1
    return found


def result_of(entry: Entry) -> tuple[Window, int]:
    """Return the window of a result, and how many records it has."""
    value = orjson.loads(entry.value or b"")
    return (entry.key or b"", value["start"]), value["value"]
