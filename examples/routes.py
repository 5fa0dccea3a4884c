"""Counts flights by route, although they arrive by carrier: `group_by` changes the key.

Reads `departures`, such as {"origin": "JFK", "dest": "LAX", "delay_min": 12}, whose keys are carriers. Writes the
number of flights of each route and their mean delay to `route-delays`, with the route as key. The flights of a route
are in different partitions: they pass through the topic `repartition__routes--departures--route`.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/routes.py
"""

from typing import Any

from streamrt import Application, State, StreamingDataFrame


def route(flight: dict[str, Any]) -> str:
    """Return the new key."""
    return f"{flight['origin']}-{flight['dest']}"


def summarize(flight: dict[str, Any], state: State) -> dict[str, Any]:
    """Count a flight; `state` is that of its route."""
    flights = state.get("flights", 0) + 1
    minutes = state.get("minutes", 0) + flight["delay_min"]
    state.set("flights", flights)
    state.set("minutes", minutes)
    return {"flights": flights, "mean_delay_min": round(minutes / flights, 1)}


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    departures = app.topic("departures", config=app.topic_manager.topic_config(num_partitions=3))
    delays = app.topic("route-delays", key_deserializer="str", key_serializer="str")

    sdf = app.dataframe(departures)
    # Cancelled flights have no delay. A filter before group_by keeps records out of the repartition topic.
    sdf = sdf[sdf["delay_min"].notnull()]
    sdf = sdf.group_by(route, name="route")
    sdf = sdf.apply(summarize, stateful=True)
    return sdf.to_topic(delays)


if __name__ == "__main__":
    app = Application(consumer_group="routes", auto_offset_reset="earliest")
    build(app)
    app.run()
