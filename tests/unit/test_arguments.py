"""Wrong arguments: `TypeError` for wrong types, `ValueError` for wrong values, and always an error of ours."""

import functools
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application, StreamingDataFrame, Topic, TopicConfig
from streamrt.connectors import CSVSource, SparkSink
from streamrt.dataframe.branch import branch_of
from streamrt.errors import ArgumentTypeError, ArgumentValueError, StreamRTError
from streamrt.joins import LookupBuffer, SQLiteLookup, SQLiteLookupField
from streamrt.kafka import ConnectionConfig, Consumer
from streamrt.serializers import JSONSerializer, QuixDeserializer, StringSerializer
from streamrt.state import RocksDBOptions
from streamrt.state.spec import StoreSpec
from streamrt.testing import TopologyTestDriver
from streamrt.topics.durations import milliseconds
from streamrt.windows import Sum
from tests.unit.apps import application

Call = Callable[[Any], Any]

CALLS: list[tuple[Call, Call]] = [
    # Of a wrong type, and of a right type with a wrong value.
    (lambda sdf: sdf.apply(7), lambda sdf: sdf.apply(len) and None),
    (lambda sdf: sdf[7], lambda sdf: sdf[[]]),
    (lambda sdf: sdf[["a", 7]], lambda sdf: sdf[sdf.apply(len).filter(bool)]),
    (lambda sdf: sdf["a"] + sdf, lambda sdf: sdf["a"] + frame()["b"]),
    (lambda sdf: sdf["a"][1.5], lambda sdf: sdf.__setitem__("a", frame()["b"])),
    (lambda sdf: sdf["a"].round("2"), lambda sdf: sdf.fill()),
    (lambda sdf: sdf.drop(7), lambda sdf: sdf.drop([])),
    (lambda sdf: sdf.drop("a", errors=False), lambda sdf: sdf.drop("a", errors="no")),
    (lambda sdf: sdf.contains({"a": 1}), lambda sdf: sdf.contains([])),
    (lambda sdf: sdf.print_table(size="5"), lambda sdf: sdf.print_table(size=0)),
    (lambda sdf: sdf.to_topic("out"), lambda sdf: sdf.test({}, topic=Topic("unknown"))),
    (lambda sdf: sdf.sink(print), lambda sdf: sdf.concat(frame())),
    (lambda sdf: sdf.group_by(7), lambda sdf: sdf.group_by("")),
    (lambda sdf: sdf.group_by(["a", 7]), lambda sdf: sdf.group_by(["a", "a"])),
    (lambda sdf: sdf.group_by("a", name=7), lambda sdf: sdf.group_by("a", name="")),
    (lambda sdf: sdf.concat("other"), lambda sdf: sdf.group_by(len)),
    (lambda sdf: sdf.tumbling_window("1s"), lambda sdf: sdf.tumbling_window(0)),
    (lambda sdf: sdf.tumbling_window(1.5), lambda sdf: sdf.tumbling_window(timedelta(0))),
    (lambda sdf: sdf.tumbling_window(True), lambda sdf: sdf.tumbling_window(10, grace_ms=-1)),
    (lambda sdf: sdf.hopping_window(10, None), lambda sdf: sdf.hopping_window(10, 20)),
    (lambda sdf: sdf.tumbling_window(10, name=7), lambda sdf: sdf.tumbling_window(10, name="a b")),
    (lambda sdf: sdf.tumbling_count_window("2"), lambda sdf: sdf.tumbling_count_window(1)),
    (lambda sdf: sdf.tumbling_window(10, on_late=7), lambda sdf: sdf.hopping_count_window(2, 3)),
    (lambda sdf: sdf.tumbling_window(10).agg(n=7), lambda sdf: sdf.tumbling_window(10).agg()),
    (lambda sdf: sdf.tumbling_window(10).agg(n=Sum(7)), lambda sdf: sdf.tumbling_window(10).agg(start=Sum())),  # type: ignore[arg-type]
    (lambda sdf: sdf.tumbling_window(10).sum().final(7), lambda sdf: sdf.tumbling_window(10).sum().final("no")),
    (lambda sdf: sdf.join_asof(7), lambda sdf: sdf.join_asof(sdf, how="outer")),
    (lambda sdf: sdf.join_asof(sdf, how=None), lambda sdf: sdf.join_asof(sdf, grace_ms=-1)),
    (lambda sdf: sdf.join_asof(sdf, on_merge=7), lambda sdf: sdf.join_asof(sdf, on_merge="both")),
    (lambda sdf: sdf.join_asof(sdf, name=7), lambda sdf: sdf.join_interval(sdf, grace_ms=1, backward_ms=2)),
    (lambda sdf: sdf.join(7, within=1), lambda sdf: sdf.join(sdf, "a")),
    (lambda sdf: sdf.join(sdf, 7, within=1), lambda sdf: sdf.join(sdf, ("a", ["b", "c"]), within=1)),
    (lambda sdf: sdf.join(sdf, ["a", 7], within=1), lambda sdf: sdf.join(sdf, ("a", "b", "c"), within=1)),
    (lambda sdf: sdf.join(sdf, how=7, within=1), lambda sdf: sdf.join(sdf, how="full", within=1)),
    (lambda sdf: sdf.join(sdf, within="1s"), lambda sdf: sdf.join(sdf, within=(1, 2, 3))),
    (lambda sdf: sdf.join(sdf, retention="1s"), lambda sdf: sdf.join(sdf, within=1, retention=1)),
    (lambda sdf: sdf.join(sdf, window=10), lambda sdf: sdf.join(sdf, within=0)),
    (lambda sdf: sdf.join(sdf, within=1, grace_ms="1s"), lambda sdf: sdf.join(sdf, within=1, grace_ms=-1)),
    (
        lambda sdf: sdf.join(sdf, within=1, closing_strategy=7),
        lambda sdf: sdf.join(sdf, within=1, closing_strategy="key"),
    ),
    (lambda sdf: sdf.drop_duplicates(7), lambda sdf: sdf.drop_duplicates([])),
    (lambda sdf: sdf.drop_duplicates(keep=7), lambda sdf: sdf.drop_duplicates(keep="none")),
    (lambda sdf: sdf.drop_duplicates(within="1s"), lambda sdf: sdf.drop_duplicates(within=0)),
    (lambda sdf: sdf.drop_duplicates(within=1, closing_strategy=7), lambda sdf: sdf.drop_duplicates(grace_ms=1)),
    (lambda sdf: sdf.top("7", "a"), lambda sdf: sdf.top(0, "a")),
    (lambda sdf: sdf.top(1, 7), lambda sdf: sdf.top(1, [])),
    (lambda sdf: sdf.top(1, "a", descending=7), lambda sdf: sdf.top(1, "a", rank="")),
    (lambda sdf: sdf.top(1, "a", descending=[7]), lambda sdf: sdf.top(1, "a", descending=[True, False])),
    (lambda sdf: sdf.top(1, "a", method=7), lambda sdf: sdf.top(1, "a", method="first")),
    (lambda sdf: sdf.over(rows="7"), lambda sdf: sdf.over().agg()),
    (lambda sdf: sdf.over(rows=1.5), lambda sdf: sdf.over(rows=0)),
    (lambda sdf: sdf.over(range="1s"), lambda sdf: sdf.over(rows=1, range=1)),
    (lambda sdf: sdf.over(1, order=7), lambda sdf: sdf.over(1, order="value")),
    (lambda sdf: sdf.over(range=1, grace_ms="1s"), lambda sdf: sdf.over(1, grace_ms=1)),
    (lambda sdf: sdf.over(1).agg(n=7), lambda sdf: sdf.over(1, order="time").agg(n=Sum())),
    (lambda sdf: sdf.join_lookup(7, {}), lambda sdf: sdf.join_lookup(SQLiteLookup("a"), {})),
    (lambda sdf: SQLiteLookup("a", cache_size="1"), lambda sdf: SQLiteLookup("a", cache_size=-1)),  # type: ignore[arg-type]
    (
        lambda sdf: SQLiteLookupField("a", "b", on="c"),
        lambda sdf: SQLiteLookupField("a", ["b"], on="c", ttl=-1),
    ),
    (lambda sdf: LookupBuffer("1", bool), lambda sdf: LookupBuffer(0, bool)),  # type: ignore[arg-type]
    (lambda sdf: Topic(7), lambda sdf: Topic("a b")),  # type: ignore[arg-type]
    (lambda sdf: Topic("a", value_serializer=7), lambda sdf: Topic("a", value_serializer="no")),  # type: ignore[arg-type]
    (lambda sdf: JSONSerializer(schema=7), lambda sdf: JSONSerializer(schema={"type": 7})),  # type: ignore[arg-type]
    (lambda sdf: QuixDeserializer(max_records="7"), lambda sdf: QuixDeserializer(max_records=0)),  # type: ignore[arg-type]
    (lambda sdf: StringSerializer(7), lambda sdf: StringSerializer("no")),  # type: ignore[arg-type]
    (lambda sdf: StoreSpec("a", dict), lambda sdf: StoreSpec("a b")),  # type: ignore[arg-type]
    (lambda sdf: RocksDBOptions(block_cache_size="1"), lambda sdf: RocksDBOptions(block_cache_size=-1)),  # type: ignore[arg-type]
    (lambda sdf: SparkSink(7), lambda sdf: SparkSink(print, schema=" ")),  # type: ignore[arg-type]
    (lambda sdf: CSVSource("a", 7), lambda sdf: CSVSource("a", "")),  # type: ignore[arg-type]
    (lambda sdf: CSVSource("a", "a", delay="1"), lambda sdf: CSVSource("a", "a", delay=-1)),  # type: ignore[arg-type]
    (lambda sdf: Consumer(7, "g", "latest"), lambda sdf: ConnectionConfig(bootstrap_servers="")),  # type: ignore[arg-type]
    (lambda sdf: application(commit_interval=[]), lambda sdf: application(commit_interval=-1)),
    (lambda sdf: application(commit_every=True), lambda sdf: application(processing_mode="no")),
    (lambda sdf: application(state_dir=7), lambda sdf: application(loglevel="no")),
    (lambda sdf: application(on_consumer_error=7), lambda sdf: application(auto_offset_reset="first")),
    (lambda sdf: application().dataframe("in"), lambda sdf: application().run(frame())),
    (lambda sdf: application().run(timeout="1"), lambda sdf: application().run(timeout=-1)),  # type: ignore[arg-type]
    (lambda sdf: application().add_source("in"), lambda sdf: application().run(count=-1)),  # type: ignore[arg-type]
    (lambda sdf: application().run(7), lambda sdf: application(commit_interval="soon")),  # type: ignore[arg-type]
    (lambda sdf: application().forget_store(7), lambda sdf: application().topic("a b")),  # type: ignore[arg-type]
    (lambda sdf: application().forget_store("in", 7), lambda sdf: application().topic("")),  # type: ignore[arg-type]
    (lambda sdf: application().topic("a", config=7), lambda sdf: application(loglevel="")),  # type: ignore[arg-type]
    (lambda sdf: application().topic("a", timestamp_extractor=7), lambda sdf: application(commit_every="many")),  # type: ignore[arg-type]
    (lambda sdf: application(auto_offset_reset=7), lambda sdf: application(commit_every=-1)),
    (lambda sdf: application(loglevel=[]), lambda sdf: application(processing_guarantee="no")),
    (lambda sdf: sdf.test({}, topic="in"), lambda sdf: sdf.drop("a", errors="")),
    (lambda sdf: sdf.print_table(column_widths=7), lambda sdf: sdf.print_table(timeout=-1)),
    (
        lambda sdf: application().add_source(CSVSource("a", "a"), "in"),
        lambda sdf: Topic("a", config=TopicConfig(1, 1), create_config=TopicConfig(1, 1)),
    ),
    (lambda sdf: driver().advance("1"), lambda sdf: driver().advance(-1)),  # type: ignore[arg-type]
]


def frame() -> StreamingDataFrame:
    app = application()
    return app.dataframe(app.topic("in"))


def driver() -> TopologyTestDriver:
    app: Application = application()
    app.dataframe(app.topic("in"))
    return TopologyTestDriver(app)


@pytest.mark.parametrize("call", [wrong for wrong, _ in CALLS])
def test_a_wrong_type_is_a_type_error(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError) as caught:
        call(frame())
    assert issubclass(caught.type, ArgumentTypeError)
    assert issubclass(caught.type, StreamRTError)


@pytest.mark.parametrize("call", [wrong for _, wrong in CALLS[1:]])
def test_a_wrong_value_is_a_value_error(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r".") as caught:
        call(frame())
    assert issubclass(caught.type, StreamRTError)
    assert not issubclass(caught.type, TypeError)


def test_the_two_are_what_is_raised_for_a_duration() -> None:
    with pytest.raises(ArgumentTypeError, match=r"must be an int of milliseconds or a timedelta, got float 1.5"):
        milliseconds("grace_ms", 1.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentValueError, match=r"must be 1 ms or more, got 0"):
        milliseconds("grace_ms", 0, least=1)


@pytest.mark.parametrize(
    ("microseconds", "expected"),
    [(0, 0), (499, 0), (500, 1), (501, 1), (1_499, 1), (1_500, 2), (2_500, 3), (86_400_000_499, 86_400_000)],
)
def test_a_duration_is_rounded_to_the_nearest_millisecond(microseconds: int, expected: int) -> None:
    assert milliseconds("it", timedelta(microseconds=microseconds)) == expected


def test_windows_and_joins_take_fractions_of_milliseconds() -> None:
    sdf = frame()
    window = sdf.tumbling_window(timedelta(microseconds=1_600), grace_ms=timedelta(microseconds=400)).count().final()
    assert "tumbling_window_2_count" in {store.name for store in branch_of(window).builder.build().stores("in")}
    sdf.join_interval(sdf, backward_ms=timedelta(microseconds=1_500), grace_ms=timedelta(seconds=1))


def two(value: Any, state: Any) -> Any:
    return value


def one(value: Any) -> Any:
    return value


class Method:
    def two(self, value: Any, state: Any) -> Any:
        return value


@functools.wraps(two)
def decorated(value: Any) -> Any:
    return two(value, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda sdf: sdf.apply(two),
            r"apply\(\) calls two with \(value\), but its parameters are \(value, state\): pass stateful=True to apply\(\)",
        ),
        (lambda sdf: sdf.filter(Method().two), r"\(value, state\): pass stateful=True to filter\(\)"),
        (lambda sdf: sdf.update(two, metadata=True), r"pass stateful=True to update\(\)"),
        (lambda sdf: sdf.apply(lambda a, b, c, d: 1), r"pass metadata=True to apply\(\)"),
        (lambda sdf: sdf.apply(lambda a, b, c, d, e: 1), r"pass metadata=True and stateful=True to apply\(\)"),
        (lambda sdf: sdf.apply(one, stateful=True), r"with \(value, state\), .* leave out stateful=True"),
        (lambda sdf: sdf.apply(lambda: 1), r"parameters are \(\): change the parameters of the function$"),
        (lambda sdf: sdf.apply(lambda value, *, unit: 1), r"\(value, unit\): change the parameters of the function$"),
    ],
)
def test_a_function_with_other_parameters_is_refused_with_what_to_pass(call: Call, message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        call(frame())


@pytest.mark.parametrize(
    "function", [one, decorated, print, dict, str.title, functools.partial(two, state=1), lambda *args: 1]
)
def test_functions_that_can_be_called_are_taken(function: Any) -> None:
    frame().apply(function)
