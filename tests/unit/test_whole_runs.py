"""Operators as lines of one loop have the results and errors of their closures, one record after the other."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamrt import DeadLetters, StreamingDataFrame, message_context
from streamrt.errors import StreamRTError
from streamrt.state import MemoryStore, State
from streamrt.testing import InputRecord, TopologyTestDriver
from streamrt.topics import Topic
from tests.support import LONG
from tests.unit.apps import application

Operator = Callable[[StreamingDataFrame, Topic], StreamingDataFrame | None]


def set_column(frame: StreamingDataFrame, aside: Topic) -> None:
    frame["b"] = frame["a"] * 2 + 1


def set_nested(frame: StreamingDataFrame, aside: Topic) -> None:
    frame["c"] = frame["n"]["x"].isin([1, 2])


def count(value: Any, state: State) -> Any:
    state.set("count", state.get("count", 0) + 1)
    if value["a"] == 3:
        raise ValueError("three")
    return {**value, "count": state.get("count"), "offset": message_context().offset}


def fail_at_two(value: Any) -> bool:
    if value["a"] == 2:
        raise RuntimeError("two")
    return True


def branch(frame: StreamingDataFrame, aside: Topic) -> None:
    frame.apply(lambda value: {"branch": value["a"]}).to_topic(aside)


OPERATORS: dict[str, Operator] = {
    "set column": set_column,
    "set nested column": set_nested,
    "where": lambda frame, _: frame[frame["a"] > 0],
    "project": lambda frame, _: frame[["a", "n"]],
    "drop": lambda frame, _: frame.drop("n"),
    "fill": lambda frame, _: frame.fill("a", "z"),
    "filter": lambda frame, _: frame.filter(fail_at_two),
    "apply": lambda frame, _: frame.apply(lambda value: {**value, "a": value["a"] + 1}),
    "apply with metadata": lambda frame, _: frame.apply(
        lambda value, key, timestamp, headers: {**value, "all": [key, timestamp, str(headers)]}, metadata=True
    ),
    "update": lambda frame, _: frame.update(lambda value: value.update(seen=1)),
    "state": lambda frame, _: frame.apply(count, stateful=True),
    "timestamp": lambda frame, _: frame.set_timestamp(lambda value, key, timestamp, headers: value["a"] - 1),
    "headers": lambda frame, _: frame.set_headers(lambda value, key, timestamp, headers: [("a", str(value["a"]))]),
    "no JSON": lambda frame, _: frame.apply(lambda value: {**value, "set": {1}} if value["a"] == 4 else value),
    "expand": lambda frame, _: frame.apply(lambda value: [value, value], expand=True),
    "aside": lambda frame, aside: frame.to_topic(aside),
    "branch": branch,
}


VALUES = (
    *(b'{"a":%d,"n":{"x":%d}}' % (number, number % 3) for number in range(-1, 5)),
    b'{"a":18446744073709551616,"n":{"x":1}}',
    b'{"n":{}}',
    b"[1, 2]",
    b"7",
    b"null",
    b"{",
    b"",
    None,
)
inputs = st.lists(
    st.builds(
        InputRecord,
        topic=st.just("in"),
        value=st.sampled_from(VALUES),
        key=st.sampled_from(("k", "l", None)),
        timestamp=st.integers(0, 50),
        headers=st.sampled_from((None, [("source", b"test")])),
    ),
    min_size=1,
    max_size=40,
)


class World:
    """An application with a chain of operators.

    Args:
        chain: the names of the operators.
        policy: what happens to records that fail.
        closures: whether records pass through closures.
        keys: the format of keys.
    """

    def __init__(self, chain: Sequence[str], policy: str, keys: Literal["bytes", "str"], *, closures: bool) -> None:
        self.seen: list[Any] = []
        policies: dict[str, dict[str, Any]] = {
            "fail": {},
            "skip": {"on_error": "skip"},
            "keep": {"on_error": DeadLetters("letters")},
            "ask": {f"on_{what}_error": self.note for what in ("processing", "consumer", "producer")},
        }
        # Who asks for each processed record gets it from closures.
        processed = (lambda *place: None) if closures else None
        app = application(**policies[policy], on_message_processed=processed)
        source = app.topic("in", key_serializer="str", key_deserializer=keys, value_serializer="bytes")
        frame = app.dataframe(source)
        frame.register_store(MemoryStore)
        aside = app.topic("aside", key_serializer=keys)
        for name in chain:
            made = OPERATORS[name](frame, aside)
            frame = frame if made is None else made
        frame.to_topic(app.topic("out", key_serializer=keys))
        self.topics = ["out", "aside", *(["letters"] if policy == "keep" else [])]
        self.driver = TopologyTestDriver(app)

    def note(self, error: Exception, record: Any, logger: Any) -> bool:
        self.seen.append((repr(error), repr(record and record.value), repr(record and record.key)))
        return True

    def pipe(self, records: Sequence[InputRecord]) -> None:
        try:
            self.driver.pipe_many(records, chunk=20)
        except StreamRTError as error:
            self.seen.append((repr(error), repr(error.__cause__)))

    def results(self) -> list[Any]:
        outputs = {topic: self.driver.read(topic) for topic in self.topics}
        return [*self.seen, self.driver.outputs(), outputs, self.driver.status]


@pytest.mark.slow
@example(["apply", "filter"], [InputRecord("in", VALUES[2], "k", 1)] * 20, "ask", "bytes")
@settings(max_examples=2_000 if LONG else 120)
@given(
    chain=st.lists(st.sampled_from(sorted(OPERATORS)), max_size=4),
    records=inputs,
    policy=st.sampled_from(("fail", "skip", "keep", "ask")),
    keys=st.sampled_from(("bytes", "str")),
)
def test_lines_have_the_results_of_closures(
    chain: list[str], records: list[InputRecord], policy: str, keys: Literal["bytes", "str"]
) -> None:
    lines, closures = (World(chain, policy, keys, closures=each) for each in (False, True))
    for part in (records[::2], records[1::2]):
        lines.pipe(part)
        closures.pipe(part)
        assert lines.results() == closures.results()
