"""Log lines as text and as JSON: what is in them, where they come from, and that no secret is."""

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from streamrt import Application, ConnectionConfig, message_context
from streamrt.common.logs import line_formatter, log_context, log_fields
from streamrt.config import configure_logging
from streamrt.errors import ConfigurationError
from streamrt.runtime.batch_context import BatchContext
from streamrt.runtime.report import Report
from streamrt.runtime.tasks.task_executor import TaskExecutor
from streamrt.secret import Secret
from streamrt.slots.worker_process import WorkerProcess
from streamrt.spark.workers.executor import work_of_worker
from streamrt.testing import TopologyTestDriver
from tests.unit.test_spark_executor import reference, worker

__all__ = ["worker"]

CANARY = "canary-71b2"
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
logger = logging.getLogger("streamrt")


class Lines:
    """Lines that were written to standard error."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def text(self) -> list[str]:
        """The lines since the last call."""
        return self._captured.readouterr().err.splitlines()

    def documents(self) -> list[dict[str, Any]]:
        """The lines since the last call, each of which is an object."""
        return [json.loads(line) for line in self.text()]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """Lines that the package's logger writes, as if it was not configured yet."""
    package = logging.getLogger("streamrt")
    before = package.handlers[:], package.level, package.propagate
    package.handlers[:] = []
    yield Lines(capsys)
    package.handlers[:], package.propagate = before[0], before[2]
    package.setLevel(before[1])


# -- The lines -------------------------------------------------------------------------------------------------------


def test_a_line_of_json_has_time_level_logger_message_and_the_exception(lines: Lines) -> None:
    configure_logging("INFO", log_format="json", group="shop")
    try:
        raise ValueError("no price")
    except ValueError:
        logging.getLogger("streamrt.kafka").exception("order %s failed: %s", 7, "a\nb \ud800 é")
    (line,) = lines.text()
    assert line.isascii()
    document = json.loads(line)
    assert UTC.fullmatch(document.pop("time"))
    assert document.pop("exception").endswith("ValueError: no price")
    assert isinstance(document.pop("process"), int)
    assert document == {
        "level": "ERROR",
        "logger": "streamrt.kafka",
        "message": "order 7 failed: a\nb \ud800 é",
        "group": "shop",
    }


def test_text_is_what_it_always_was(lines: Lines) -> None:
    configure_logging("INFO")
    with log_context({"stream": "orders"}):
        logger.info("read %d records", 3)
    (line,) = lines.text()
    assert re.fullmatch(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] \[INFO\] \[streamrt\] read 3 records", line)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_name_and_the_process_can_be_given(lines: Lines, log_format: Any) -> None:
    configure_logging("INFO", name="50% off", pid=True, log_format=log_format)
    logger.info("ready")
    (line,) = lines.text()
    assert "50% off" in line
    assert re.search(r"[ \[]\d+[],]", line)


def test_attributes_of_others_do_not_get_into_a_line() -> None:
    record = logging.makeLogRecord({"msg": "ready", "password": CANARY})
    assert CANARY not in line_formatter("json").format(record)


def test_inner_fields_replace_outer_ones_and_end_with_their_block() -> None:
    def fail() -> None:
        with log_context({"stream": "b"}):
            assert log_fields() == {"stream": "b", "partition": 1}
            raise ZeroDivisionError

    with log_context({"stream": "a", "partition": 1}):
        with pytest.raises(ZeroDivisionError):
            fail()
        assert log_fields() == {"stream": "a", "partition": 1}
    assert log_fields() == {}


def test_lines_of_a_process_with_two_groups_name_a_group_only_where_it_is_known(lines: Lines) -> None:
    Application("unused:9092", consumer_group="first", log_format="json")
    logger.info("one")
    Application("unused:9092", consumer_group="first", log_format="json")
    logger.info("two")
    Application("unused:9092", consumer_group="second", log_format="json")
    logger.info("three")
    with log_context({"group": "second"}):
        logger.info("four")
    assert [each.get("group") for each in lines.documents()] == ["first", "first", None, "second"]


def test_a_format_without_lines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigurationError, match=r"'log_format' .*STREAMRT_LOG_FORMAT.*: has no effect with loglevel=None"
    ):
        Application("unused:9092", loglevel=None, log_format="json")
    monkeypatch.setenv("STREAMRT_LOG_FORMAT", "xml")
    with pytest.raises(ConfigurationError, match="STREAMRT_LOG_FORMAT"):
        Application("unused:9092")


# -- Tasks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["micro-batch", "resident"])
def test_lines_of_a_task_name_stream_partition_batch_operator_and_record(lines: Lines, mode: Any) -> None:
    def note(error: Exception, record: Any, given: logging.Logger) -> bool:
        given.warning("skipped %s", record.value)
        return True

    def price(order: dict[str, int]) -> int:
        logger.info("at %d", message_context().offset)
        return order["price"]

    app = Application(
        "unused:9092", consumer_group="shop", log_format="json", on_processing_error=note, processing_mode=mode
    )
    app.dataframe(app.topic("orders")).apply(price).to_topic(app.topic("out"))
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", {"price": 1}, partition=3)
        driver.pipe("orders", {}, partition=3)
    found = [each for each in lines.documents() if each["message"].startswith(("at", "skipped"))]
    assert [each["message"] for each in found] == ["at 0", "at 1", "skipped {}"]
    for document, offset in zip(found, (0, 1, 1), strict=True):
        assert document["group"] == "shop"
        assert (document["stream"], document["partition"]) == ("orders", 3)
        assert (document["topic"], document["offset"]) == ("orders", offset)
        assert document["operator"].startswith("apply-1 (price)")
        assert document["batch"] >= 1
    assert found[0]["batch"] <= found[1]["batch"]
    assert log_fields() == {}


def test_lines_about_an_operator_of_a_merged_stream_name_its_record(lines: Lines) -> None:
    app = Application("unused:9092", consumer_group="shop", log_format="json", on_error={"process": "skip"})
    both = app.dataframe(app.topic("left")).concat(app.dataframe(app.topic("right")))
    both.apply(lambda value, state: 1 / value, stateful=True)
    with TopologyTestDriver(app) as driver:
        driver.pipe("right", 0, key="k", partition=1)
    (found,) = [each for each in lines.documents() if "skipping it" in each["message"]]
    assert (found["topic"], found["partition"], found["offset"]) == ("right", 1, 0)
    assert found["operator"].startswith("apply-")


def test_each_application_of_a_worker_has_its_format(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(logging.getLogger("streamrt"), "propagate", True)

    def write(tasks: TaskExecutor, context: BatchContext) -> Report:
        logger.info("at work")
        return Report()

    alone = reference("shop", log_format="json")
    list(work_of_worker(alone, BatchContext(), write))
    list(work_of_worker(reference("words"), BatchContext(), write))
    list(work_of_worker(alone, BatchContext(), write))
    first, words, again = lines.text()
    assert json.loads(first)["group"] == "shop"
    assert re.fullmatch(r"\[.*\] \[INFO\] \[streamrt\] at work", words)
    # Two applications are in the worker now.
    assert "group" not in json.loads(again)
    assert len(WorkerProcess._kept) == 2


def test_a_worker_whose_modules_set_up_logging_keeps_theirs(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    own = logging.StreamHandler()
    own.setFormatter(logging.Formatter("mine: %(message)s"))
    monkeypatch.setattr(root, "handlers", [own])
    monkeypatch.setattr(logging.getLogger("streamrt"), "propagate", True)

    def write(tasks: TaskExecutor, context: BatchContext) -> Report:
        logger.info("at work")
        return Report()

    list(work_of_worker(reference("shop", log_format="json"), BatchContext(), write))
    assert lines.text() == ["mine: at work"]


# -- Secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secret_is_in_a_line(lines: Lines, log_format: Any) -> None:
    connection = ConnectionConfig(
        bootstrap_servers="localhost:1",
        security_protocol="sasl_plaintext",
        sasl_mechanism="PLAIN",
        sasl_username="app",
        sasl_password=CANARY,
    )
    password = Secret(CANARY)

    def fail(value: Any) -> Any:
        hidden = password.reveal()
        logger.warning("with %s", password)
        raise RuntimeError(f"{len(hidden)} characters")

    def note(error: Exception, record: Any, given: logging.Logger) -> bool:
        given.error("failed", exc_info=error, stack_info=True, extra={"password": password})
        return True

    app = Application(
        connection, consumer_group="shop", loglevel="DEBUG", log_format=log_format, on_processing_error=note
    )
    logger.debug("%s %s %s", app, app.config, connection)
    app.dataframe(app.topic("orders")).apply(fail)
    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", {"price": 1})
    written = "\n".join(lines.text())
    assert "11 characters" in written
    assert "Secret(***)" in written
    assert CANARY not in written


@pytest.fixture(scope="module")
def handlers_of_tests() -> list[bool]:
    """Whether each test found a handler; the application, which adds one, is shared by them."""
    Application("unused.invalid:9092", consumer_group="shared")
    return []


@pytest.mark.parametrize("number", range(2))
def test_what_a_fixture_of_a_module_sets_up_is_gone_for_the_next_test(
    number: int, handlers_of_tests: list[bool]
) -> None:
    handlers_of_tests.append(bool(logger.handlers))
    assert handlers_of_tests == [True, False][: len(handlers_of_tests)]
