"""`on_error`: records that fail end the application, are skipped, or become dead letters."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Application, DeadLetters, State, TopicConfig
from streamrt.connectors import BatchingSink, SinkBatch
from streamrt.errors import ConfigurationError, SinkError, StreamRTError
from streamrt.records import Headers
from streamrt.secret import Secret, accept_secrets, collect_secrets
from streamrt.testing import TopologyTestDriver
from streamrt.topics import DeadLetter
from streamrt.topics.dead_letters import attempts_of, without_error_headers

GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
LETTERS = "dead-letters__g"


def application(on_error: Any, guarantee: Any = "at-least-once", **settings: Any) -> Application:
    return Application(
        "unused:9092",
        consumer_group="g",
        on_error=on_error,
        processing_guarantee=guarantee,
        auto_offset_reset="earliest",
        loglevel=None,
        **settings,
    )


def letters(driver: TopologyTestDriver, topic: str = LETTERS) -> list[tuple[Any, Any, DeadLetter]]:
    found = []
    for record in driver.read(topic):
        why = DeadLetter.of(record.headers)
        assert why is not None
        found.append((record.key, record.value, why))
    return found


def price(order: dict[str, Any]) -> float:
    total: float = order["price"] * 2
    return total


@GUARANTEES
def test_records_that_fail_in_an_operator_become_dead_letters(guarantee: str) -> None:
    app = application(DeadLetters(), guarantee)
    app.dataframe(app.topic("orders")).apply(price).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", {"price": 1}, key=b"a")
        driver.pipe_bytes("orders", b'{"cost": 2}', key=b"b", timestamp=1_234, headers=[("trace", b"x")], partition=3)
        driver.pipe("orders", {"price": 3}, key=b"c")
        assert [record.value for record in driver.read("out")] == [2, 6]
        (record,) = driver.read(LETTERS)
    assert (record.key, record.value, record.timestamp) == (b"b", b'{"cost": 2}', 1_234)
    assert without_error_headers(record.headers) == [("trace", b"x")]
    why = DeadLetter.of(record.headers)
    assert why is not None
    assert why.operator.startswith("apply-1 (price) defined at test_dead_letters.py:")
    assert why == DeadLetter("process", "KeyError", "'price'", why.operator, "orders", 3, 0, "g")


@GUARANTEES
def test_bytes_that_no_deserializer_reads_stay_as_they_are(guarantee: str) -> None:
    app = application({"deserialize": DeadLetters("unread", TopicConfig(2, 1))}, guarantee)
    app.dataframe(app.topic("orders")).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe_bytes("orders", b"{no json", key=b"\xff")
        ((key, value, why),) = letters(driver, "unread")
        assert driver.read("out") == []
    assert (key, value) == (b"\xff", b"{no json")
    assert (why.stage, why.error_class) == ("deserialize", "streamrt.errors.ValueDeserializationError")
    assert app.topic_manager.topics["unread"].config == TopicConfig(2, 1)


def test_a_record_with_an_output_that_no_serializer_takes_is_one_dead_letter() -> None:
    app = application({"produce": DeadLetters()})
    sdf = app.dataframe(app.topic("orders")).apply(lambda order: [1, {2}, {3}, 4], expand=True)
    sdf.to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", {"id": 7})
        ((_, value, why),) = letters(driver)
        assert driver.read("out") == []
    assert value == b'{"id":7}'
    assert (why.stage, why.error_class) == ("produce", "streamrt.errors.ValueSerializationError")


def test_what_is_skipped_is_said_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    app = application("skip")
    sdf = app.dataframe(app.topic("orders"))
    sdf.apply(lambda order: [1, {2}, 3] if order["id"] else 1 / 0, expand=True).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        for number in (0, 1, 0, 0):
            driver.pipe("orders", {"id": number})
        driver.pipe_bytes("orders", b"{")
        assert [record.value for record in driver.read("out")] == [1, 3]
    told = [message for message in caplog.messages if "skipping it" in message]
    assert [message.partition(" failed")[0] for message in told] == [
        "orders[0] at offset 0",
        "orders[0] at offset 1",
        "orders[0] at offset 4",
    ]
    assert "apply-1 (<lambda>, expand) defined at test_dead_letters.py" in told[0]
    assert "ZeroDivisionError: division by zero" in told[0]


def test_a_callback_decides_first() -> None:
    app = application(DeadLetters(), on_processing_error=lambda error, record, logger: record.value == {"skip": True})
    app.dataframe(app.topic("orders")).apply(price).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", {"skip": True})
        driver.pipe("orders", {"skip": False})
        assert [value for _, value, _ in letters(driver)] == [b'{"skip":false}']


def test_stages_without_a_policy_end_the_application() -> None:
    app = application({"deserialize": "skip"})
    app.dataframe(app.topic("orders")).apply(price).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe_bytes("orders", b"{")
        with pytest.raises(StreamRTError, match="KeyError"):
            driver.pipe("orders", {})


class Picky(BatchingSink):
    """A sink that rejects values, and says which."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[Any] = []

    def write(self, batch: SinkBatch) -> None:
        for item in batch:
            if item.value < 0:
                raise SinkError(f"no negative value: {item.value}", (batch.topic, batch.partition, item.offset))
        self.values += [item.value for item in batch]


@GUARANTEES
@pytest.mark.parametrize("mode", ["micro-batch", "resident"])
@pytest.mark.parametrize("policy", ["skip", "keep", "fail"])
def test_values_that_a_sink_rejects(guarantee: str, mode: Any, policy: Any) -> None:
    app = application({"sink": DeadLetters() if policy == "keep" else policy}, guarantee, processing_mode=mode)
    sink, calls = Picky(), []

    def count(value: int, state: State) -> int:
        calls.append(value)
        state.set("n", state.get("n", 0) + 1)
        return value

    app.dataframe(app.topic("numbers")).apply(count, stateful=True).sink(sink)
    with TopologyTestDriver(app) as driver:
        driver.pipe("numbers", 1, key=b"k")
        if policy == "fail":
            with pytest.raises(SinkError, match="no negative value: -2"):
                driver.pipe("numbers", -2, key=b"k")
            return
        for number in (-2, 3, -4, 5):
            driver.pipe("numbers", number, key=b"k")
        assert sink.values == [1, 3, 5]
        # What a sink rejects leaves no trace in state.
        assert driver.state("numbers", b"k").get("n") == 3
        if policy == "keep":
            found = letters(driver)
            assert [(value, why.stage, why.offset) for _, value, why in found] == [
                (b"-2", "sink", 1),
                (b"-4", "sink", 3),
            ]


def test_a_sink_that_rejects_a_record_twice_ends_the_application() -> None:
    class Stubborn(BatchingSink):
        def write(self, batch: SinkBatch) -> None:
            raise SinkError("never", (batch.topic, batch.partition, 0))

    app = application({"sink": "skip"})
    app.dataframe(app.topic("numbers")).sink(Stubborn())
    with TopologyTestDriver(app) as driver:
        driver.pipe("numbers", 1)
        with pytest.raises(SinkError, match="never"):
            driver.pipe("numbers", 2)


def test_an_application_does_not_read_its_own_dead_letters() -> None:
    app = application(DeadLetters("again"))
    app.dataframe(app.topic("again")).to_topic(app.topic("out"))
    with pytest.raises(ConfigurationError, match="reads again, the topic of its own dead letters"):
        TopologyTestDriver(app)


def test_replayed_records_count_their_attempts() -> None:
    app = application(DeadLetters())
    app.dataframe(app.topic("orders")).apply(price).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        headers: Headers = [("trace", b"x")]
        for attempt in (1, 2, 3):
            driver.pipe("orders", {}, headers=headers)
            (record,) = driver.read(LETTERS)
            assert DeadLetter.of(record.headers).attempt == attempts_of(record.headers) == attempt  # type: ignore[union-attr]
            headers = without_error_headers(record.headers, keep_attempt=True)
            assert headers == [("trace", b"x"), ("streamrt.error.attempt", str(attempt).encode())]


def test_no_secret_is_in_the_headers_or_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    password = Secret("canary-77ab")
    # As it comes to the processes of tasks.
    with collect_secrets() as collected:
        pickle.dumps(password)
    accept_secrets(collected)

    def log_in(order: Any) -> None:
        raise ConnectionError(f"cannot log in with {password} {password.reveal()!r}")

    app = application(DeadLetters())
    app.dataframe(app.topic("orders")).apply(log_in)
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", {"id": 1})
        (record,) = driver.read(LETTERS)
    why = DeadLetter.of(record.headers)
    assert why is not None
    assert why.message == "cannot log in with Secret(***) '***'"
    assert "canary" not in f"{record} {caplog.text}"
    assert "cannot log in with Secret(***) '***'" in caplog.text


def test_long_messages_are_cut_and_odd_ones_can_be_read() -> None:
    why = DeadLetter("process", "E", "x" * 9_000 + "\ud800", "", "t", 0, 1, "g")
    read = DeadLetter.of(why.headers(None))
    assert read is not None
    assert read.message == "x" * 2_000
    odd = DeadLetter.of(DeadLetter("process", "E", "\ud800", "", "t", 0, 1, "g").headers(None))
    assert odd is not None
    assert odd.message == "\\ud800"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("ignore", "on_error is 'ignore': use 'fail', 'skip', DeadLetters()"),
        ({"read": "skip"}, "'read' is not a stage; the stages are deserialize, process, produce, sink"),
        ({"process": None}, "on_error is None"),
        (lambda: DeadLetters("a b"), "needs the name of a topic, not 'a b'"),
        (lambda: DeadLetters(config=3), "needs a TopicConfig, not int"),  # type: ignore[arg-type]
    ],
)
def test_wrong_policies_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        application(wrong() if isinstance(wrong, Callable) else wrong)  # type: ignore[arg-type]
