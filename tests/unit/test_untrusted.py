"""Data that others can write to topics, groups, stores and terminals, and what must not come of it."""

import itertools
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamrt import Application
from streamrt.common.claims import Claimed, claim
from streamrt.common.logs import line_formatter
from streamrt.common.texts import json_readable, readable, readable_lines
from streamrt.common.untrusted import HIGHEST, json_object, read_field, read_field_or_none, whole_number
from streamrt.connectors.file_sinks.file_commits import _Entry
from streamrt.connectors.sinks.transactional import SinkPosition
from streamrt.errors import ChangelogError, SavepointError, SinkError, StoreCorruptedError, StoreVersionError
from streamrt.kafka.cluster.groups import assigned_partitions
from streamrt.records import Headers
from streamrt.runtime.metadata import CommittedMetadata
from streamrt.savepoints.format import SavedInput, Savepoint
from streamrt.state.changelog import Position, epoch_of, restore_changes
from streamrt.state.identity import Stamp, StoreIdentity
from streamrt.state.layout import split_key, timer_key
from streamrt.testing import TopologyTestDriver
from streamrt.topics.dead_letters import MOST_ATTEMPTS, DeadLetter, DeadLetters, attempts_of

HOSTILE = ["9" * 4_301, "9" * 100_000, "-1", "", "\u0661", "1e9", "0x1", " 1", "1_0", str(2**63), "\x1b[2J", "\xff"]


@pytest.mark.parametrize("mode", ["micro-batch", "resident"])
@pytest.mark.parametrize("text", HOSTILE)
def test_s1_a_header_of_any_producer_ends_no_application(mode: Any, text: str) -> None:
    """The record is a dead letter like others, for each header that dead letters have."""
    app = Application(
        broker_address="unused.invalid:9092", consumer_group="shop", on_error=DeadLetters(), processing_mode=mode
    )
    frame = app.dataframe(app.topic("orders", value_deserializer="json"))
    frame.apply(lambda value: value["n"]).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        for name in ("attempt", "partition", "offset", "stage"):
            header = (f"streamrt.error.{name}", text.encode("utf-8", "surrogateescape"))
            driver.pipe("orders", {}, key="k", headers=[header])
        letters = driver.read("dead-letters__shop")
    found = [DeadLetter.of(letter.headers) for letter in letters]
    assert [(why.stage, why.attempt) for why in found if why is not None] == [("process", 1)] * 4


def test_s1_attempts_are_counted_as_far_as_they_are_numbers() -> None:
    why = DeadLetter("process", "KeyError", "x", "apply", "orders", 0, 1, "shop")
    for text, attempts in (
        ("7", 7),
        (str(HIGHEST), MOST_ATTEMPTS),
        *((each, 0) for each in HOSTILE),
    ):
        headers: Headers = [("streamrt.error.attempt", text.encode("utf-8", "surrogateescape"))]
        assert attempts_of(headers) == attempts
        assert attempts_of(why.headers(headers)) == min(attempts + 1, MOST_ATTEMPTS)


# -- S5: terminals and logs -------------------------------------------------------------------------------------------

TRICKS = [
    "\x1b[2J",
    "\x1b]0;x\x07",
    "\x9b2J",
    "\u202e",
    "\u2066",
    "\u200b",
    "\u200f",
    "\u061c",
    "\ufeff",
    "\U000e0041",
    "\ud800",
]


@pytest.mark.parametrize("trick", TRICKS)
def test_s5_texts_of_others_show_what_they_have(trick: str) -> None:
    for shown in (
        readable(f"a{trick}b"),
        readable_lines(f"a{trick}b\n\tc"),
        json_readable(json.dumps(trick, ensure_ascii=False)),
    ):
        assert all(character.isprintable() or character in "\n\t" for character in shown)
        assert shown.isascii()
    assert json.loads(json_readable(json.dumps({"a": trick}, ensure_ascii=False))) == {"a": trick}
    assert (
        readable("caf\u00e9 \u65e5\u672c \U0001f600 \u0645\u0631") == "caf\u00e9 \u65e5\u672c \U0001f600 \u0645\u0631"
    )


@pytest.mark.parametrize("trick", TRICKS)
def test_s5_log_lines_control_no_terminal_and_forge_no_line(trick: str) -> None:
    try:
        raise ValueError(f"no {trick}")
    except ValueError as error:
        record = logging.LogRecord(
            "streamrt", logging.ERROR, "f", 1, "bad %s\n[x] [ERROR] forged", (trick,), (type(error), error, None)
        )
    text = line_formatter("text").format(record)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "\n    [x] [ERROR] forged" in text
    assert json.loads(line_formatter("json").format(record))["message"].startswith(f"bad {trick}")


# -- S6: documents ------------------------------------------------------------------------------------------------------

JUNK: list[Any] = [None, True, -1, 1.5, 2**63, 10**400, "x", "9" * 5_000, [], {}, [None], {"a": {}}]


def changed(document: Any) -> Iterator[Any]:
    """Yield documents with another value at one place, or without it."""
    for key in list(document) if isinstance(document, dict) else range(len(document)):
        for junk in JUNK:
            yield _with(document, key, junk)
        if isinstance(document, dict):
            yield {name: value for name, value in document.items() if name != key}
        if isinstance(document[key], dict | list) and document[key]:
            yield from (_with(document, key, inner) for inner in changed(document[key]))


def _with(document: Any, key: Any, value: Any) -> Any:
    copied = dict(document) if isinstance(document, dict) else list(document)
    copied[key] = value
    return copied


IDENTITY = StoreIdentity("shop", "orders", 0, "default", "t", "c", 4)
DOCUMENTS: list[tuple[bytes, Callable[[bytes], Any], type[Exception]]] = [
    (Stamp(IDENTITY, 12, 9, 5, 6, {"a": 3}, 4, epoch_of(1, 2)).encode(), Stamp.decode, StoreCorruptedError),
    (Position(12, "t", 4, 5, {"a": 3}, 6).encode(), Position.decode, ChangelogError),
    (
        Savepoint("s", "g", 1, "exactly-once", {"in": SavedInput("t", 2, 2, {0: 4})}, (("in",),)).encode(),
        lambda data: [Savepoint.decode(data, "t").created, *Savepoint.decode(data, "t").lines()],
        SavepointError,
    ),
    (
        _Entry(SinkPosition(1, 1, "t"), "t", (("a", b"1"),), (("b", SinkPosition(2, 2)),)).to_bytes(),
        lambda data: _Entry.from_bytes("name", data).to_bytes(),
        SinkError,
    ),
]


@pytest.mark.parametrize(("valid", "read", "error"), DOCUMENTS, ids=lambda value: getattr(value, "__name__", ""))
def test_s6_documents_of_wrong_types_are_refused(
    valid: bytes, read: Callable[[bytes], Any], error: type[Exception]
) -> None:
    line, newline, rest = valid.partition(b"\n")
    read(valid)
    for document in changed(json.loads(line)):
        try:
            text = json.dumps(document)
        except ValueError:
            continue
        try:
            read(text.encode() + newline + rest)
        except (error, StoreVersionError) as refused:
            if not 0 < len(str(refused)) < 500:
                raise


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a\\..\\x", "a\0"])
def test_s6_entries_name_no_file_outside_of_their_store(name: str) -> None:
    with pytest.raises(SinkError, match="outside"):
        _Entry.from_bytes("n", _Entry(None, "t", ((name, b""),)).to_bytes())


@pytest.mark.parametrize(
    "text",
    [f'{{"streamrt":2,"claim":{claimed}}}' for claimed in ("1" + "0" * 60, 2**63, 2**48 - 1, -1, "true", "[]")],
)
def test_s6_claims_leave_room_for_the_next_one(text: str) -> None:
    assert CommittedMetadata.decode(text).claim == 0


def test_s6_the_highest_claim_counts() -> None:
    found = CommittedMetadata.decode(json.dumps({"streamrt": 2, "claim": 2**47}))
    assert len(epoch_of(found.claim + 1, 0)) == 10


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x07", b"\0"),
        (b"\x07\x01\x02ab", b"\0"),
        (timer_key(b"\x01\x02ab", 2, 5), b"\0"),
        (b"\x01\x01\x02ab1", b"\x01\0"),
        (b"\x01\x01\x02ab1", b"\x02"),
    ],
)
def test_s6_records_that_no_changelog_has(key: bytes, value: bytes) -> None:
    with pytest.raises(ChangelogError, match="which StreamRT never writes"):
        restore_changes([(key, value)])


@pytest.mark.parametrize("key", [b"\x01", b"\x01\x01", b"\x01\x01\xff"])
def test_s6_keys_that_are_cut(key: bytes) -> None:
    with pytest.raises(StoreCorruptedError, match="truncated"):
        split_key(key)


def test_s6_assignments_with_negative_lengths_end() -> None:
    for length, count in ((-2, 0), (-6, 0), (0, -1), (1, -(2**31))):
        data = b"\0\0" + (2**31 - 1).to_bytes(4, "big") + length.to_bytes(2, "big", signed=True)
        assert assigned_partitions(data + count.to_bytes(4, "big", signed=True) * 3) == ()


def test_readers_raise_value_errors_alone() -> None:
    for text in HOSTILE:
        with pytest.raises(ValueError):  # noqa: PT011 - the callers give the message
            whole_number(text)
    for data in ("[" * 100_000, "9" * 5_000, "NaN", "[]", "1", "", "\ud800", b"\xff"):
        with pytest.raises(ValueError):  # noqa: PT011
            json_object(data)
    documents: list[Any] = [{}, {"v": True}, {"v": 1.0}, {"v": -1}, {"v": 2**63}, {"v": None}, [], None, 5]
    for document in documents:
        with pytest.raises(ValueError):  # noqa: PT011
            read_field(document, "v", int)
    assert (read_field_or_none({}, "v", int), read_field_or_none({"v": None}, "v", str)) == (None, None)


# -- A1: claim, then read -----------------------------------------------------------------------------------------------


class Id:
    """An id that one contender holds, and a list that its holder may empty."""

    def __init__(self) -> None:
        self.holder: object = None
        self.letters = [1, 2, 3]
        self.sent: list[int] = []


class Contender:
    def __init__(self, shared: Id) -> None:
        self.shared = shared
        shared.holder = self

    def close(self) -> None:
        pass

    def commit(self, letters: list[int]) -> None:
        if self.shared.holder is self:
            self.shared.sent += letters
            self.shared.letters = [each for each in self.shared.letters if each not in letters]


@pytest.mark.parametrize("order", sorted(set(itertools.permutations("aabb"))))
def test_a1_whoever_claims_before_it_reads_sends_nothing_twice(order: tuple[str, ...]) -> None:
    """Each contender claims and reads in its first turn, and commits in its second one, in all orders."""
    shared, claims = Id(), dict[str, Claimed[Contender, list[int]]]()
    for name in order:
        if name in claims:
            claims[name].holder.commit(claims[name].seen)
        else:
            claims[name] = claim(lambda: Contender(shared), lambda holder: list(shared.letters))
    assert shared.sent == [1, 2, 3]


def test_a1_an_id_is_given_back_if_what_it_guards_cannot_be_read() -> None:
    closed: list[Contender] = []

    class Holder(Contender):
        def close(self) -> None:
            closed.append(self)

    def fail(holder: Holder) -> int:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        claim(lambda: Holder(Id()), fail)
    assert len(closed) == 1
