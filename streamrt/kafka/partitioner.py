"""Partition of a key, compatible with Java's clients and librdkafka's "murmur2" partitioners."""

import struct

__all__ = ["murmur2", "partition_for"]

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(key: bytes) -> int:
    """Return the 32-bit MurmurHash2 of a key, with the seed that Kafka uses.

    Args:
        key: the bytes to hash.

    Returns:
        The hash as an unsigned number; Java shows the same bits as a signed one.

    Example:
        >>> murmur2(b"21") == -973932308 % 2**32
        True
    """
    length = len(key)
    value = _SEED ^ length
    whole = length & ~3
    for block in struct.unpack_from(f"<{length >> 2}I", key):
        block = block * _M & _MASK
        block = (block ^ (block >> 24)) * _M & _MASK
        value = (value * _M & _MASK) ^ block
    if whole < length:
        value = (value ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    value = (value ^ (value >> 13)) * _M & _MASK
    return value ^ (value >> 15)


def partition_for(key: bytes, partitions: int) -> int:
    """Return the partition to which Kafka's clients write records with a key.

    Args:
        key: the key; not None, for which clients choose any partition.
        partitions: partition count of the topic; 1 or more.

    Example:
        >>> partition_for(b"customer-7", 3) in (0, 1, 2)
        True
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
