"""A source of Amazon Kinesis."""

from streamrt.connectors.amazon.kinesis_source import KinesisSource

__all__ = ["KinesisSource"]
