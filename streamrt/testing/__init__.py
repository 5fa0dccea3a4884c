"""Testing applications: a driver without Kafka and Spark, an embedded Kafka broker, and fixtures for pytest."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamrt.testing.driver import InputRecord, TestRecord, TopologyTestDriver
    from streamrt.testing.kafka import EmbeddedKafka

# Imported at first use: pytest loads the plugin in this package at every start.
_HOMES = {
    "EmbeddedKafka": "streamrt.testing.kafka",
    "InputRecord": "streamrt.testing.driver",
    "TestRecord": "streamrt.testing.driver",
    "TopologyTestDriver": "streamrt.testing.driver",
}

__all__ = ["EmbeddedKafka", "InputRecord", "TestRecord", "TopologyTestDriver"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'streamrt.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
