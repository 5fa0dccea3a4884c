"""Errors of the source of Amazon Kinesis."""

from streamrt.connectors.amazon.kinesis_source import KinesisStreamShardsNotFound

__all__ = ["KinesisStreamShardsNotFound"]
