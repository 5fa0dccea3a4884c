"""The sink of Neo4j, against a server."""

import functools
import importlib.util
import logging
import pickle
from collections.abc import Iterator
from typing import Any, ClassVar

import cloudpickle
import neo4j
import pytest

from streamrt import Application
from streamrt.connectors import BatchingSink, Neo4jSink, SinkBackpressureError
from streamrt.connectors.retries import Retries
from streamrt.connectors.stores import neo4j_sink
from streamrt.errors import ConfigurationError, SinkError
from streamrt.secret import collect_secrets
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import BatchingSinkConformance, Written
from tests.connectors import sinks
from tests.connectors.neo4j_server import PASSWORD, neo4j_server
from tests.connectors.proxy import Proxy, proxy
from tests.support import LONG

pytestmark = pytest.mark.skipif(not LONG, reason="Neo4j costs half a minute of processor time; make test-long runs it")


MERGE = "MERGE (o:Order {id: __id}) SET o.n = event.n"


class Graph:
    """The server, a way to it that can be closed, and a client of the tests."""

    def __init__(self, way: Proxy, driver: Any) -> None:
        self.way, self.driver = way, driver

    def sink(self, query: str = MERGE, **settings: Any) -> Any:
        given = {"username": "neo4j", "password": PASSWORD, **settings}
        sink = Neo4jSink("127.0.0.1", self.way.port, cypher_query=query, **given)
        sink._retries = Retries(first_wait_s=0.001, retry_after_s=3)
        return sink

    def rows(self, query: str) -> list[Any]:
        """Return the rows of a query; those of one column as they are."""
        rows = [list(record.values()) for record in self.driver.execute_query(query).records]
        return [row[0] if len(row) == 1 else row for row in rows]


@pytest.fixture(scope="module")
def running() -> Iterator[Graph]:
    with (
        neo4j_server() as port,
        proxy(port) as way,
        neo4j.GraphDatabase.driver(f"bolt://127.0.0.1:{port}", auth=("neo4j", PASSWORD)) as driver,
    ):
        driver.execute_query("CREATE CONSTRAINT FOR (o:Order) REQUIRE o.id IS UNIQUE")
        yield Graph(way, driver)


@pytest.fixture
def graph(running: Graph) -> Graph:
    running.driver.execute_query("MATCH (n) DETACH DELETE n")
    return running


batch_of = functools.partial(sinks.batch_of, headers=[("h", b"\xff"), ("t", b"text")])


class TestNeo4jSink(BatchingSinkConformance):
    many = 2_000
    values: ClassVar[Any] = ({"n": 1}, {"n": 2, "text": "größer 🚆"}, {"n": 3, "list": [1, 2]}, {"text": "a'\n\"b"}, {})

    @pytest.fixture(autouse=True)
    def destination(self, graph: Graph) -> None:
        self.graph = graph

    def make(self) -> BatchingSink:
        # There is no order of nodes but one that is counted, for each row or for each chunk, as the planner likes.
        sink: BatchingSink = self.graph.sink(
            "MERGE (c:Counter) SET c.n = coalesce(c.n, 0) + 1 "
            "CREATE (o:Value) SET o = event, o.number = c.n, o.offset = __offset, o.partition = __partition, "
            "o.topic = __topic, o.timestamp = __timestamp",
            chunk_size=700,
        )
        return sink

    def written(self) -> list[Written]:
        found = self.graph.rows("MATCH (o:Value) RETURN properties(o) ORDER BY o.number, o.offset")
        own = ("number", "offset", "partition", "topic", "timestamp")
        return [
            Written(
                {name: field for name, field in row.items() if name not in own},
                timestamp=row["timestamp"],
                topic=row["topic"],
                partition=row["partition"],
                offset=row["offset"],
            )
            for row in found
        ]


def test_a_graph_grows(graph: Graph) -> None:
    sink = graph.sink(
        """
        MERGE (p:Person {name: event.name.first})
        SET p.age = __value.age
        MERGE (c:City {name: event.city})
        MERGE (p)-[:LIVES_IN]->(c)
        """
    )
    people = [
        {"name": {"first": "Ada"}, "age": 36, "city": "London"},
        {"name": {"first": "Grace"}, "age": 45, "city": "New York"},
        {"name": {"first": "Ada"}, "age": 37, "city": "London"},
    ]
    for _ in range(2):
        sink.write(batch_of(*people))
    query = "MATCH (p:Person)-[:LIVES_IN]->(c:City) RETURN p.name, p.age, c.name ORDER BY p.name"
    assert graph.rows(query) == [["Ada", 37, "London"], ["Grace", 45, "New York"]]


def test_records_have_metadata(graph: Graph) -> None:
    query = """CREATE (m:Metadata) SET m.key = __key, m.h = __header.h, m.t = __header.t, m.timestamp = __timestamp,
        m.topic = __topic, m.partition = __partition, m.offset = __offset, m.id = __id, m.value = __value"""
    graph.sink(query).write(batch_of("x", "y", keys=["ada", b"\xff"]))
    first, second = graph.rows("MATCH (m:Metadata) RETURN properties(m) ORDER BY m.offset")
    assert first == {
        "key": "ada",
        "h": b"\xff",
        "t": "text",
        "timestamp": 1_000,
        "topic": "orders",
        "partition": 0,
        "offset": 40,
        "id": "orders/0/40/0",
        "value": "x",
    }
    assert second["key"] == b"\xff"


def test_each_value_once(graph: Graph) -> None:
    sink = graph.sink()
    for _ in range(2):
        sink.write(batch_of(*({"n": n} for n in range(5))))
    assert graph.rows("MATCH (o:Order) RETURN o.n ORDER BY o.n") == list(range(5))


def test_values_are_no_cypher(graph: Graph) -> None:
    text = "'}) MATCH (n) DETACH DELETE n //"
    graph.sink().write(batch_of({"n": 1}))
    graph.sink("MERGE (p:Person {name: event.name})").write(batch_of({"name": text}, keys=[text]))
    assert graph.rows("MATCH (p:Person) RETURN p.name") == [text]
    assert graph.rows("MATCH (o:Order) RETURN o.n") == [1]


@pytest.mark.parametrize("host", ["127.0.0.1", "no.such.host.invalid"])
def test_a_wrong_host(host: str) -> None:
    sink = Neo4jSink(host, 1, "neo4j", "top-secret", MERGE)
    with pytest.raises(SinkError, match=rf"^Neo4jSink cannot reach the home database of Neo4j at {host}:1: .*{host}"):
        sink.start()


def test_a_wrong_password(graph: Graph) -> None:
    with pytest.raises(SinkError, match=r"cannot use the home database .*: it refuses the credentials$") as caught:
        graph.sink(password="top-secret").start()
    assert "top-secret" not in repr(caught.value)
    passwords = ["top-secret", PASSWORD]
    graph.sink(password=lambda: passwords.pop(0)).write(batch_of({"n": 1}))
    assert passwords == []


def test_a_missing_database(graph: Graph) -> None:
    graph.sink(database="neo4j").start()
    with pytest.raises(SinkError, match=r"cannot use database nope of Neo4j at .*: it answers .*DatabaseNotFound"):
        graph.sink(database="nope").start()


@pytest.mark.parametrize(
    ("query", "words"),
    [("MERGEX (p)", "Invalid input 'MERGEX'"), ("SET p.n = 1", "Variable `p` not defined")],
)
def test_a_wrong_query(graph: Graph, query: str, words: str) -> None:
    with pytest.raises(SinkError, match=f"^Neo4jSink cannot run its query in the home database .*: {words}"):
        graph.sink(query).start()


@pytest.mark.slow
def test_a_server_that_goes_away(graph: Graph, caplog: pytest.LogCaptureFixture) -> None:
    sink = graph.sink("MERGE (o:Order {id: __id}) SET o.n = event.n", chunk_size=300)
    sink.start()
    values = [{"n": n, "text": "x" * 100} for n in range(1_000)]
    graph.way.close_after(150_000)
    try:
        with (
            caplog.at_level(logging.INFO, "streamrt"),
            pytest.raises(
                SinkBackpressureError, match=r"write of orders\[0\] to the home .* failed, also when it was repeated"
            ) as caught,
        ):
            sink.write(batch_of(*values))
        assert caught.value.retry_after == 3
        # A chunk is one transaction.
        assert graph.rows("MATCH (o:Order) RETURN count(o)")[0] in (300, 600)
    finally:
        graph.way.open()
    sink.write(batch_of(*values))
    assert graph.rows("MATCH (o:Order) RETURN o.n ORDER BY o.n") == list(range(1_000))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"n": {"inner": "secret-value"}}, "its query fails with Neo.ClientError.Statement.TypeError"),
        (
            {"id": "twice", "n": "secret-value"},
            "its query fails with Neo.ClientError.Schema.ConstraintValidationFailed",
        ),
        ({"n": {"secret-value"}}, "write column 'n' of orders[0] at offset 47"),
        ({"a": 1, "n": 2**70}, "write column 'n' of orders[0] at offset 47"),
        ({"text": "secret-value\ud800"}, "write column 'text' of"),
        ({5: "secret-value"}, "write column 5 of"),
        (object(), "Neo4j has no such type or number (ValueError)"),
    ],
)
def test_what_cannot_be_written(graph: Graph, value: Any, words: str) -> None:
    graph.driver.execute_query("CREATE (:Order {id: 'twice'})")
    sink = graph.sink("CREATE (o:Order {id: coalesce(event.id, __id)}) SET o.n = event.n")
    values: list[Any] = [{"n": n} for n in range(20)]
    values[7] = value
    with pytest.raises(SinkError) as caught:
        sink.write(batch_of(*values))
    assert words in str(caught.value)
    assert "orders[0] at offset 47 to the home database of Neo4j" in str(caught.value)
    assert "secret-value" not in str(caught.value) + repr(caught.value.__cause__)
    # What came before it is not written either, and the sink can go on.
    assert graph.rows("MATCH (o:Order) RETURN o.id") == ["twice"]
    sink.write(batch_of({"n": 1}))


def test_secrets_stay_hidden(graph: Graph) -> None:
    sink = graph.sink(user_agent="of-an-agent")
    with collect_secrets() as collected:
        data = cloudpickle.dumps(sink)
    for text in (data, repr(sink).encode(), repr(vars(sink)).encode()):
        assert PASSWORD.encode() not in text
        assert b"of-an-agent" not in text
    assert PASSWORD in collected.values()
    again = pickle.loads(data)
    again.start()
    again.write(batch_of({"n": 1}))
    assert graph.rows("MATCH (o:Order) RETURN o.n") == [1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"host": ""}, "host"),
        ({"port": 0}, "port"),
        ({"username": None}, "username"),
        ({"password": None}, "password"),
        ({"password": 5}, "password"),
        ({"cypher_query": ""}, "cypher_query"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"database": ""}, "database"),
        ({"scheme": "http"}, "scheme"),
        ({"no_such_setting": "secret-value"}, "unsupported settings among host, no_such_setting"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], words: str) -> None:
    given = {"host": "localhost", "port": 7687, "username": "ada", "password": "pw", "cypher_query": MERGE, **arguments}
    with pytest.raises(ConfigurationError, match=words) as caught:
        Neo4jSink(**given)
    assert "secret-value" not in str(caught.value)


def test_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"Neo4jSink needs the package neo4j: run pip install .*\[neo4j\]"):
        Neo4jSink("localhost", 7687, "ada", "pw", MERGE)


def test_at_the_end_of_a_dataframe(graph: Graph) -> None:
    app = Application(broker_address="unused:9092", consumer_group="shop")
    orders = app.topic("orders", key_serializer="str")
    app.dataframe(orders).sink(graph.sink("MERGE (o:Order {id: __key}) SET o.n = event.n"))
    with TopologyTestDriver(app) as driver:
        driver.pipe(orders, {"n": 5}, key="ada")
    assert graph.rows("MATCH (o:Order) RETURN o.id, o.n") == [["ada", 5]]


def test_a_server_that_hangs_in_the_middle_pauses_the_partition(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neo4j_sink, "_GRACE_S", 1.0)
    sink = graph.sink(timeout=1.0)
    sink.start()
    sinks.fill(sink).flush()
    graph.way.hang()
    sinks.fill(sink, start=1)
    with pytest.raises(SinkBackpressureError, match="it does not answer within 2 s"):
        sink.flush()
    sink.on_paused()
    graph.way.close()
    graph.way.open()
    sinks.fill(sink, start=1).flush()


def test_a_query_that_takes_too_long_pauses_the_partition(graph: Graph) -> None:
    slow = "UNWIND range(1, 1000000000) AS i WITH event, count(i * i) AS c CREATE (o:Slow {n: c})"
    sink = graph.sink(slow, timeout=0.5)
    sink._retries = Retries(attempts=1, retry_after_s=3)
    sink.start()
    sinks.fill(sink)
    with pytest.raises(SinkBackpressureError, match=r"its query takes more than 0.5 s"):
        sink.flush()
    assert graph.rows("MATCH (o:Slow) RETURN o.n") == []
