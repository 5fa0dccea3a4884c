"""Data that outlives the program: stamps, positions, keys and values; and plain data: options and descriptions of stores."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt import state as package
from streamrt.errors import ChangelogError, ConfigurationError, StateError, StoreCorruptedError, StoreVersionError
from streamrt.state import MemoryStore, RocksDBOptions, RocksDBStore, Stamp, Store, StoreIdentity, layout
from streamrt.state.changelog import POSITION_KEY, Position, epoch_of, is_position, restore_changes
from streamrt.state.rocksdb.directory import escaped
from streamrt.state.spec import StoreSpec
from streamrt.state.store import DEFAULT_STORE

IDENTITY = StoreIdentity("shop", "orders", 3, "totals", "id-1", None, 4)
STAMP = Stamp(IDENTITY, 10, None, -5, 1_700_000_000_000)
POSITION = Position(10, None, 4, 99)

optional_ints = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
texts = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"])))


@given(
    st.builds(
        Stamp,
        st.builds(
            StoreIdentity, st.just("ä"), st.just("t"), st.integers(0, 9), st.just("s"), texts, texts, st.integers(1, 9)
        ),
        optional_ints,
        optional_ints,
        optional_ints,
        st.integers(0, 2**62),
        st.one_of(st.none(), st.dictionaries(st.text("ab"), st.integers(0, 9))),
        st.one_of(st.none(), st.integers(0, 2**62)),
    )
)
def test_stamps_survive(stamp: Stamp) -> None:
    assert Stamp.decode(stamp.encode()) == stamp


@given(
    st.builds(
        Position,
        st.integers(0, 2**62),
        texts,
        st.integers(1, 9),
        optional_ints,
        st.one_of(st.none(), st.dictionaries(st.text("ab"), st.integers(0, 9))),
        st.one_of(st.none(), st.integers(0, 2**62)),
    )
)
def test_positions_survive(position: Position) -> None:
    assert Position.decode(position.encode()) == position


@pytest.mark.rows("FL-122")
def test_the_format_of_version_1() -> None:
    """Changing this breaks state that exists."""
    assert STAMP.encode() == (
        b'{"v":1,"group":"shop","topic":"orders","partition":3,"store":"totals","topic_id":"id-1","changelog_id":null,'
        b'"partitions":4,"input_offset":10,"changelog_offset":null,"stream_time":-5,"written_at":1700000000000}'
    )
    assert POSITION.encode() == b'{"v":1,"input_offset":10,"topic_id":null,"partitions":4,"stream_time":99}'
    assert POSITION_KEY == b"\xffposition"
    assert layout.record_prefix(1, b"") == b"\x01\x01\x00"
    assert layout.record_prefix(2, b"x" * 300) == b"\x01\x02\xac\x02" + b"x" * 300
    assert layout.expiry_key(258, b"\x01key") == b"\xf0\x00\x00\x00\x00\x00\x00\x01\x02\x01key"
    assert layout.encode_value(layout.Expiring(258, b"5")) == b"\x01\x00\x00\x00\x00\x00\x00\x01\x025"
    assert layout.encode_value(b"5") == b"\x005"


def test_the_format_of_stamps_of_version_4() -> None:
    """Changing this breaks state that exists."""
    stamp = replace(STAMP, inputs={"orders": 10}, epoch=epoch_of(7, 1))
    assert stamp.encode() == (
        b'{"v":4,"group":"shop","topic":"orders","partition":3,"store":"totals","topic_id":"id-1","changelog_id":null,'
        b'"partitions":4,"input_offset":10,"changelog_offset":null,"stream_time":-5,"written_at":1700000000000,'
        b'"inputs":{"orders":10},"observed":null,"epoch":"00000000000700000001"}'
    )
    assert Stamp.decode(stamp.encode()) == stamp
    partly = replace(STAMP, input_offset=None, restored=POSITION.encode())
    assert partly.encode().endswith(
        b'"inputs":null,"observed":null,"epoch":null,"restored":"{\\"v\\":1,\\"input_offset\\":10,\\"topic_id\\":null,'
        b'\\"partitions\\":4,\\"stream_time\\":99}"}'
    )
    assert Stamp.decode(partly.encode()) == partly
    for damaged in (
        stamp.encode().replace(b"0000", b"what", 1),
        partly.encode().replace(b'"restored":"', b'"restored":5,"x":"'),
    ):
        with pytest.raises(StoreCorruptedError):
            Stamp.decode(damaged)


@pytest.mark.parametrize("decode", [Stamp.decode, Position.decode])
def test_newer_versions_are_refused(decode: Any) -> None:
    with pytest.raises(StoreVersionError, match="a newer version wrote the state; upgrade StreamRT"):
        decode(b'{"v":5,"something":"new"}')


BROKEN = [
    b"",
    b"{",
    b"[]",
    b"5",
    b"null",
    b"{}",
    b'{"v":"1"}',
    b'{"v":0}',
    b'{"v":true}',
    b'{"v":1}',
    b'{"v":1,"x":5}',
    b"\xff",
]


@pytest.mark.parametrize("data", BROKEN)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(StoreCorruptedError):
        Stamp.decode(data)
    with pytest.raises(ChangelogError):
        Position.decode(data)


def test_positions_are_told_by_their_key() -> None:
    assert is_position(POSITION_KEY)
    assert not is_position(b"\xff")
    assert not is_position(None)


@given(st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=200), st.binary(max_size=3)), max_size=20))
def test_no_prefix_begins_another_one(keys: list[tuple[int, bytes, bytes]]) -> None:
    whole = {layout.record_prefix(tag, key) + state_key for tag, key, state_key in keys}
    assert len(whole) == len(set(keys))


@given(st.integers(), st.binary(max_size=5))
def test_values_that_expire(expiry: int, payload: bytes) -> None:
    value = layout.decode_value(layout.encode_value(layout.Expiring(expiry, payload)))
    assert isinstance(value, layout.Expiring)
    assert (value.expiry, value.payload) == (min(max(expiry, 0), 2**63 - 1), payload)


@given(st.integers(0, 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_the_index_is_ordered_by_time(expiry: int, stream_time: int) -> None:
    assert (layout.expiry_key(expiry, b"key") < layout.expiry_bound(stream_time)) == (expiry <= stream_time)


def test_values_of_newer_versions() -> None:
    with pytest.raises(StoreVersionError, match="flag 7"):
        layout.decode_value(b"\x07abc")
    for data in (b"", b"\x01abc"):
        with pytest.raises(StoreCorruptedError, match="truncated"):
            layout.decode_value(data)


def test_restoring() -> None:
    expiring = layout.encode_value(layout.Expiring(7, b"1"))
    records = [(b"\x01a", b"\x001"), (POSITION_KEY, POSITION.encode()), (b"\x01b", expiring), (b"\x01a", None)]
    changes, position = restore_changes(records)
    assert changes == [(b"\x01a", None), (b"\x01b", expiring), (layout.expiry_key(7, b"\x01b"), b"")]
    assert position == POSITION
    assert restore_changes([]) == ([], None)


@pytest.mark.parametrize("key", [None, b"", b"\xf0abc", b"\xfe", b"\xffother"])
def test_foreign_records_in_a_changelog(key: bytes | None) -> None:
    with pytest.raises(ChangelogError, match="never writes"):
        restore_changes([(key, b"\x00")])


def test_a_deleted_position() -> None:
    with pytest.raises(ChangelogError, match="position record"):
        restore_changes([(POSITION_KEY, None)])


def test_keys_of_spaces_to_come_are_restored() -> None:
    assert restore_changes([(b"\x05window", b"\x00")]).changes == [(b"\x05window", b"\x00")]


def test_names_for_directories() -> None:
    names = [
        "orders",
        "Orders",
        "a.b",
        ".",
        "..",
        "",
        "a/b",
        "a%2fb",
        "ä",
        "\x00",
        "%",
        "x" * 249,
        "X" * 249,
        "x" * 248 + "y",
    ]
    names += ["repartition__g--t--n", "\ud800", ".a", "%2ea", "a" * 300 + "b", "a" * 300 + "c"]
    folders = [escaped(name) for name in names]
    assert len({folder.lower() for folder in folders}) == len(names)
    for folder in folders:
        assert 0 < len(folder) <= 255
        assert folder.isascii()
        assert not folder.startswith(".")
        assert "/" not in folder
        assert "\x00" not in folder


@given(st.lists(st.text(max_size=8), unique=True))
def test_no_two_names_share_a_directory(names: list[str]) -> None:
    assert len({escaped(name).lower() for name in names}) == len(names)


def test_specs() -> None:
    assert StoreSpec() == StoreSpec(DEFAULT_STORE, RocksDBStore)
    assert StoreSpec("totals", MemoryStore) != StoreSpec("totals")
    assert len({StoreSpec(), StoreSpec("default")}) == 1
    for spec in (StoreSpec(), StoreSpec("a.b-c_D", MemoryStore)):
        assert pickle.loads(pickle.dumps(spec)) == spec
        assert cloudpickle.loads(cloudpickle.dumps(spec)) == spec


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", "x" * 121, "a\n", None, 5])
def test_store_names(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="valid store name"):
        StoreSpec(name)
    with pytest.raises(ConfigurationError, match="valid store name"):
        MemoryStore(name, "orders", Path("unused"))


@pytest.mark.parametrize("kind", [None, "memory", Store.__new__, dict, MemoryStore("a", "b", Path("unused"))])
def test_store_kinds(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a store class"):
        StoreSpec("totals", kind)


def test_options_can_be_pickled() -> None:
    options = RocksDBOptions(dumps=orjson.dumps, write_buffer_size=1)
    assert pickle.loads(pickle.dumps(options)) == options
    assert cloudpickle.loads(cloudpickle.dumps(RocksDBOptions(dumps=lambda value: b"x"))).dumps(1) == b"x"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write_buffer_size", 0),
        ("write_buffer_size", 1.5),
        ("write_buffer_size", True),
        ("write_buffer_budget", -1),
        ("block_cache_size", 0),
        ("target_file_size_base", 0),
        ("max_write_buffer_number", 0),
        ("max_evictions_per_flush", 0),
        ("bloom_filter_bits_per_key", -1),
        ("compression_type", "rar"),
        ("max_open_files", 5),
        ("open_max_retries", -1),
        ("open_retry_backoff", -0.5),
        ("open_retry_backoff", "1"),
        ("use_fsync", 1),
        ("on_corrupted_recreate", None),
        ("dumps", "json"),
        ("loads", 5),
        ("db_log_dir", 5),
    ],
)
def test_options_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        RocksDBOptions(**{name: value})


@pytest.mark.parametrize("name", ["wal_dir", "legacy_records_ttl", "ttl_rollback", "enable_pipelined_write"])
def test_options_without_meaning_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        RocksDBOptions(**{name: None})  # type: ignore[arg-type]


def test_errors_of_the_package_are_errors_of_state() -> None:
    assert issubclass(StoreCorruptedError, StateError)
    assert issubclass(ChangelogError, StateError)


def test_all_names_exist() -> None:
    assert sorted(package.__all__) == sorted(set(package.__all__))
    for name in package.__all__:
        assert hasattr(package, name)


def test_rocksdb_is_imported_when_a_store_is_opened() -> None:
    code = "import sys, streamrt, streamrt.state; sys.exit('rocksdict' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
