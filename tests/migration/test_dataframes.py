"""Dataframes do what programs written for Quix Streams expect of them."""

import io
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import StreamingDataFrame
from streamrt.runtime.driver.observation.display import Display
from tests.unit.apps import Stage, through

# -- fill ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("processing_mode")
@pytest.mark.parametrize("value", ["text", 5, [1], 1.5, True])
def test_fill_passes_on_what_is_no_dict(stage: Stage, value: Any) -> None:
    stage.sdf.fill("a", b=0)
    assert stage.values(value, {"a": 1}) == [value, {"a": 1, "b": 0}]


@pytest.mark.usefixtures("processing_mode")
def test_fill_passes_on_tombstones(stage: Stage) -> None:
    stage.sdf.fill("a").to_topic(stage.out)
    assert stage.values(None, {}, key="k") == [None, {"a": None}]


# -- print and print_table -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pretty", [True, False])
@pytest.mark.parametrize("value", [{"a": 1}, None, "text", 5])
def test_print_names_what_it_shows(stage: Stage, capsys: pytest.CaptureFixture[str], value: Any, pretty: bool) -> None:
    stage.sdf.print(pretty=pretty)
    stage.values(value)
    assert capsys.readouterr().out == f"{{'value': {value!r}}}\n"


def test_print_with_metadata_adds_key_timestamp_and_headers(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.sdf.print(metadata=True)
    stage.values(1, key="k", timestamp=7, headers=[("h", b"x")])
    assert capsys.readouterr().out == "{'value': 1, 'key': b'k', 'timestamp': 7, 'headers': [('h', b'x')]}\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_live_table_may_be_drawn_without_slowing_down(stage: Stage) -> None:
    stage.sdf.print_table(size=1, live_slowdown=0.0)
    terminal = Terminal()
    display = Display(stage.app.topology, terminal)
    [node] = [node for node in stage.app.topology.nodes if node.label.startswith("print_table")]
    display.live = True
    display.show([(node.id, {"n": "101"})])
    display.close()
    assert "101" in terminal.getvalue()


# -- Wrong arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda sdf: sdf.drop({"a"}), TypeError),
        (lambda sdf: sdf.drop(["a", 5]), TypeError),
        (lambda sdf: sdf.drop([]), ValueError),
        (lambda sdf: sdf.fill(), ValueError),
        (lambda sdf: sdf.fill(5), TypeError),
        (lambda sdf: sdf.__setitem__("x", sdf.apply(list, expand=True)), ValueError),
        (lambda sdf: sdf[sdf.apply(list, expand=True)], ValueError),
        (lambda sdf: sdf.apply(5), TypeError),
        (lambda sdf: sdf["a"] + sdf, TypeError),
    ],
)
def test_wrong_arguments_raise_type_errors_and_value_errors(
    build: Callable[[StreamingDataFrame], Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        through(build)
