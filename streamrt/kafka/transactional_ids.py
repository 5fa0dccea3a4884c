"""Transactional ids, by which brokers tell an earlier producer of a task from the present one."""

import hashlib

__all__ = ["TRANSACTIONAL_ID_PREFIX", "transactional_id"]

TRANSACTIONAL_ID_PREFIX = "streamrt"
"""Common prefix of the transactional ids of all applications."""

_ID_LENGTH = 240
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def transactional_id(prefix: str, group: str, topic: str, partition: int) -> str:
    """Return the transactional id of the task of an input partition, stable and unique for each task.

    Letters, digits, "-" and "_" in names are kept and all other characters escaped, so that dots in names cannot give
    two tasks the same id. The prefix is unchanged, for ACLs on prefixes. An id of more than 240 characters is
    truncated, and ends in a hash of the full id.

    Args:
        prefix: common prefix of all ids of the application.
        group: the consumer group.
        topic: the input topic.
        partition: the input partition.

    Example:
        >>> transactional_id("streamrt", "shop", "orders.eu", 3)
        'streamrt.shop.orders~2eeu.3'
    """
    whole = ".".join((prefix, _escape(group), _escape(topic), str(partition)))
    if len(whole) <= _ID_LENGTH:
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    # No full id ends like this: in a full id, a dot follows the last "~".
    return f"{whole[: _ID_LENGTH - len(digest) - 1]}~{digest}"


def _escape(name: str) -> str:
    return "".join(
        char if char in _PLAIN else "".join(f"~{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in name
    )
