"""Types of headers and of messages of consumers, under the names that Quix Streams has for them."""

from streamrt.models.headers import Headers, HeadersMapping
from streamrt.models.record import (
    ConsumedMessage as RawConfluentKafkaMessageProto,
)
from streamrt.models.record import (
    ConsumedMessage as SuccessfulConfluentKafkaMessageProto,
)

__all__ = ["Headers", "HeadersMapping", "RawConfluentKafkaMessageProto", "SuccessfulConfluentKafkaMessageProto"]
