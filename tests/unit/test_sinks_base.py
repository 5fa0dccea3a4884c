"""The base classes of sinks and their batches."""

import json
import pickle
from typing import Any

import cloudpickle
import pytest

from streamrt import Application
from streamrt.connectors import (
    BaseSink,
    BatchingSink,
    DriverSink,
    ListSink,
    SinkBackpressureError,
    SinkBatch,
    SinkItem,
    SparkSink,
)
from streamrt.errors import ConfigurationError, InvalidOperationError, SinkError
from streamrt.runtime.tasks.chain.task_sinks import close_sink
from streamrt.testing import TopologyTestDriver


class Forgetful(BatchingSink):
    """Does not call super().__init__()."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def write(self, batch: SinkBatch) -> None:
        self.batches.append([item.value for item in batch])


def batch_of(*values: Any, topic: str = "orders", partition: int = 0) -> SinkBatch:
    batch = SinkBatch(topic, partition)
    for offset, value in enumerate(values):
        batch.append(value, b"key", 1_000 + offset, None, offset)
    return batch


def add(sink: BaseSink, value: Any, offset: int = 0, partition: int = 0) -> None:
    sink.add(value, b"key", 1_000, None, "orders", partition, offset)


def test_a_sink_without_super_init_works() -> None:
    sink = Forgetful()
    sink.start()
    add(sink, 1)
    add(sink, 2)
    sink.flush()
    assert sink.batches == [[1, 2]]


def test_two_sinks_of_a_class_share_no_batches() -> None:
    one, other = Forgetful(), Forgetful()
    add(one, 1)
    other.flush()
    assert other.batches == []


def test_flush_keeps_the_batches_that_were_not_written() -> None:
    class Picky(Forgetful):
        def write(self, batch: SinkBatch) -> None:
            if batch.partition == 1 and not self.batches[1:]:
                self.batches.append(["refused"])
                raise SinkBackpressureError(5)
            super().write(batch)

    sink = Picky()
    for partition in (0, 1, 2):
        add(sink, partition, partition=partition)
    with pytest.raises(SinkBackpressureError):
        sink.flush()
    assert [batch.partition for batch in sink.take_batches()] == [1, 2]


def test_batch() -> None:
    batch = SinkBatch("orders", 3)
    assert batch.empty()
    assert len(batch) == batch.size == 0
    assert bool(batch)
    batch.append("a", None, 5, [("h", b"1")], 10)
    batch.append("b", None, 6, None, 10)
    batch.append("c", None, 7, None, 12)
    assert next(iter(batch)) == SinkItem("a", None, 5, [("h", b"1")], 10)
    assert (batch.topic, batch.partition, batch.start_offset, batch.last_offset) == ("orders", 3, 10, 12)
    again = pickle.loads(pickle.dumps(batch))
    assert list(again) == list(batch)
    assert repr(batch) == "SinkBatch('orders', 3, 3 items)"
    batch.clear()
    assert batch.empty()


@pytest.mark.parametrize("name", ["first_offset", "last_offset", "start_offset"])
def test_an_empty_batch_has_no_offsets(name: str) -> None:
    with pytest.raises(InvalidOperationError, match=r"orders\[3\] is empty"):
        getattr(SinkBatch("orders", 3), name)


@pytest.mark.parametrize(("n", "sizes"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_chunks(n: int, sizes: list[int]) -> None:
    batch = batch_of(*range(5))
    chunks = list(batch.iter_chunks(n))
    assert [len(chunk) for chunk in chunks] == sizes
    assert [item.value for chunk in chunks for item in chunk] == list(range(5))


def test_no_chunks() -> None:
    assert list(SinkBatch("orders", 0).iter_chunks(3)) == []
    with pytest.raises(ConfigurationError, match="at least 1"):
        batch_of(1).iter_chunks(0)


def test_the_error_of_setup_leaves_without_a_callback(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Forgetful):
        def setup(self) -> None:
            raise ConnectionError("no route")

    with pytest.raises(ConnectionError):
        Broken().start()
    # The part that ends the application says it.
    assert not caplog.records


def test_a_callback_that_raises_replaces_the_error() -> None:
    class Broken(BatchingSink):
        def setup(self) -> None:
            raise ConnectionError("no route")

        def write(self, batch: SinkBatch) -> None: ...

    def refuse(error: Exception) -> None:
        raise SinkError("the warehouse is closed") from error

    with pytest.raises(SinkError, match="closed"):
        Broken(on_client_connect_failure=refuse).start()


class TestList:
    def test_values(self) -> None:
        sink = ListSink()
        sink.write_batches([batch_of(1, {"a": 2}), batch_of(None)])
        assert sink == [1, {"a": 2}, None]
        assert isinstance(sink[1:], ListSink)

    def test_it_begins_with_an_iterable(self) -> None:
        sink = ListSink([1, 2], metadata=False)
        sink.write(batch_of(3))
        assert list(sink) == [1, 2, 3]

    def test_metadata(self) -> None:
        sink = ListSink(metadata=True)
        sink.add({"a": 1}, b"k", 5, [("x", b"y")], "t", 2, 3)
        sink.add("text", None, 6, None, "t", 2, 4)
        sink.flush()
        common = {"_topic": "t", "_partition": 2}
        assert sink == [
            {"_key": b"k", "_timestamp": 5, "_headers": [("x", b"y")], **common, "_offset": 3, "a": 1},
            {"_key": None, "_timestamp": 6, "_headers": None, **common, "_offset": 4, "value": "text"},
        ]

    def test_tasks_get_no_values(self) -> None:
        sink = ListSink([lambda: 1], metadata=True)
        copy = pickle.loads(cloudpickle.dumps(sink))
        assert copy == []
        add(copy, 5)
        assert [list(batch) for batch in copy.take_batches()] == [[SinkItem(5, b"key", 1_000, None, 0)]]
        assert len(sink) == 1

    def test_copies_have_the_values(self) -> None:
        import copy

        sink = ListSink([{"a": [1]}])
        twin = copy.deepcopy(sink)
        assert twin == sink
        twin[0]["a"].append(2)
        assert sink == [{"a": [1]}]
        assert copy.copy(sink) == sink


class TestSpark:
    def test_plain_rows(self) -> None:
        batch = SinkBatch("orders", 1)
        batch.append({"n": 1, "text": "ü"}, b"\xff", 5, [("a", b"b"), ("bad", b"\xff"), ("none", None)], 7)
        batch.append(None, "key", 6, [], 8)
        batch.append([1], {"id": 1}, 6, None, 9)
        rows, schema = SparkSink(print).rows([batch])
        assert schema.startswith("key BINARY, value STRING")
        assert [column.split()[0] for column in schema.split(", ")] == list(rows[0])
        assert [row["key"] for row in rows] == [b"\xff", b"key", b'{"id":1}']
        assert [row["value"] for row in rows] == ['{"n":1,"text":"ü"}', "null", "[1]"]
        assert [row["headers"] for row in rows][1:] == [None, None]
        assert json.loads(rows[0]["headers"]) == [["a", "b"], ["bad", {"base64": "/w=="}], ["none", None]]
        assert {(row["topic"], row["partition"]) for row in rows} == {("orders", 1)}

    def test_rows_with_a_schema(self) -> None:
        sink = SparkSink(print, schema="n INT", metadata=True)
        rows, schema = sink.rows([batch_of({"n": 1}), batch_of({"n": 2}, partition=1)])
        assert schema == (
            "n INT, _key BINARY, _timestamp BIGINT, _headers STRING, _topic STRING, _partition INT, _offset BIGINT"
        )
        assert [column.split()[0] for column in schema.split(", ")] == list(rows[0])
        assert [(row["n"], row["_partition"], row["_offset"]) for row in rows] == [(1, 0, 0), (2, 1, 0)]

    def test_a_function_with_two_parameters_gets_the_offsets(self) -> None:
        class Frames:
            """Makes lists instead of DataFrames."""

            def createDataFrame(self, data: Any, schema: Any = None) -> Any:  # noqa: N802
                return data

        calls: list[tuple[int, Any]] = []
        sink = SparkSink(lambda frame, offsets: calls.append((len(frame), offsets)))
        sink.use(Frames())
        ticks = batch_of({"n": 3}, partition=2)
        ticks.clear()
        ticks.append({"n": 3}, None, 0, None, -7)
        sink.write_batches([batch_of({"n": 1}, {"n": 2}), batch_of({"n": 2}, partition=1), ticks])
        assert calls == [(4, {("orders", 0): (0, 2), ("orders", 1): (0, 1)})]
        plain: list[int] = []
        for function in (
            lambda frame, mode="append": plain.append(len(frame)),
            lambda *frames: plain.append(len(frames)),
        ):
            sink = SparkSink(function)
            sink.use(Frames())
            sink.write_batches([batch_of({"n": 1})])
        assert plain == [1, 1]

    def test_values_that_do_not_fit(self) -> None:
        with pytest.raises(SinkError, match=r"got a int from orders\[0\] offset 1"):
            SparkSink(print, schema="n INT").rows([batch_of({"n": 1}, 5)])
        with pytest.raises(SinkError, match=r"the value of orders\[0\] offset 0 has no JSON form"):
            SparkSink(print).rows([batch_of({1, 2})])

    def test_one_frame_for_a_micro_batch(self) -> None:
        class Session:
            def createDataFrame(self, data: Any, schema: Any = None) -> Any:  # noqa: N802
                return ("frame", data, schema)

        frames: list[Any] = []
        sink = SparkSink(frames.append, schema="n INT")
        sink.use(Session())
        sink.write_batches([batch_of({"n": 1}), batch_of({"n": 2}, partition=1)])
        sink.write_batches([])
        assert frames == [("frame", [{"n": 1}, {"n": 2}], "n INT")]

    def test_without_a_session(self) -> None:
        with pytest.raises(InvalidOperationError, match="no Spark session"):
            SparkSink(print).write(batch_of(1))

    def test_the_function_stays_at_home(self) -> None:
        from threading import Lock

        lock = Lock()
        sink = SparkSink(lambda frame: lock.acquire())
        copy = pickle.loads(cloudpickle.dumps(sink))
        add(copy, 1)
        assert len(copy.take_batches()) == 1

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"write": 5}, "give a function"),
            ({"write": print, "schema": " "}, "give DDL"),
            ({"write": print, "metadata": True}, "needs a schema"),
        ],
    )
    def test_wrong_parameters(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            SparkSink(**arguments)


class Closed(Forgetful):
    """Notes when it is closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


class TestClose:
    def test_sinks_are_closed_at_the_end(self) -> None:
        class Unclosable(Closed):
            def close(self) -> None:
                super().close()
                raise OSError("the connection is gone")

        class InDriver(DriverSink):
            closed = 0

            def write(self, batch: SinkBatch) -> None: ...

            def close(self) -> None:
                self.closed += 1

        sinks: list[Any] = [Unclosable(), Closed(), InDriver()]
        app = Application(broker_address="unused:9092", consumer_group="shop")
        orders = app.dataframe(app.topic("orders"))
        for sink in sinks:
            orders.sink(sink)
        with TopologyTestDriver(app) as driver:
            driver.pipe("orders", {"n": 1})
            assert [sink.closed for sink in sinks] == [0, 0, 0]
        assert [sink.closed for sink in sinks] == [1, 1, 1]
        driver.close()
        assert [sink.closed for sink in sinks] == [1, 1, 1]

    def test_an_error_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        class Unclosable(Forgetful):
            def close(self) -> None:
                raise OSError("the connection is gone")

        close_sink(Unclosable())
        assert caplog.messages == ["the sink Unclosable could not be closed: OSError: the connection is gone"]
