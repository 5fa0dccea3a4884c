"""Plain data types used throughout StreamRT: records, their metadata, partitions and offsets."""

from streamrt.records.headers import Headers, HeadersMapping, HeaderValue, merge_headers
from streamrt.records.partitions import OffsetRange, TopicPartition
from streamrt.records.positions import Positions
from streamrt.records.record import ConsumedMessage, MessageContext, RawRecord, Record
from streamrt.records.tick import Tick
from streamrt.records.timestamps import MessageTimestamp, TimestampType

__all__ = [
    "ConsumedMessage",
    "HeaderValue",
    "Headers",
    "HeadersMapping",
    "MessageContext",
    "MessageTimestamp",
    "OffsetRange",
    "Positions",
    "RawRecord",
    "Record",
    "Tick",
    "TimestampType",
    "TopicPartition",
    "merge_headers",
]
