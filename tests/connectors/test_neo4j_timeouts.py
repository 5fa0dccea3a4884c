"""The sink of Neo4j and a server that accepts connections, and does not answer."""

import time

import pytest

from streamrt.connectors import Neo4jSink, SinkBackpressureError
from streamrt.connectors.stores import neo4j_sink as neo4j
from streamrt.errors import ConfigurationError, SinkError
from tests.connectors.proxy import silent_port
from tests.connectors.sinks import fill


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neo4j, "_GRACE_S", 0.2)
    with silent_port() as port:
        sink = Neo4jSink("127.0.0.1", port, "neo4j", "sesame", "CREATE (o {n: event.n})", timeout=0.1)
        begun = time.monotonic()
        with pytest.raises(SinkError, match=r"cannot reach .* it does not answer within 0.3 s"):
            sink.start()
        fill(sink)
        with pytest.raises(SinkBackpressureError, match=r"it does not answer within 0.3 s"):
            sink.flush()
        assert time.monotonic() - begun < 10
        sink.close()


def test_a_login_without_an_answer_ends() -> None:
    with silent_port() as port:
        sink = Neo4jSink("127.0.0.1", port, "neo4j", "sesame", "RETURN 1", connection_acquisition_timeout=0.2)
        with pytest.raises(SinkError, match="cannot reach"):
            sink.start()


def test_the_time_limit_is_checked() -> None:
    with pytest.raises(ConfigurationError, match="timeout"):
        Neo4jSink("127.0.0.1", 7687, "neo4j", "sesame", "RETURN 1", timeout=0)
