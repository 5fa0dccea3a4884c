"""The partition of a key, against values of Java's client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt.kafka.partitioner import murmur2, partition_for


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        # From UtilsTest of Kafka's own client.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_javas(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_a_partition_is_one_of_the_topic(key: bytes, partitions: int) -> None:
    assert 0 <= murmur2(key) < 2**32
    assert 0 <= partition_for(key, partitions) < partitions
    assert partition_for(key, partitions) == partition_for(bytes(bytearray(key)), partitions)


def test_bytes_above_127_are_told_apart_from_others() -> None:
    assert murmur2(b"\xff\xff\xff\xff\xff") != murmur2(b"\x7f\x7f\x7f\x7f\x7f")
    assert {partition_for(bytes([number]), 16) for number in range(256)} == set(range(16))
