"""Groups the clicks of each visitor into sessions: a gap of half an hour starts another session.

Reads `clicks`, such as {"page": "/cart"}, with the visitor as key. Writes each session to `sessions` when it is over:
its start, its duration, and the pages in the order of their times. Clicks may come up to five minutes late; a late
click can merge two sessions.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/click_sessions.py
"""

from datetime import timedelta
from typing import Any

from streamrt import Application, StreamingDataFrame
from streamrt.windows import Collect, Count


def describe(session: dict[str, Any]) -> dict[str, Any]:
    """Return the output of a session."""
    # The end of a session is one millisecond after its last click.
    seconds = (session["end"] - 1 - session["start"]) / 1000
    return {"seconds": seconds, "clicks": session["clicks"], "pages": session["pages"]}


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    clicks = app.topic("clicks", key_deserializer="str")
    sessions = app.topic("sessions", key_serializer="str")

    sdf = app.dataframe(clicks)
    sdf = (
        sdf.session_window(timedelta(minutes=30), grace_ms=timedelta(minutes=5))
        .agg(clicks=Count("page"), pages=Collect("page"))
        # Any visitor's click advances the clock: visitors do not return to report that they have left.
        .final(closing_strategy="partition")
    )
    return sdf.apply(describe).to_topic(sessions)


if __name__ == "__main__":
    app = Application(consumer_group="click-sessions", auto_offset_reset="earliest")
    build(app)
    app.run()
