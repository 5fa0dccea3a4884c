"""The timestamps of records that are produced."""

from streamrt.errors import ProducerError

__all__ = ["NOW", "client_timestamp"]

NOW = 0
"""What librdkafka takes for the time of producing."""


def client_timestamp(timestamp: int | None, topic: str) -> int:
    """Return the number that makes librdkafka write a timestamp.

    librdkafka takes 0 for the time of producing, so the epoch itself becomes the first millisecond after it.

    Args:
        timestamp: milliseconds since the Unix epoch; None is the time of producing.
        topic: target topic, for errors.

    Raises:
        ProducerError: if the timestamp is negative: to Kafka, -1 is none, and other negative ones are invalid.

    Example:
        >>> client_timestamp(5_000, "orders"), client_timestamp(0, "orders"), client_timestamp(None, "orders")
        (5000, 1, 0)
    """
    if timestamp is None:
        return NOW
    if timestamp < 0:
        raise ProducerError(
            f"a record for topic {topic!r} was refused: its timestamp is {timestamp} ms, and Kafka has none before "
            "1970; give it another one with set_timestamp(), or with a timestamp_extractor of its input topic",
            topic,
            refused=True,
        )
    return timestamp or 1
