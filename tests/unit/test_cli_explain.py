"""Codes of errors, what `streamrt explain` says about them, and the page that is made of it."""

import inspect
import re

import pytest

from streamrt import errors
from streamrt.cli.diagnosis.explain import Explanation, read_explanations
from streamrt.errors import SinkError, StoreLockedError, StreamRTError, code_of, reference_of
from streamrt.kafka import KafkaRequestError
from streamrt.sinks.community.kinesis import KinesisStreamNotFoundError
from streamrt.testing import TopologyTestDriver
from tests.command_line import streamrt
from tests.error_codes import PAGE, make_page
from tests.unit.apps import application

CLASSES: list[type[StreamRTError]] = [
    KafkaRequestError,
    *(kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, StreamRTError)),
]
GIVEN = """
E001 StreamRTError
E101 ConfigurationError
E102 ArgumentValueError
E103 ArgumentTypeError
E104 InvalidOperationError
E105 UnfinishedWindowError
E106 ApplicationStateError
E107 ApplicationTimeoutError
E108 UnpicklableOperatorError
E201 KafkaBrokerUnavailableError
E202 KafkaRequestError
E203 TopicNotFoundError
E204 TopicCreationError
E205 TopicConfigurationError
E206 OffsetOutOfRangeError
E207 StaleTokenError
E208 TokenVersionError
E209 KafkaStartError
E301 SerializationError
E302 KeyDeserializationError
E303 ValueDeserializationError
E304 KeySerializationError
E305 ValueSerializationError
E306 IgnoreMessage
E311 SchemaError
E312 SchemaMismatchError
E313 SchemaEvolutionError
E321 SchemaRegistryError
E322 SchemaRegistryUnavailableError
E401 CatalogError
E402 CatalogConflictError
E403 TableExistsError
E404 TableNotFoundError
E405 DatabaseExistsError
E406 DatabaseNotFoundError
E407 DatabaseNotEmptyError
E408 ResultTooLargeError
E409 LookupTimeoutError
E411 SQLError
E412 SQLSyntaxError
E413 SQLAnalysisError
E414 SQLNotSupportedError
E415 QueryError
E416 QueryTimeoutError
E501 ProcessingError
E502 ProcessingTimeoutError
E503 ConsumerError
E504 MissingColumnError
E505 ColumnTypeError
E506 LookupUnavailableError
E507 NoProgressError
E601 ProducerError
E602 DeliveryTimeoutError
E603 TransactionError
E604 WriterFencedError
E701 StateError
E702 ChangelogError
E703 StoreCorruptedError
E704 StoreLockedError
E705 StoreVersionError
E706 SavepointError
E801 SinkError
E802 SinkBackpressureError
E803 SinkFencedError
E851 SourceError
E901 ControlUnavailableError
E902 ControlRefusedError
E911 StateQueryError
E912 StateNotOwnedError
E913 StateUnavailableError
E951 RunnerError
E952 JavaNotFoundError
E953 JarError
"""
"""Codes that classes have. A line stays when its class is gone: no other class may get the code."""
EXPLAINED = read_explanations()


@pytest.mark.parametrize("kind", CLASSES)
def test_each_class_has_a_code_of_its_own(kind: type[StreamRTError]) -> None:
    assert re.fullmatch(r"E\d{3}", vars(kind)["error_code"])


def test_no_code_is_given_twice() -> None:
    assert len({kind.error_code for kind in CLASSES}) == len(CLASSES)
    assert len(set(GIVEN.split()[::2])) == len(GIVEN.split()) / 2


@pytest.mark.parametrize("kind", CLASSES)
def test_a_code_stays_with_its_class(kind: type[StreamRTError]) -> None:
    assert f"\n{kind.error_code} {kind.__name__}\n" in GIVEN


def test_a_subclass_has_the_code_of_its_parent() -> None:
    class ShopError(StreamRTError):
        pass

    assert (ShopError.error_code, KinesisStreamNotFoundError.error_code) == ("E001", SinkError.error_code)


def test_only_errors_of_streamrt_have_a_code_and_a_reference() -> None:
    locked = StoreLockedError("in use")
    assert (str(locked), code_of(locked), reference_of(locked)) == ("in use", "E704", "streamrt explain E704 says more")
    assert (code_of(OSError()), reference_of(OSError(), "; ")) == (None, "")


def test_the_code_is_not_kafkas() -> None:
    assert (KafkaRequestError("no", 29).code, KafkaRequestError("no", 29).error_code) == (29, "E202")


def test_the_test_driver_raises_it() -> None:
    app = application()
    app.dataframe(app.topic("orders")).apply(lambda order: order["price"])
    with TopologyTestDriver(app) as driver, pytest.raises(StreamRTError) as caught:
        driver.pipe("orders", {})
    assert caught.value.error_code == "E501"


def test_each_class_is_explained_once() -> None:
    assert sorted(each.name for each in EXPLAINED) == sorted(kind.__name__ for kind in CLASSES)


@pytest.mark.parametrize("explained", EXPLAINED, ids=lambda each: each.code)
def test_an_explanation_is_short_and_says_what_to_do(explained: Explanation) -> None:
    lines = explained.lines()
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 100
    causes, to_do = explained.text.splitlines()
    assert causes.startswith("**Causes**: ")
    assert to_do.startswith("**What to do**: ")


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == make_page(), f"run `python -m tests.error_codes`, which writes {PAGE}"


@pytest.mark.parametrize("name", ["E704", "e704", "StoreLockedError", "storelockederror"])
def test_a_code_or_a_class_is_explained(name: str) -> None:
    shown = streamrt("explain", name)
    assert shown.code == 0
    first, second, *_ = shown.out.splitlines()
    assert (first, second) == ("E704 StoreLockedError", "Another process uses the files of a store partition.")
    assert "(docs/state-files.md)" in shown.out
    assert "**" not in shown.out


def test_without_an_argument_all_are_listed() -> None:
    head, *rows = streamrt("explain").out.splitlines()
    assert head.split() == ["CODE", "ERROR", "MEANING"]
    assert [tuple(row.split()[:2]) for row in rows] == [(each.code, each.name) for each in EXPLAINED]


def test_json() -> None:
    found = streamrt("explain", "E704", "--json").json
    assert found.keys() == {"code", "name", "summary", "group", "text"}
    assert (found["code"], found["name"], found["group"]) == ("E704", "StoreLockedError", "State")
    assert streamrt("explain", "--json").json["errors"][0]["code"] == "E001"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("E7O4", "there is no error 'E7O4'; did you mean E704 (StoreLockedError)"),
        ("SinkEror", "there is no error 'SinkEror'; did you mean E801 (SinkError)"),
        ("xyz", "there is no error 'xyz': `streamrt explain` lists all"),
        ("error_code", "there is no error 'error_code'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, sentence: str) -> None:
    assert streamrt("explain", name).sentence.startswith(f"streamrt: {sentence}")


def test_every_class_of_errors_is_exported() -> None:
    # Clients raise what they find there.
    classes = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, StreamRTError)}
    assert classes <= set(errors.__all__)
