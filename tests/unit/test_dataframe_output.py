"""Output of a `StreamingDataFrame`: lines, tables, drawings, and trials without tasks."""

import dataclasses
import json
from typing import Any, cast

import pytest

from streamrt import MessageContext, StreamingSeries, message_context
from streamrt.errors import InvalidOperationError
from streamrt.topology.describe import as_text
from tests.unit.apps import Stage

# -- print, print_table ----------------------------------------------------------------------------------------------


@pytest.mark.rows("PF-C6", "PF-M15")
@pytest.mark.usefixtures("processing_mode")
def test_print_shows_the_value_as_it_is_at_that_point(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.sdf.print().update(lambda value: value.update(a=2)).print()
    stage.values({"a": 1})
    assert capsys.readouterr().out == "{'value': {'a': 1}}\n{'value': {'a': 2}}\n"


@pytest.mark.usefixtures("processing_mode")
def test_print_with_metadata_shows_key_timestamp_and_headers(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.sdf.print(pretty=False, metadata=True)
    stage.values({"b": 1, "a": 2}, key="k", timestamp=7)
    assert capsys.readouterr().out == "{'value': {'b': 1, 'a': 2}, 'key': b'k', 'timestamp': 7, 'headers': None}\n"


@pytest.mark.usefixtures("processing_mode")
def test_pretty_printing_keeps_the_order_of_columns_and_breaks_long_lines(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.sdf.print()
    stage.values({"b": "x" * 50, "a": "y" * 50})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "'b'" in lines[0]
    assert "'a'" in lines[1]


@pytest.mark.usefixtures("processing_mode")
def test_print_table_prints_a_full_table_and_the_rest_at_the_end(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.sdf.print_table(size=2, title="Numbers", columns=["n"], column_widths={"n": 6})
    with stage.drive() as driver:
        for number in (101, 102, 103):
            driver.pipe("in", {"n": number, "hidden": 999}, key="k", timestamp=7)
        first = capsys.readouterr().out
        assert "Numbers" in first
        assert all(text in first for text in ("_key", "_timestamp", "b'k'", "7", "101", "102"))
        assert "103" not in first
        assert "999" not in first
    assert "103" in capsys.readouterr().out


@pytest.mark.usefixtures("processing_mode")
def test_print_table_without_metadata_shows_values_that_are_no_dicts(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.sdf.print_table(size=1, metadata=False)
    stage.values("plain")
    shown = capsys.readouterr().out
    assert "value" in shown
    assert "plain" in shown
    assert "_key" not in shown


@pytest.mark.usefixtures("processing_mode")
def test_print_table_with_no_columns_shows_the_metadata_only(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.sdf.print_table(size=1, columns=[])
    stage.values({"hidden": 999}, key="k")
    shown = capsys.readouterr().out
    assert "b'k'" in shown
    assert "999" not in shown


@pytest.mark.parametrize("name", ["size", "timeout"])
@pytest.mark.parametrize("number", [0, -1, "5", None])
def test_print_table_needs_positive_numbers(stage: Stage, name: str, number: Any) -> None:
    with pytest.raises(InvalidOperationError, match=rf"print_table\({name}=...\) must be a positive number"):
        stage.sdf.print_table(**{name: number})


@pytest.mark.parametrize("number", [-1, "5", None])
def test_print_table_waits_no_negative_time_between_drawings(stage: Stage, number: Any) -> None:
    with pytest.raises(InvalidOperationError, match=r"live_slowdown=...\) must be a non-negative number"):
        stage.sdf.print_table(live_slowdown=number)


# -- compose, test, drawings -----------------------------------------------------------------------------------------


def test_compose_gives_one_function_per_topic(stage: Stage) -> None:
    other = stage.app.dataframe(stage.app.topic("other"))
    stage.sdf.apply(lambda value: ("in", value))
    other.apply(lambda value: ("other", value))
    outputs: list[Any] = []
    functions = stage.sdf.compose(lambda *output: outputs.append(output))
    assert sorted(functions) == ["in", "other"]
    functions["in"](1, b"k", 7, None)
    functions["other"](2, None, 8, [("h", b"")])
    assert outputs == [(("in", 1), b"k", 7, None), (("other", 2), None, 8, [("h", b"")])]
    assert stage.sdf.compose()["in"](1, b"k", 7, None) is None


def test_test_returns_the_outputs_of_all_branches(stage: Stage) -> None:
    stage.sdf.apply(lambda value: value + 1)
    stage.sdf.set_timestamp(lambda value, key, timestamp, headers: timestamp + 1)
    assert stage.sdf.test(1, key="k", timestamp=7, headers=[("h", b"")]) == [
        (2, "k", 7, [("h", b"")]),
        (1, "k", 8, [("h", b"")]),
    ]
    assert stage.sdf.test(1)[0] == (2, b"key", 0, None)


def test_test_takes_the_topic_where_there_are_several(stage: Stage) -> None:
    other = stage.app.topic("other")
    stage.app.dataframe(other).apply(lambda value: ("other", value))
    assert stage.sdf.test(1, topic=other) == [(("other", 1), b"key", 0, None)]
    with pytest.raises(InvalidOperationError, match="no dataframe reads topic 'out'"):
        stage.sdf.test(1, topic=stage.out)


def test_test_gives_functions_a_message_context(stage: Stage) -> None:
    stage.sdf.apply(lambda value: message_context())
    ((own, *_),) = stage.sdf.test(1, key="k", timestamp=7)
    assert (own.topic, own.partition, own.offset, own.key, own.timestamp.milliseconds) == ("test", 0, 0, "k", 7)
    given = MessageContext(topic="t", partition=3, offset=9, size=1)
    assert stage.sdf.test(1, ctx=given)[0][0] is given
    with pytest.raises(InvalidOperationError, match="no record is being processed"):
        message_context()


def test_test_serializes_what_goes_to_topics_and_lets_errors_through(stage: Stage) -> None:
    stage.sdf.to_topic(stage.out, key=lambda value: None).to_topic(stage.out)
    assert stage.sdf.test({"a": 1}) == [({"a": 1}, b"key", 0, None)]
    with pytest.raises(Exception, match="no JSON form"):
        stage.sdf.test({1})


def test_test_prints_what_print_prints(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.sdf.print().print_table(size=1)
    stage.sdf.test({"a": 1})
    assert capsys.readouterr().out == "{'value': {'a': 1}}\n"


@pytest.mark.usefixtures("processing_mode")
def test_a_thousand_operators_in_a_row_do_not_hit_the_recursion_limit(stage: Stage) -> None:
    for _ in range(1_000):
        stage.sdf = stage.sdf.apply(lambda value: value + 1)
    assert stage.values(0) == [1_000]


@pytest.mark.usefixtures("processing_mode")
def test_a_function_below_many_operators_still_has_room_to_recurse(stage: Stage) -> None:
    def depth(value: int) -> int:
        return value if value == 0 else 1 + depth(value - 1)

    for _ in range(300):
        stage.sdf = stage.sdf.apply(lambda value: value)
    stage.sdf.apply(depth)
    assert stage.values(500) == [500]


@pytest.mark.rows("PF-A7")
def test_a_topology_is_drawn_as_text(stage: Stage) -> None:
    sdf = stage.sdf[stage.sdf["a"] > 1]
    sdf.to_topic(stage.out)
    stage.sdf.update(print)
    topology = stage.app.topology
    assert as_text(topology).splitlines() == [
        "source-0 (in)",
        "  where-1 ((a > 1))",
        "    to_topic-2 (out)",
        "  update-3 (print)",
    ]


def test_a_topology_does_not_change_when_the_dataframe_grows(stage: Stage) -> None:
    topology = stage.app.topology
    stage.sdf.update(print)
    assert len(topology.nodes) == 1
    assert len(stage.app.topology.nodes) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        cast("Any", topology).nodes = ()


def test_frames_and_series_describe_themselves(stage: Stage) -> None:
    assert repr(stage.sdf) == "StreamingDataFrame(in, at source-0)"
    assert repr((stage.sdf["a"] + 1).isin([2])) == "StreamingSeries(((a + 1) in [2]))"
    assert isinstance(stage.sdf["a"], StreamingSeries)


@pytest.mark.usefixtures("processing_mode")
def test_everything_of_a_record_reaches_the_output_topic_as_json(stage: Stage) -> None:
    value = {"text": "ü", "list": [1, 2.0, None, True], "nested": {"b": 1, "a": 2}}
    stage.sdf.to_topic(stage.out)
    driver = stage.drive()
    driver.pipe("in", value)
    (record,) = driver.read("out")
    assert record.raw_value == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
