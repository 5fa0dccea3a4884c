"""Types of headers and of consumed messages, under the names of Quix Streams."""

from streamrt.records.headers import Headers, HeadersMapping
from streamrt.records.record import (
    ConsumedMessage as RawConfluentKafkaMessageProto,
)
from streamrt.records.record import (
    ConsumedMessage as SuccessfulConfluentKafkaMessageProto,
)

__all__ = ["Headers", "HeadersMapping", "RawConfluentKafkaMessageProto", "SuccessfulConfluentKafkaMessageProto"]
