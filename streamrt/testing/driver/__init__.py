"""The test driver: an application in this process, without Kafka, Spark or Java."""

from streamrt.testing.driver.records import InputRecord, TestRecord
from streamrt.testing.driver.topology_driver import TopologyTestDriver

__all__ = ["InputRecord", "TestRecord", "TopologyTestDriver"]
