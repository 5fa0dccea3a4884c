"""A sink of Amazon Kinesis."""

from streamrt.connectors.amazon.kinesis_sink import KinesisSink, KinesisStreamNotFoundError

__all__ = ["KinesisSink", "KinesisStreamNotFoundError"]
