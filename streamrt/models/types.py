"""Types of headers and of consumed messages, under the names of Quix Streams."""

from collections.abc import Sequence

from streamrt.records.headers import Headers, HeadersMapping
from streamrt.records.headers import Headers as KafkaHeaders
from streamrt.records.headers import HeaderValue as HeadersValue
from streamrt.records.record import ConsumedMessage as RawConfluentKafkaMessageProto
from streamrt.records.record import ConsumedMessage as SuccessfulConfluentKafkaMessageProto

HeadersTuple = tuple[str, HeadersValue]
HeadersTuples = Sequence[HeadersTuple]
MessageKey = str | bytes | None
MessageValue = str | bytes | None

__all__ = [
    "Headers",
    "HeadersMapping",
    "HeadersTuple",
    "HeadersTuples",
    "HeadersValue",
    "KafkaHeaders",
    "MessageKey",
    "MessageValue",
    "RawConfluentKafkaMessageProto",
    "SuccessfulConfluentKafkaMessageProto",
]
