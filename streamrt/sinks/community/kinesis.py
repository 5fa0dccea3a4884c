"""A sink of Amazon Kinesis."""

from streamrt.connectors.sinks.kinesis import KinesisSink, KinesisStreamNotFoundError

__all__ = ["KinesisSink", "KinesisStreamNotFoundError"]
