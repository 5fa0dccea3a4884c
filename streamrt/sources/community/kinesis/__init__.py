"""A source of Amazon Kinesis."""

from streamrt.connectors.sources.kinesis import KinesisSource

__all__ = ["KinesisSource"]
