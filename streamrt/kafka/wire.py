"""Timestamps, headers and sizes of records as Kafka's client and brokers take them.

Whatever writes records uses these functions: producers of tasks and of users, and the topics in memory of tests. What Kafka
would change or refuse is thus changed or refused everywhere, with the same words.
"""

from collections.abc import Mapping
from typing import Any, Final

from streamrt.errors import ProducerError
from streamrt.records import Headers
from streamrt.records.timestamps import LATEST_TIMESTAMP_MS

__all__ = [
    "CLIENT_MAX_BYTES",
    "NOW",
    "TOPIC_MAX_BYTES",
    "client_headers",
    "client_max_bytes",
    "client_timestamp",
    "exceeds_topic",
    "record_size",
    "refused",
    "require_size",
]

NOW: Final = 0
"""The value that librdkafka takes for the time of producing."""

CLIENT_MAX_BYTES: Final = 1_000_000
"""Default of librdkafka's `message.max.bytes`: the largest record that the client accepts, in bytes."""

TOPIC_MAX_BYTES: Final = 1_048_588
"""Default of the brokers' `max.message.bytes`: the largest batch that a topic accepts, in bytes."""

TOO_LARGE: Final = "Unable to produce message: Broker: Message size too large (MSG_SIZE_TOO_LARGE)"
_TOPIC_TOO_LARGE: Final = "Broker: Message size too large (MSG_SIZE_TOO_LARGE)"

# Besides its key, value and headers, the client counts the longest header of a record, and a broker that of a batch.
_RECORD_BYTES: Final = 36
_BATCH_BYTES: Final = 61
# Of the lengths of a header's name and value.
_LENGTHS_BYTES: Final = 10


def client_timestamp(timestamp: int | None, topic: str) -> int:
    """Return the number that makes librdkafka write a timestamp.

    librdkafka takes 0 for the time of producing, so the epoch itself becomes the first millisecond after it.

    Args:
        timestamp: milliseconds since the Unix epoch; None is the time of producing.
        topic: target topic, for errors.

    Raises:
        ProducerError: if the timestamp is negative (to Kafka, -1 is none, and other negative ones are invalid), or later
            than `LATEST_TIMESTAMP_MS`.

    Example:
        >>> client_timestamp(5_000, "orders"), client_timestamp(0, "orders"), client_timestamp(None, "orders")
        (5000, 1, 0)
    """
    if timestamp is None:
        return NOW
    if 0 < timestamp <= LATEST_TIMESTAMP_MS:
        return timestamp
    if timestamp != 0:
        reason = (
            "and Kafka has none before 1970"
            if timestamp < 0
            else f"and the latest one is {LATEST_TIMESTAMP_MS} ms, the end of 64-bit microseconds"
        )
        raise refused(
            topic,
            f"its timestamp is {timestamp} ms, {reason}; give it another one with set_timestamp(), or with a "
            "timestamp_extractor of its input topic",
        )
    return 1


def client_headers(headers: Any, topic: str) -> Headers | None:
    """Return headers in the form in which a reader gets them: values are bytes or None; no headers are None.

    Args:
        headers: pairs of name and value, a mapping, or None. Text is encoded as UTF-8.
        topic: target topic, for errors.

    Raises:
        TypeError: if a pair is not a name with bytes, a string or None.
        ProducerError: if a name or text has no form in UTF-8, or a name has a character that ends it in the client.

    Example:
        >>> client_headers([("source", "shop"), ("id", b"1"), ("id", None)], "orders")
        [('source', b'shop'), ('id', b'1'), ('id', None)]
        >>> client_headers([], "orders") is None
        True
    """
    if not headers:
        return None
    pairs: Headers = []
    for pair in headers.items() if isinstance(headers, Mapping) else headers:
        if (type(pair) is not tuple and not isinstance(pair, tuple | list)) or len(pair) != 2:
            raise _no_pair(pair)
        name, value = pair
        if type(name) is not str and not isinstance(name, str):
            raise _no_pair(pair)
        if not name.isascii() or "\0" in name:
            _require_name(name, topic)
        if type(value) is bytes or value is None:
            pairs.append((name, value))
            continue
        if isinstance(value, str):
            try:
                value = value.encode()
            except UnicodeEncodeError as error:
                raise refused(
                    topic, f"the value of its header {name!r} has no form in UTF-8: {_describe_place(error)}"
                ) from None
        elif not isinstance(value, bytes):
            raise TypeError(f"the value of header {name!r} must be bytes, str or None, got {type(value).__name__}")
        pairs.append((name, bytes(value)))
    return pairs or None


def record_size(value: bytes | None, key: bytes | None, headers: Headers | None) -> int:
    """Return the size of a record as the client counts it, in bytes.

    Example:
        >>> record_size(b"12345", b"ann", None)
        44
    """
    size = _RECORD_BYTES + len(value or b"") + len(key or b"")
    for name, item in headers or ():
        for part in (name.encode(), item.encode() if isinstance(item, str) else item or b""):
            size += _varint_bytes(len(part)) + len(part)
    return size


def require_size(
    topic: str, value: bytes | None, key: bytes | None, headers: Headers | None, limit: int = CLIENT_MAX_BYTES
) -> None:
    """Refuse a record that the client refuses because of its size.

    Args:
        topic: target topic.
        value: the value.
        key: the key.
        headers: the headers.
        limit: the client's `message.max.bytes`.

    Raises:
        ProducerError: if it is too large.
    """
    # Most records are far smaller. A character has at most four bytes.
    most = _RECORD_BYTES + len(value or b"") + len(key or b"")
    for name, item in headers or ():
        most += 4 * (len(name) + len(item or b"")) + _LENGTHS_BYTES
    if most > limit and record_size(value, key, headers) > limit:
        raise ProducerError(
            f"a record of {len(value or b'') + len(key or b''):,} bytes for topic {topic!r} was refused: {TOO_LARGE}"
        )


def exceeds_topic(
    topic: str, value: bytes | None, key: bytes | None, headers: Headers | None, settings: Mapping[str, Any]
) -> ProducerError | None:
    """Return the error of a record that the client takes and the brokers refuse because of its size; None if they do not.

    Args:
        topic: target topic.
        value: the value.
        key: the key.
        headers: the headers.
        settings: settings of the topic, of which `max.message.bytes` counts.
    """
    limit = int(settings.get("max.message.bytes", TOPIC_MAX_BYTES))
    # A batch has one header, and its record a shorter one than the client reserves.
    if record_size(value, key, headers) - _RECORD_BYTES + _BATCH_BYTES <= limit:
        return None
    return ProducerError(
        f"a record for topic {topic!r} was not delivered: {_TOPIC_TOO_LARGE}; raise max.message.bytes of the topic, or make "
        "the records smaller",
        topic,
        refused=True,
    )


def client_max_bytes(options: Mapping[str, Any]) -> int:
    """Return the size of the largest record that a producer with options of librdkafka accepts, in bytes."""
    return int(options.get("message.max.bytes", CLIENT_MAX_BYTES))


def refused(topic: str, reason: str) -> ProducerError:
    """Return the error of a record that cannot be written to a topic."""
    return ProducerError(f"a record for topic {topic!r} was refused: {reason}", topic, refused=True)


def _no_pair(pair: Any) -> TypeError:
    return TypeError(f"headers must be a list of (name, value) pairs, got {pair!r} in it")


def _require_name(name: str, topic: str) -> None:
    # The client ends the process at a name with a surrogate, and cuts off a name at U+0000.
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise refused(topic, f"the name {name!r} of a header has no form in UTF-8: {_describe_place(error)}") from None
    if "\0" in name:
        raise refused(topic, f"the name {name!r} of a header contains U+0000, at which the client cuts it off")


def _describe_place(error: UnicodeEncodeError) -> str:
    return f"character {error.start} is a lone surrogate (U+{ord(error.object[error.start]):04X})"


def _varint_bytes(number: int) -> int:
    # Kafka's zigzag coding doubles the number; seven bits fit into a byte.
    return max(1, -(-(2 * number).bit_length() // 7))
