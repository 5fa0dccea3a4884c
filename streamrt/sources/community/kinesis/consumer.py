"""Errors of the source of Amazon Kinesis."""

from streamrt.connectors.sources.kinesis import KinesisStreamShardsNotFound

__all__ = ["KinesisStreamShardsNotFound"]
