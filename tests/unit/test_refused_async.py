"""Functions defined by `async def` are refused where they would not be awaited: `filter` would keep every record."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Application, Retry, windows
from streamrt.arguments import is_async
from streamrt.connectors import MQTTSink, WebhookSink
from streamrt.connectors.sources.bad_records import BadRecords
from streamrt.dataframe import StreamingDataFrame
from streamrt.errors import ArgumentTypeError
from streamrt.joins import LookupBuffer
from streamrt.tables.reading.changes import require_listener_arguments


async def _wait(*arguments: Any) -> bool:
    return False


# Programs without types also pass it.
wait: Any = _wait


async def wait_for_items(value: Any) -> Any:
    yield value


class Waits:
    async def __call__(self, *arguments: Any) -> bool:
        return False


def application(**settings: Any) -> Application:
    return Application(broker_address="localhost:9092", consumer_group="shop", **settings)


OPERATORS: dict[str, Callable[[StreamingDataFrame], Any]] = {
    "apply()": lambda sdf: sdf.apply(wait),
    "update()": lambda sdf: sdf.update(wait),
    "filter()": lambda sdf: sdf.filter(wait),
    "apply(stateful=True)": lambda sdf: sdf.apply(wait, stateful=True),
    "reduce()": lambda sdf: sdf.reduce(wait),
    "group_by()": lambda sdf: sdf.group_by(wait, name="by"),
    "set_timestamp()": lambda sdf: sdf.set_timestamp(wait),
    "set_headers()": lambda sdf: sdf.set_headers(wait),
    "StreamingSeries.apply()": lambda sdf: sdf["n"].apply(wait),
    "to_topic(key=...)": lambda sdf: sdf.to_topic(application().topic("out"), key=wait),
    "Reduce(reducer=...)": lambda sdf: windows.Reduce(wait, lambda value: value),
    "on_late": lambda sdf: sdf.tumbling_window(1_000, on_late=wait),
    "join_asof(on_merge=...)": lambda sdf: sdf.join_asof(sdf, on_merge=wait),
    "apply_async(on_timeout=...)": lambda sdf: sdf.apply_async(wait, timeout=1_000, on_timeout=wait),
    "Retry(on_error=...)": lambda sdf: Retry(3, on_error=wait),
    "Retry(on_result=...)": lambda sdf: Retry(3, on_result=wait),
    "LookupBuffer(is_resolved=...)": lambda sdf: LookupBuffer(1_000, wait),
    "MQTTSink(retain=...)": lambda sdf: MQTTSink("id", "localhost", 1883, "root", retain=wait),
    "on_client_connect_failure": lambda sdf: WebhookSink("http://localhost", on_client_connect_failure=wait),
    "FileSource(on_error=...)": lambda sdf: BadRecords("FileSource", "orders", wait),
    "on_changes()": lambda sdf: require_listener_arguments(wait, 1, 1.0),
    "on_consumer_error": lambda sdf: application(on_consumer_error=wait),
    "on_processing_error": lambda sdf: application(on_processing_error=wait),
    "on_producer_error": lambda sdf: application(on_producer_error=wait),
    "on_message_processed": lambda sdf: application(on_message_processed=wait),
}


@pytest.mark.parametrize("define", OPERATORS.values(), ids=OPERATORS)
def test_functions_that_are_not_awaited_are_refused(define: Callable[[StreamingDataFrame], Any]) -> None:
    app = application()
    with pytest.raises(ArgumentTypeError, match=r"defined by 'async def', so its body would never run"):
        define(app.dataframe(app.topic("orders")))


def test_the_error_says_what_to_do() -> None:
    app = application()
    with pytest.raises(ArgumentTypeError) as caught:
        app.dataframe(app.topic("orders")).filter(wait)
    assert str(caught.value) == (
        "filter() needs a function that does not wait, and _wait is defined by 'async def', so its body would never run: "
        "use apply_async() for calls that wait"
    )


@pytest.mark.parametrize("function", [wait, wait_for_items, Waits(), functools.partial(wait, 1), Waits().__call__])
def test_every_kind_of_asynchronous_function_is_recognized(function: Any) -> None:
    assert is_async(function)


@pytest.mark.parametrize("function", [len, print, Waits, application, functools.partial(print), 5, None])
def test_other_objects_are_not_asynchronous(function: Any) -> None:
    assert not is_async(function)
