"""Types of headers and of consumed messages, under the names of Quix Streams."""

from streamrt.models.headers import Headers, HeadersMapping
from streamrt.models.record import (
    ConsumedMessage as RawConfluentKafkaMessageProto,
)
from streamrt.models.record import (
    ConsumedMessage as SuccessfulConfluentKafkaMessageProto,
)

__all__ = ["Headers", "HeadersMapping", "RawConfluentKafkaMessageProto", "SuccessfulConfluentKafkaMessageProto"]
