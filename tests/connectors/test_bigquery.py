"""`BigQuerySink` against a double of the service."""

import json
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, ClassVar

import cloudpickle
import pytest
from google.auth.credentials import AnonymousCredentials

from streamrt.connectors import SinkBackpressureError
from streamrt.connectors.google.bigquery_sink import BigQuerySink, BigQuerySinkException
from streamrt.errors import ConfigurationError, SinkError
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors.bigquery_double import BigQueryDouble, problem
from tests.connectors.sinks import add
from tests.servers import free_port

TABLE = "shop.orders"


@pytest.fixture
def double() -> Iterator[BigQueryDouble]:
    double = BigQueryDouble()
    double.start()
    yield double
    double.stop()


def sink_of(double: BigQueryDouble, **settings: Any) -> BigQuerySink:
    chosen = {
        "project_id": "project",
        "location": "EU",
        "dataset_id": "shop",
        "table_name": "orders",
        "retry_timeout": 0.5,
        "credentials": AnonymousCredentials(),
        "client_options": {"api_endpoint": double.url},
        **settings,
    }
    return BigQuerySink(**chosen)


def columns_of(double: BigQueryDouble) -> dict[str, str]:
    return {field["name"]: field["type"] for field in double.tables[TABLE]["schema"]["fields"]}


@pytest.mark.slow
class TestBigQuerySink(BatchingSinkConformance):
    values: ClassVar[Any] = ({"n": 1}, {"n": 2, "text": "größer 🚆"}, {"n": 3, "list": [1, None, "\n"]}, {})
    many = 2_000

    @pytest.fixture(autouse=True)
    def place(self, double: BigQueryDouble) -> None:
        self.double = double

    def make(self) -> BigQuerySink:
        return sink_of(self.double)

    def written(self) -> list[Written]:
        found = []
        for row in self.double.rows.get(TABLE, ()):
            value = {name: column for name, column in row.items() if name not in ("timestamp", "__key")}
            if "list" in value:
                value["list"] = json.loads(value["list"])
            moment = datetime.fromisoformat(row["timestamp"])
            found.append(Written(value, row.get("__key"), round(moment.timestamp() * 1000)))
        return found


def test_dataset_table_and_columns_are_created(double: BigQueryDouble) -> None:
    sink = sink_of(double)
    sink.start()
    assert double.datasets["shop"]["location"] == "EU"
    assert double.tables[TABLE]["schema"]["fields"] == [{"name": "timestamp", "type": "TIMESTAMP", "mode": "REQUIRED"}]
    value = {
        "int": 1,
        "float": 1.5,
        "decimal": Decimal("2.5"),
        "text": "größe",
        "bytes": b"\xff",
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
        "day": date(2026, 1, 2),
        "list": [1, {"deep": Decimal("1.0")}],
        "dict": {"a": None},
        "flag": True,
        "empty": None,
    }
    add(sink, value, key="ada")
    sink.flush()
    assert columns_of(double) == {
        "timestamp": "TIMESTAMP",
        "int": "NUMERIC",
        "float": "NUMERIC",
        "decimal": "NUMERIC",
        "text": "STRING",
        "bytes": "BYTES",
        "at": "DATETIME",
        "day": "DATE",
        "list": "JSON",
        "dict": "JSON",
        "flag": "BOOLEAN",
        "__key": "STRING",
    }
    assert double.rows[TABLE] == [
        {
            "int": 1,
            "float": 1.5,
            "decimal": "2.5",
            "text": "größe",
            "bytes": "/w==",
            "at": "2026-01-02T03:04:05",
            "day": "2026-01-02",
            "list": '[1, {"deep": "1.0"}]',
            "dict": '{"a": null}',
            "flag": True,
            "__key": "ada",
            "timestamp": "1970-01-01T00:00:01.000+00:00",
        }
    ]


def test_columns_are_added_and_others_stay(double: BigQueryDouble) -> None:
    sink, other = sink_of(double), sink_of(double)
    sink.start()
    other.start()
    add(sink, {"a": 1})
    sink.flush()
    # The other task has not seen these columns.
    add(other, {"A": 2, "b": "x"}, start=1)
    other.flush()
    add(sink, {"b": "y", "c": True}, start=2)
    sink.flush()
    assert columns_of(double) == {
        "timestamp": "TIMESTAMP",
        "a": "NUMERIC",
        "__key": "BYTES",
        "b": "STRING",
        "c": "BOOLEAN",
    }
    assert len(double.rows[TABLE]) == 3


def test_two_tasks_may_add_columns_at_once(double: BigQueryDouble) -> None:
    sink = sink_of(double)
    sink.start()
    meanwhile = [True]

    def fault(method: str, last: str) -> None:
        if method == "PATCH" and meanwhile:
            meanwhile.pop()
            table = double.tables[TABLE]
            table["schema"]["fields"].append({"name": "b", "type": "STRING"})
            table["etag"] = "7"

    double.fault = fault
    add(sink, {"a": 1, "b": "x"})
    sink.flush()
    assert list(columns_of(double)) == ["timestamp", "b", "a", "__key"]
    assert len(double.rows[TABLE]) == 1


def test_repeats_have_the_same_insert_ids(double: BigQueryDouble) -> None:
    for _ in range(2):
        # Another process, after a crash.
        sink = sink_of(double)
        sink.start()
        for n in range(3):
            sink.add({"n": n}, b"key", 0, None, "o" * 200, 0, 7)
        sink.add({"n": 3}, b"key", 0, None, "orders", 0, 7)
        sink.flush()
    assert [row["n"] for row in double.rows[TABLE]] == [0, 1, 2, 3]


def test_requests_have_bounds(double: BigQueryDouble) -> None:
    sink = sink_of(double)
    sink.start()
    add(sink, *({"n": n} for n in range(501)))
    add(sink, *({"text": "x" * 2_000_000} for _ in range(3)), start=501)
    sink.flush()
    assert double.requests.count(("POST", "insertAll")) == 3
    assert len(double.rows[TABLE]) == 504


def test_a_table_that_the_user_defines_is_left_alone(double: BigQueryDouble) -> None:
    with pytest.raises(
        BigQuerySinkException, match=r"cannot use the BigQuery table project.shop.orders: there is no such"
    ):
        sink_of(double, schema_auto_update=False).start()
    double.datasets["shop"] = {}
    fields = [("timestamp", "TIMESTAMP"), ("__key", "STRING"), ("text", "STRING")]
    schema = {"fields": [{"name": name, "type": kind} for name, kind in fields]}
    double.tables[TABLE] = {
        "schema": schema,
        "etag": "1",
        "tableReference": {"projectId": "project", "datasetId": "shop", "tableId": "orders"},
    }
    sink = sink_of(double, schema_auto_update=False)
    sink.start()
    add(sink, {"text": b"abc"})
    sink.flush()
    assert double.rows[TABLE][0]["text"] == "abc"
    assert double.rows[TABLE][0]["__key"] == "key"
    add(sink, {"hidden": 1}, start=41)
    with pytest.raises(BigQuerySinkException, match=r"orders\[3\] offset 41 .*: the table has no column 'hidden'"):
        sink.flush()
    assert ("PATCH", "orders") not in double.requests


def test_a_new_column_that_is_not_known_everywhere_yet_is_waited_for(double: BigQueryDouble) -> None:
    sink = sink_of(double)
    sink.start()
    double.settled = False
    add(sink, {"a": 1})
    with pytest.raises(SinkBackpressureError, match="not known everywhere yet"):
        sink.flush()
    sink.on_paused()
    double.settled = True
    add(sink, {"a": 1})
    sink.flush()
    assert len(double.rows[TABLE]) == 1


def test_nothing_is_lost_while_the_service_is_down(double: BigQueryDouble) -> None:
    sink = sink_of(double)
    sink.start()
    add(sink, {"n": 0})
    sink.flush()
    double.stop()
    add(sink, {"n": 1}, start=1)
    with pytest.raises(SinkBackpressureError, match="does not answer"):
        sink.flush()
    sink.on_paused()
    double.start()
    add(sink, {"n": 1}, start=1)
    sink.flush()
    assert [row["n"] for row in double.rows[TABLE]] == [0, 1]


@pytest.mark.parametrize(
    "answer", [problem(503, "backendError"), problem(403, "rateLimitExceeded"), problem(502, "badGateway")]
)
def test_a_busy_service_is_bridged(double: BigQueryDouble, answer: tuple[int, Any]) -> None:
    sink = sink_of(double, retry_timeout=5)
    sink.start()
    answers = [answer, answer]
    double.fault = lambda method, last: answers.pop() if last == "insertAll" and answers else None
    add(sink, {"n": 0})
    sink.flush()
    assert len(double.rows[TABLE]) == 1


def test_a_quota_pauses_the_partition(double: BigQueryDouble) -> None:
    sink = sink_of(double)
    sink.start()
    double.fault = lambda method, last: problem(403, "quotaExceeded") if method == "PATCH" else None
    add(sink, {"n": 0})
    with pytest.raises(SinkBackpressureError, match="it is busy"):
        sink.flush()


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_reported_without_details(double: BigQueryDouble, status: int) -> None:
    double.fault = lambda method, last: problem(status, "accessDenied")
    with pytest.raises(SinkError, match=r"table project.shop.orders: it refuses the credentials") as caught:
        sink_of(double).start()
    assert "hidden" not in str(caught.value)


def test_a_wrong_host_is_named(double: BigQueryDouble) -> None:
    with pytest.raises(
        SinkError, match=r"BigQuerySink cannot use the BigQuery table project.shop.orders: it does not answer"
    ):
        sink_of(double, client_options={"api_endpoint": f"http://127.0.0.1:{free_port()}"}).start()


def test_no_credentials_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    with pytest.raises(SinkError, match="there are no credentials"):
        BigQuerySink("project", "EU", "shop", "orders").start()


def test_a_deleted_table_ends_the_application(double: BigQueryDouble) -> None:
    sink = sink_of(double)
    sink.start()
    add(sink, {"n": 1})
    sink.flush()
    sink._changed_at = None
    del double.tables[TABLE]
    add(sink, {"n": 1}, start=1)
    with pytest.raises(SinkError, match=r"orders\[3\] offsets 1 to 1 to the BigQuery table .* NotFound"):
        sink.flush()


@pytest.mark.parametrize(
    ("value", "key", "reason"),
    [
        ("hidden", b"key", "the value is a str, not a dict"),
        ({"n": "hidden"}, b"key", "answers invalid in column 'n'"),
        ({"x": {1, 2}}, b"key", "column 'x': there is no column type for a set"),
        ({"x": [float("nan"), "hidden"]}, b"key", "column 'x': the number is not finite"),
        ({"x": {"hidden": {"a": object()}}}, b"key", "column 'x': a object has no form in JSON"),
        ({"x": "hidden\ud800"}, b"key", "column 'x': the text has no form in UTF-8"),
        ({"text": b"\xff"}, b"key", "column 'text': the bytes are not UTF-8"),
        ({"timestamp": "hidden"}, b"key", "the column 'timestamp' is made by the sink"),
        ({"a": 1, "A": "hidden"}, b"key", "differ in their case only"),
        ({5: "hidden"}, b"key", "a name in the value is not text"),
        ({"x": "hidden" * 2_000_000}, b"key", "a row of BigQuery at most 10 MB"),
    ],
)
def test_a_poison_value_is_named_and_not_shown(double: BigQueryDouble, value: Any, key: Any, reason: str) -> None:
    sink = sink_of(double)
    sink.start()
    add(sink, {"n": 1, "text": "a"})
    sink.flush()
    add(sink, {"n": 2}, value, key=key, start=40)
    with pytest.raises(BigQuerySinkException, match=rf"cannot write orders\[3\] offset 41 to .*{reason}") as caught:
        sink.flush()
    assert caught.value.record == ("orders", 3, 41)
    assert "hidden" not in str(caught.value)


def test_names_from_data_change_nothing_else(double: BigQueryDouble) -> None:
    sink = sink_of(double)
    sink.start()
    add(sink, {"a) VALUES (1); DROP TABLE orders": 1})
    with pytest.raises(
        BigQuerySinkException, match=r"the columns 'a. VALUES .1.; DROP TABLE orders'.* cannot be added"
    ):
        sink.flush()
    assert list(columns_of(double)) == ["timestamp"]


def test_secrets_are_in_no_repr_and_no_pickle() -> None:
    key = '{"type": "service_account", "private_key": "hidden"}'
    sink = BigQuerySink("project", "EU", "shop", "orders", service_account_json=key)
    assert "hidden" not in f"{sink!r} {vars(sink)!r} {cloudpickle.dumps(sink)!r}"
    with pytest.raises(ConfigurationError, match="not the key of a service account") as caught:
        sink.start()
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"project_id": ""}, "project_id"),
        ({"table_name": "orders/../users"}, "table_name"),
        ({"dataset_id": 5}, "dataset_id"),
        ({"schema_auto_update": "yes"}, "schema_auto_update"),
        ({"ddl_timeout": 0}, "ddl_timeout"),
        ({"insert_timeout": "1"}, "insert_timeout"),
        ({"retry_timeout": -1}, "retry_timeout"),
        ({"service_account_json": "hidden"}, "must be a JSON object"),
        ({"colour": "red"}, "unknown arguments: colour"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], reason: str) -> None:
    settings = {"project_id": "project", "location": "EU", "dataset_id": "shop", "table_name": "orders", **arguments}
    with pytest.raises(ConfigurationError, match=reason) as caught:
        BigQuerySink(**settings)
    assert "hidden" not in str(caught.value)


def test_the_library_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"BigQuerySink needs the package google.cloud.bigquery"):
        BigQuerySink("project", "EU", "shop", "orders")
