"""Conformance suite for stores, StreamRT's and yours.

Subclass the suite in a test module, give the subclass a name that begins with `Test`, and define how a store is made.
pytest collects the inherited tests. The suite needs the packages pytest and hypothesis.

Example:
    ```python
    class TestMyStore(StoreConformance):
        def make(self, name: str, topic: str, base_dir: Path) -> Store:
            return MyStore(name, topic, base_dir)
    ```
"""
# ruff: noqa: S101 - asserting is what a test suite does

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt.errors import StateError, StoreLockedError
from streamrt.state import Stamp, Store, StoreIdentity, StorePartition
from streamrt.testing.comparison import check_same

__all__ = ["StoreConformance"]

Change = tuple[bytes, "bytes | None"]

_KEYS = st.one_of(st.binary(min_size=1, max_size=4), st.sampled_from([b"\x00", b"\xff", b"\xff\xff", b"\x00\x00"]))
_CHANGES = st.lists(st.tuples(_KEYS, st.one_of(st.none(), st.binary(max_size=8))), max_size=12)
_STEPS = st.lists(st.one_of(_CHANGES, st.just("reopen")), max_size=8)

# The same test runs for each subclass, which hypothesis reports as a mistake by default.
_thoroughly = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])


def _make_stamp(offset: int) -> Stamp:
    identity = StoreIdentity("conformance", "topic", 0, "store", "topic-id", "changelog-id", 2)
    return Stamp(identity, offset, offset + 1, 1_000 + offset, 2_000)


class StoreConformance:
    """The contract of every `Store`."""

    def make(self, name: str, topic: str, base_dir: Path) -> Store:
        """Return a store that fails at once instead of waiting for another owner."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        """A store without data."""
        return self.make("store", "topic", tmp_path)

    @pytest.fixture
    def partition(self, store: Store) -> Iterator[StorePartition]:
        """An open partition without data."""
        partition = store.open(0)
        yield partition
        partition.close()

    def test_it_begins_empty(self, partition: StorePartition) -> None:
        """There is no data and no stamp."""
        assert partition.stamp is None
        assert partition.get(b"a") is None
        assert partition.get_many([b"a", b"b"]) == [None, None]
        assert list(partition.scan(b"", None)) == []

    def test_what_is_written_can_be_read(self, partition: StorePartition) -> None:
        """Values, also the empty one; a read of several keys returns them in the order of the keys."""
        partition.write([(b"a", b"1"), (b"b", b""), (b"c", b"\x00\xff")], _make_stamp(1))
        assert partition.get(b"a") == b"1"
        assert partition.get(b"b") == b""
        assert partition.get_many([b"c", b"missing", b"a", b"c"]) == [b"\x00\xff", None, b"1", b"\x00\xff"]
        assert partition.get_many([]) == []

    def test_deleted_keys_are_gone(self, partition: StorePartition) -> None:
        """None deletes a key, also a missing one."""
        partition.write([(b"a", b"1"), (b"b", b"2")], _make_stamp(1))
        partition.write([(b"a", None), (b"never", None)], _make_stamp(2))
        assert partition.get(b"a") is None
        assert list(partition.scan(b"", None)) == [(b"b", b"2")]

    def test_the_last_change_of_a_key_counts(self, partition: StorePartition) -> None:
        """Also if it is a deletion."""
        partition.write([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None)], _make_stamp(1))
        assert list(partition.scan(b"", None)) == [(b"a", b"2")]

    def test_the_stamp_goes_with_the_data(self, partition: StorePartition) -> None:
        """It is the stamp of the last write, which may have no changes."""
        partition.write([(b"a", b"1")], _make_stamp(1))
        assert partition.stamp == _make_stamp(1)
        partition.write([], _make_stamp(2))
        assert partition.stamp == _make_stamp(2)
        assert partition.get(b"a") == b"1"

    def test_a_write_is_all_or_nothing(self, partition: StorePartition) -> None:
        """An iterable that raises leaves data and stamp unchanged."""

        def changes() -> Iterator[Change]:
            yield b"a", b"2"
            yield b"b", b"2"
            raise RuntimeError("no more")

        partition.write([(b"a", b"1")], _make_stamp(1))
        with pytest.raises(RuntimeError, match="no more"):
            partition.write(changes(), _make_stamp(2))
        assert partition.stamp == _make_stamp(1)
        assert list(partition.scan(b"", None)) == [(b"a", b"1")]

    def test_empty_keys_are_refused(self, partition: StorePartition) -> None:
        """Such a write has no effect."""
        with pytest.raises(StateError):
            partition.write([(b"a", b"1"), (b"", b"1")], _make_stamp(1))
        assert partition.stamp is None
        assert list(partition.scan(b"", None)) == []

    def test_scans_go_by_bytes(self, partition: StorePartition) -> None:
        """From the first bound, inclusive, to the second, exclusive; in both directions."""
        keys = [b"a", b"a\x00", b"a\xff", b"b", b"ba", b"c"]
        partition.write([(key, key + b"!") for key in reversed(keys)], _make_stamp(1))

        def scanned(start: bytes, end: bytes | None) -> list[bytes]:
            forward = list(partition.scan(start, end))
            assert list(partition.scan(start, end, reverse=True)) == forward[::-1]
            assert all(value == key + b"!" for key, value in forward)
            return [key for key, _ in forward]

        assert scanned(b"", None) == keys
        assert scanned(b"a", b"b") == [b"a", b"a\x00", b"a\xff"]
        assert scanned(b"a\x00", b"ba") == [b"a\x00", b"a\xff", b"b"]
        assert scanned(b"aa", None) == [b"a\xff", b"b", b"ba", b"c"]
        assert scanned(b"b", b"b") == []
        assert scanned(b"c", b"b") == []
        assert scanned(b"d", None) == []
        assert scanned(b"", b"") == []

    def test_a_scan_may_be_left_early(self, store: Store) -> None:
        """An unfinished scan keeps nothing open."""
        partition = store.open(0)
        partition.write([(b"%d" % number, b"") for number in range(100)], _make_stamp(1))
        scan = partition.scan(b"", None)
        next(scan)
        partition.close()
        store.open(0).close()

    def test_keys_may_have_every_byte(self, partition: StorePartition) -> None:
        """At every position."""
        keys = [bytes([byte]) for byte in range(256)] + [bytes([byte, 255 - byte]) for byte in range(256)]
        partition.write([(key, key) for key in keys], _make_stamp(1))
        check_same(partition.get_many(keys), keys)
        check_same([key for key, _ in partition.scan(b"", None)], sorted(keys))

    def test_values_may_be_large(self, store: Store) -> None:
        """Some megabytes."""
        value = bytes(range(256)) * 4 * 4096
        partition = store.open(0)
        partition.write([(b"large", value), (b"small", b"1")], _make_stamp(1))
        check_same([partition.get(b"large")], [value])
        assert partition.approximate_size() >= 0
        partition.close()
        partition = store.open(0)
        check_same([partition.get(b"large")], [value])
        partition.close()

    @pytest.mark.slow
    def test_there_may_be_many_keys(self, store: Store) -> None:
        """Over several writes, half of them deleted again."""
        keys = [b"key-%06d" % number for number in range(30_000)]
        partition = store.open(0)
        for first in range(0, len(keys), 5_000):
            partition.write([(key, key * 3) for key in keys[first : first + 5_000]], _make_stamp(first))
        partition.write([(key, None) for key in keys[::2]], _make_stamp(len(keys)))
        partition.close()
        partition = store.open(0)
        check_same([key for key, _ in partition.scan(b"", None)], keys[1::2])
        check_same([key for key, _ in partition.scan(keys[100], keys[200], reverse=True)], keys[199:100:-2])
        assert partition.approximate_size() > 0
        entries = partition.approximate_entries()
        assert entries is None or 0 < entries < 2 * len(keys)
        partition.close()

    def test_data_survives_closing(self, store: Store, tmp_path: Path) -> None:
        """For stores that declare themselves persistent, also in another object."""
        partition = store.open(3)
        partition.write([(b"a", b"1")], _make_stamp(1))
        partition.close()
        again = self.make("store", "topic", tmp_path) if store.persistent else store
        partition = again.open(3)
        assert partition.stamp == _make_stamp(1)
        assert list(partition.scan(b"", None)) == [(b"a", b"1")]
        partition.close()

    def test_partitions_are_apart(self, store: Store) -> None:
        """Several may be open at the same time."""
        partitions = [store.open(number) for number in (0, 1, 10)]
        for number, partition in enumerate(partitions):
            partition.write([(b"a", b"%d" % number)], _make_stamp(number))
        assert [partition.get(b"a") for partition in partitions] == [b"0", b"1", b"2"]
        for partition in partitions:
            partition.close()
        store.destroy(1)
        partition = store.open(0)
        assert partition.get(b"a") == b"0"
        partition.close()

    @pytest.mark.slow
    def test_stores_are_apart(self, tmp_path: Path) -> None:
        """With any names and topics."""
        names = [
            ("a", "b"),
            ("b", "a"),
            ("A", "b"),
            ("a.b", "c"),
            ("a", "b.c"),
            ("a", ".."),
            ("..", "a"),
            ("a", "x" * 249),
        ]
        stores = [self.make(name, topic, tmp_path) for name, topic in names]
        for store in stores:
            partition = store.open(0)
            assert partition.stamp is None
            partition.write([(b"a", repr(store).encode())], _make_stamp(1))
            partition.close()
        for store in stores:
            partition = store.open(0)
            assert partition.get(b"a") == repr(store).encode()
            partition.close()

    def test_one_owner_at_a_time(self, store: Store) -> None:
        """A second owner is refused until the first has closed."""
        partition = store.open(0)
        with pytest.raises(StoreLockedError):
            store.open(0)
        with pytest.raises(StoreLockedError):
            store.destroy(0)
        partition.write([(b"a", b"1")], _make_stamp(1))
        partition.close()
        partition = store.open(0)
        assert partition.get(b"a") == b"1"
        partition.close()

    def test_destroyed_data_is_gone(self, store: Store) -> None:
        """A new store can be made there; destroying nothing is allowed."""
        store.destroy(0)
        partition = store.open(0)
        partition.write([(b"a", b"1")], _make_stamp(1))
        partition.close()
        store.destroy(0)
        store.destroy(0)
        partition = store.open(0)
        assert partition.stamp is None
        assert partition.get(b"a") is None
        partition.close()

    def test_a_closed_partition_refuses(self, store: Store) -> None:
        """All calls but another close."""
        partition = store.open(0)
        partition.write([(b"a", b"1")], _make_stamp(1))
        partition.close()
        partition.close()
        with pytest.raises(StateError):
            partition.get(b"a")
        with pytest.raises(StateError):
            partition.get_many([b"a"])
        with pytest.raises(StateError):
            list(partition.scan(b"", None))
        with pytest.raises(StateError):
            partition.write([(b"a", b"2")], _make_stamp(2))

    @pytest.mark.slow
    @given(steps=_STEPS)
    @_thoroughly
    def test_random_writes_agree_with_a_dictionary(self, steps: list[list[Change] | str]) -> None:
        """Also after closing and opening."""
        with tempfile.TemporaryDirectory() as folder:
            store = self.make("store", "topic", Path(folder))
            partition = store.open(0)
            model: dict[bytes, bytes] = {}
            for number, step in enumerate(steps):
                if isinstance(step, str):
                    partition.close()
                    partition = store.open(0)
                    continue
                partition.write(step, _make_stamp(number))
                for key, value in step:
                    model.pop(key, None)
                    if value is not None:
                        model[key] = value
                assert partition.stamp == _make_stamp(number)
                check_same(partition.get_many(sorted(model)), [model[key] for key in sorted(model)])
            check_same(list(partition.scan(b"", None)), sorted(model.items()))
            check_same(list(partition.scan(b"", None, reverse=True)), sorted(model.items(), reverse=True))
            partition.close()
            store.destroy(0)
