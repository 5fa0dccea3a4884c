"""The test driver: an application in this process, without Kafka, Spark or Java."""

from streamrt.testing.driver.topology_driver import TestRecord, TopologyTestDriver

__all__ = ["TestRecord", "TopologyTestDriver"]
