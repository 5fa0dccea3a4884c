"""Fuzzed parts of topics, groups, stores and requests: whatever others than the application can write to."""

import asyncio
import contextlib
import io
import json
import logging
import random
import re
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow
import pyarrow.parquet

from streamrt.common.addresses import HostPort, parse_address
from streamrt.common.texts import readable
from streamrt.common.untrusted import json_value
from streamrt.connectors.file_sinks.file_commits import _Entry
from streamrt.connectors.files.formats import FileFormatError, ParquetFormat
from streamrt.connectors.sinks.transactional import SinkPosition
from streamrt.control.guard import Guard, _host_of, path_for_logs
from streamrt.control.trust import FollowPolicy
from streamrt.errors import (
    ChangelogError,
    SavepointError,
    SinkError,
    StateNotOwnedError,
    StoreCorruptedError,
    StoreVersionError,
)
from streamrt.kafka.cluster.groups import ListedMember, assigned_partitions
from streamrt.records import Headers, TopicPartition
from streamrt.runtime.driver.observation.owners import url_of_member
from streamrt.runtime.metadata import CommitMetadata, CommittedMetadata, claimed, without_store
from streamrt.runtime.sent import Sent
from streamrt.savepoints.format import SavedInput, SavedLog, SavedStore, Savepoint
from streamrt.state.changelog import POSITION_KEY, Position, epoch_of, restore_changes
from streamrt.state.identity import Stamp, StoreIdentity
from streamrt.state.layout import key_prefix, owner_of, record_prefix, split_key, split_pane, split_prefix, timer_key
from streamrt.topics.dead_letters import MOST_ATTEMPTS, DeadLetter, attempts_of, without_error_headers
from tests.fuzz import inputs
from tests.fuzz.inputs import Source
from tests.fuzz.table_targets import _documents, _Reads
from tests.fuzz.targets import Target
from tests.unit.played import Played

_INPUTS = {
    "orders": SavedInput("kT3", 2, 2, {0: 42, 1: 7}, {0: {"r": Sent(17), "s": Sent(None, pending=True)}}),
    "repartition__shop--r": SavedInput(None, 4, 0, {}),
}
_SAVEPOINT = Savepoint(
    "before",
    "shop",
    1_700_000_000_000,
    "exactly-once",
    _INPUTS,
    (("orders",),),
    (SavedStore("orders", ("orders",), "default", "x1", SavedLog("changelog__shop--orders--default", 2, 1)),),
    (SavedLog("source__numbers", 1, 3),),
    (SavedLog("repartition__shop--r", 4, 4),),
)
_DIGITS = (
    b"0",
    b"-1",
    b"1",
    b"9" * 19,
    b"9" * 20,
    b"9" * 5_000,
    b" 1",
    b"1_0",
    "\u0661".encode(),
    b"\xff",
    b"",
    b"1e3",
)
_TEXTS = ("process", "KeyError", "\x1b[2J", "\u202e", "\ud800", "a" * 3_000, "", "\0", "orders", "../x", "\u2028")
_HOSTS = (
    "shop-1",
    "10.0.0.7",
    "[::1]",
    "[fe80::1%x]",
    "evil@shop",
    "",
    "a b",
    "\x1b[2J",
    "sh\u00f6p",
    "*",
    "[",
    "a/b",
    "a#b",
)


def _letter(rng: random.Random) -> bytes:
    """Return headers of a dead letter, as JSON of pairs, of which some are hostile."""
    why = DeadLetter("process", "KeyError", "'x'", "apply-1 (a)", "orders", 3, 17, "shop", 2)
    own = why.headers([("trace", b"1")])
    headers = [[name, value.hex()] for name, value in own if isinstance(value, bytes)]
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(len(headers))
        action = rng.randrange(4)
        if action == 0:
            headers[place] = [headers[place][0], rng.choice(_DIGITS).hex()]
        elif action == 1:
            headers[place] = [headers[place][0], rng.choice(_TEXTS).encode("utf-8", "surrogatepass").hex()]
        elif action == 2 and len(headers) > 1:
            del headers[place]
        else:
            headers.append([headers[place][0], rng.choice(_DIGITS).hex()])
    return json.dumps(headers).encode()


def _read_letter(data: bytes) -> Any:
    headers: Headers
    try:
        headers = [(str(name), bytes.fromhex(value)) for name, value in json_value(data)]
    except (ValueError, TypeError):
        headers = [("streamrt.error.attempt", data)]
    attempts = attempts_of(headers)
    letter = DeadLetter.of(headers)
    # What fails is written as a dead letter, with what its headers said before.
    again = DeadLetter("process", "KeyError", "x", "apply", "orders", 0, 1, "shop").headers(headers)
    assert attempts_of(again) == min(attempts + 1, MOST_ATTEMPTS)
    assert without_error_headers(again) == without_error_headers(headers)
    return [readable(str(part)) for part in vars(letter).values()] if letter is not None else True


def _read_metadata(data: bytes) -> Any:
    text = data.decode("utf-8", "surrogateescape")
    found = CommittedMetadata.decode(text)
    partition = TopicPartition("orders", 0)
    metadata = CommitMetadata({"orders": {"default": "x1"}}, first_counts={"orders": 4})
    metadata.describes(partition, text)
    # As for the next commit of a member: its claim is the next one, and has to fit into an epoch.
    epoch_of(found.claim + 1, 1)
    for changed in (claimed(text, claim=found.claim + 1), without_store(text, "orders", "default")):
        CommittedMetadata.decode(changed)
    metadata.followed(partition, text)
    found.sent_into("r")
    return found.names("orders", "default"), found.contradicts("orders", "default", "x2")


def _record(rng: random.Random) -> bytes:
    """Return a changelog record: length of the key, key, value."""
    prefix = key_prefix(rng.randrange(6), rng.randbytes(rng.choice((0, 1, 3, 200))))
    key = rng.choice(
        (
            record_prefix(1, b"ab") + b'"total"',
            timer_key(prefix, rng.randrange(3), rng.choice((0, 5, 2**63, 2**64 - 1))),
            bytes((rng.randrange(256),)) + prefix + rng.randbytes(rng.randrange(20)),
            POSITION_KEY,
            rng.randbytes(rng.randrange(12)),
        )
    )
    if not rng.randrange(3):
        key = key[: rng.randrange(len(key) + 1)]
    expiring = b"\2" + rng.randbytes(rng.randrange(12))
    value = rng.choice((b"", b"\0", b"\1", expiring, b"\1" + b"\xff" * 9, rng.randbytes(9)))
    if key == POSITION_KEY:
        value = Position(3, None, 1, 1_000).encode() if rng.randrange(2) else inputs.json_text(rng)
    return len(key).to_bytes(2, "big") + key + value


def _read_record(data: bytes) -> Any:
    length = int.from_bytes(data[:2], "big")
    key, value = data[2 : 2 + length], data[2 + length :]
    found = restore_changes([(key, value or None)])
    for each, _ in found.changes:
        split_key(each), owner_of(each)
    tag, rest = split_prefix(key[1:])
    if tag == 4:
        split_pane(key[1:])
    return found.position is None, rest


def _entries() -> list[bytes]:
    position = SinkPosition(17, 2, "kT3", "x")
    return [
        _Entry().to_bytes(),
        _Entry(position, "t").to_bytes(),
        _Entry(position, "t", (("a/b.json", b"123"), ("c", b"")), (("_streamrt/0", position),)).to_bytes(),
        _Entry(None, "t", pending=("t2", "_streamrt/1", SinkPosition(1, 1))).to_bytes(),
    ]


def _entry(rng: random.Random) -> bytes:
    line, _, contents = rng.choice(_entries()).partition(b"\n")
    return _documents(json.loads(line))(rng) + b"\n" + contents


def _read_entry(data: bytes) -> Any:
    entry = _Entry.from_bytes("name", data)
    again = _Entry.from_bytes("name", entry.to_bytes())
    assert again == entry
    return sum(len(content) for _, content in entry.files or ())


def _assignment(rng: random.Random) -> bytes:
    def number() -> bytes:
        return rng.choice((0, 1, 2, -1, 2**31 - 1, -(2**31), 5)).to_bytes(4, "big", signed=True)

    def length() -> bytes:
        return rng.choice((0, 1, 2, -1, -2, -6, 2**15 - 1)).to_bytes(2, "big", signed=True)

    return b"\0\0" + number() + b"".join(length() + rng.randbytes(rng.randrange(3)) + number() for _ in range(3))


def _announced(rng: random.Random) -> bytes:
    port = rng.choice((b"7070", *_DIGITS)).decode("utf-8", "replace")
    text = f"{rng.choice(('000-streamrt', '', '@'))}@{rng.choice(_HOSTS)}:{port}{rng.choice(('', '/', '/me', '/@:1'))}"
    return text.encode("utf-8", "surrogatepass")


def _read_announced(data: bytes) -> Any:
    text = data.decode("utf-8", "surrogateescape")
    for host in ("10.0.0.7", "fd00::1", "/x", ""):
        url = url_of_member(ListedMember(text, text, host, ()))
        if url is not None:
            # It becomes a header of HTTP.
            assert re.fullmatch(r"http://[!-~]+", url), url
            assert "@" not in url
            FollowPolicy("http://10.0.0.7:7070", ["*"]).require(url)
    _host_of(text)
    with contextlib.suppress(StateNotOwnedError):
        FollowPolicy("http://shop:7070", ["10.0.0.0/8"]).require(text)
    with contextlib.suppress(ValueError):
        parse_address(text)
    return path_for_logs(text)


_PATHS = (
    *(
        b"/live",
        b"/ready",
        b"/status",
        b"/checkpoints/1",
        b"/topology?format=json",
        b"/completion?token={}",
        b"/metrics",
    ),
    *(b"/state/default/ann?key_format=json&partition=0&limit=5&cursor=x", b"/state/default?prefix=a&start=b&end=c"),
    *(b"/idle?idle_interval=1", b"/topics/orders/pause", b"/sources/a/pause", b"/stats", b"/overview", b"/"),
)
_PARTS = (
    *(
        b"9" * 5_000,
        b"-1",
        b"%00",
        b"%FF",
        b"%0d%0aX: y",
        b"/",
        b"//",
        b"..",
        b"%2e%2e/",
        b"?",
        b"&",
        b"=",
        b"#",
        b"\xff",
    ),
    *(
        b"state",
        b"default",
        b"checkpoints",
        b"%",
        b"%zz",
        b"\x1b[2J",
        b"[" * 2_000,
        b"partition=",
        b"limit=",
        b"cursor=",
    ),
)


def _path(rng: random.Random) -> bytes:
    parts = [rng.choice(_PATHS), *(rng.choice(_PARTS) for _ in range(rng.choice((0, 1, 1, 3))))]
    rng.shuffle(parts)
    return b"".join(parts)


def _control() -> Callable[[bytes], Any]:
    """Return a function that asks the routes of an application for a path, behind the checks of each request."""
    app = Played()
    assert app._server is not None
    guarded = Guard(app._server._routes.asgi(), HostPort("127.0.0.1", 7070), None)
    loop = asyncio.new_event_loop()
    logging.getLogger("streamrt").setLevel(logging.CRITICAL)

    def ask(data: bytes) -> Any:
        # h11 refuses other characters in the target of a request.
        target = re.sub(rb"[^!-~]", lambda found: b"%%%02x" % found[0][0], data)
        raw, _, query = target.partition(b"?")
        # A request that waits takes its time.
        query = b"&".join(
            part for part in query.split(b"&") if not urllib.parse.unquote_to_bytes(part).startswith(b"wait")
        )
        scope = {
            "type": "http",
            "method": "GET",
            "http_version": "1.1",
            "scheme": "http",
            "path": urllib.parse.unquote(raw.decode("latin-1")),
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": [(b"host", b"127.0.0.1:7070"), (b"accept", target[:50])],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 7070),
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        loop.run_until_complete(guarded(scope, receive, send))
        status = sent[0]["status"]
        assert status < 500 or status == 503, (status, b"".join(each.get("body", b"") for each in sent)[:300])
        assert not any(b"\r" in value or b"\n" in value for _, value in sent[0]["headers"])
        return status

    return ask


def _parquet() -> list[bytes]:
    tables = [
        pyarrow.table({"id": [1, 2], "name": ["a", None], "at": pyarrow.array([1, 2], pyarrow.timestamp("us"))}),
        pyarrow.table({"x": [[1], None, []], "s": [{"a": 1}, {"a": None}, None]}),
        pyarrow.table(
            {"d": pyarrow.array([0, 1], pyarrow.date32()), "t": pyarrow.array([0, 1], pyarrow.timestamp("s"))}
        ),
    ]
    found = []
    for table in tables:
        for options in ({}, {"compression": "none", "use_dictionary": False, "row_group_size": 1}):
            output = io.BytesIO()
            pyarrow.parquet.write_table(table, output, **options)
            found.append(output.getvalue())
    return found


def _read_parquet(data: bytes) -> Any:
    return len(list(ParquetFormat().deserialize(io.BytesIO(data))))


def hostile_targets() -> list[Target]:
    """Return what is fuzzed."""
    identity = StoreIdentity("shop", "orders", 0, "default", "kT3", "x1", 4)
    stamps = [
        Stamp(identity, 12, None, 1_000, 2_000),
        Stamp(identity, 12, 9, None, 2_000, {"orders": 12}, 5, epoch_of(1, 2)),
        Stamp(identity, None, 9, None, 2_000, restored=Position(3, None, 1, 1_000).encode()),
    ]
    positions = [Position(12, "kT3", 4, 1_000), Position(12, None, 4, None, {"a": 5, "b": 7}, 9)]
    metadata = CommitMetadata({"orders": {"default": "x1", "b": None}}, first_counts={"orders": 4})
    notes = [metadata.encode(TopicPartition("orders", 0), claim=7, sent={"r": Sent(17), "s": Sent(None, pending=True)})]
    notes.append('{"streamrt":2,"digests":"abcdefgh","owner":"orders","claim":5,"version":"abcd"}')

    def documents(name: str, read: Callable[[bytes], Any], errors: Sequence[type[Exception]], *valid: bytes) -> Target:
        source: Source = _documents(*(json.loads(each) for each in valid))
        return Target(
            name,
            _Reads(read),
            list(valid),
            [source, source, inputs.json_text],
            [inputs.json_bomb],
            errors=tuple(errors),
        )

    return [
        Target("dead letters", _Reads(_read_letter), [b"[]"], [_letter], [inputs.json_bomb], errors=()),
        documents(
            "manifests of savepoints",
            lambda data: [*Savepoint.decode(data, "topic").lines(), str(Savepoint.decode(data, "topic").created)],
            (SavepointError,),
            _SAVEPOINT.encode(),
        ),
        documents("metadata of commits", _read_metadata, (), *(note.encode() for note in notes if note is not None)),
        documents(
            "stamps of stores",
            lambda data: Stamp.decode(data).encode(),
            (StoreCorruptedError, StoreVersionError),
            *(stamp.encode() for stamp in stamps),
        ),
        documents(
            "positions of changelogs",
            lambda data: Position.decode(data).encode(),
            (ChangelogError, StoreVersionError),
            *(position.encode() for position in positions),
        ),
        Target(
            "records of changelogs",
            _Reads(_read_record),
            [b"\0\x0b" + record_prefix(1, b"ab") + b'"total"' + b"\0one"],
            [_record],
            errors=(ChangelogError, StoreCorruptedError, StoreVersionError),
        ),
        Target(
            "entries of file commits",
            _Reads(_read_entry),
            _entries(),
            [_entry, _entry],
            [inputs.json_bomb],
            errors=(SinkError,),
        ),
        Target(
            "assignments",
            _Reads(lambda data: assigned_partitions(data)),
            [bytes.fromhex("0000000000010001610000000100000002")],
            [_assignment],
            errors=(),
        ),
        Target(
            "addresses of members",
            _Reads(_read_announced),
            [b"000-streamrt@shop-1:7070"],
            [_announced],
            errors=(StateNotOwnedError,),
        ),
        Target(
            "paths of the control server",
            _Reads(_control()),
            [b"/live", b"/state/default/ann?limit=5"],
            [_path],
            errors=(),
        ),
        Target("parquet", _Reads(_read_parquet), _parquet(), errors=(FileFormatError,)),
    ]
