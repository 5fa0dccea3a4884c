"""Integers of variable length."""

__all__ = ["varint"]


def varint(number: int) -> bytes:
    r"""Return a number, 0 or more, as an unsigned LEB128 varint, which Protobuf also uses.

    Example:
        >>> varint(5), varint(300)
        (b'\x05', b'\xac\x02')
    """
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
