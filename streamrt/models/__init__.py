"""Plain data that the rest of StreamRT is written in: records, their metadata, partitions and offsets."""

from streamrt.models.headers import Headers, HeadersMapping, HeaderValue, merge_headers
from streamrt.models.partitions import OffsetRange, TopicPartition
from streamrt.models.record import MessageContext, RawRecord, Record
from streamrt.models.tick import Tick
from streamrt.models.timestamps import MessageTimestamp, TimestampType

__all__ = [
    "HeaderValue",
    "Headers",
    "HeadersMapping",
    "MessageContext",
    "MessageTimestamp",
    "OffsetRange",
    "RawRecord",
    "Record",
    "Tick",
    "TimestampType",
    "TopicPartition",
    "merge_headers",
]
