"""Decisions of a `KafkaTransactionalWriter` without a broker."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt.errors import ConfigurationError, InvalidOperationError, TransactionError
from streamrt.kafka import ConnectionConfig
from streamrt.kafka.writing.transactions import KafkaTransactionalWriter, WriterState, transactional_id
from streamrt.models import TopicPartition

# Port 1 is not served by anyone.
NOWHERE = ConnectionConfig(bootstrap_servers="127.0.0.1:1")
names = st.text(max_size=80) | st.text(alphabet="ab.~-_/2e", max_size=8) | st.text(alphabet=".~", max_size=300)
tasks = st.tuples(names, names, st.integers(0, 100_000))


def state_of(writer: KafkaTransactionalWriter) -> WriterState:
    """Return the state; unlike of an attribute, type checkers expect it to change."""
    return writer.state


@given(tasks, tasks)
def test_tasks_do_not_share_an_id(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    assert (transactional_id("streamrt", *one) == transactional_id("streamrt", *other)) is (one == other)


@given(st.text(alphabet="abc.-", max_size=30), st.text(alphabet="abc.-", max_size=30), tasks)
def test_prefixes_do_not_share_an_id(one: str, other: str, task: tuple[str, str, int]) -> None:
    assert (transactional_id(one, *task) == transactional_id(other, *task)) is (one == other)


@given(tasks)
def test_ids_are_bounded_printable_and_keep_the_prefix(task: tuple[str, str, int]) -> None:
    found = transactional_id("streamrt", *task)
    assert found == transactional_id("streamrt", *task)
    assert len(found) <= 240
    assert found.isascii()
    assert found.isprintable()
    assert found.startswith("streamrt.")


def test_dots_and_slashes_cannot_collide() -> None:
    found = {
        transactional_id("s", "a.b", "c", 0),
        transactional_id("s", "a", "b.c", 0),
        transactional_id("s", "a/b", "c", 0),
        transactional_id("s", "a~2eb", "c", 0),
        transactional_id("s.a", "b", "c", 0),
    }
    assert len(found) == 5


def test_ids_of_former_versions_are_kept() -> None:
    # A changed id would let a task of the former version go on alongside one of the new version.
    assert transactional_id("streamrt", "shop", "orders.eu", 3) == "streamrt.shop.orders~2eeu.3"
    assert transactional_id("streamrt", "g\N{LATIN SMALL LETTER E WITH ACUTE}", "t/x", 0) == "streamrt.g~c3~a9.t~2fx.0"
    long = transactional_id("streamrt", "g" * 255, "t" * 249, 7)
    assert len(long) == 240
    assert long.endswith("~78bde42a0c7e748ee21d9fb6fdee932d220db7f169ef839ba67a8bb62f457d22")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"transactional.id": "mine"}, "transactional.id=mine conflicts"),
        ({"enable.idempotence": False}, "enable.idempotence=False conflicts"),
        ({"enable.idempotence": "false"}, "enable.idempotence=false conflicts"),
        ({"acks": 1}, "acks"),
        ({"message.timeout.ms": 120_000}, "message.timeout.ms"),
        ({"transaction.timeout.ms": "soon"}, "transaction.timeout.ms"),
        ({"no.such.option": 1}, "no.such.option"),
    ],
)
def test_options_that_contradict_transactions_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        KafkaTransactionalWriter(NOWHERE, "id", "group", options)


def test_the_order_of_calls_is_checked() -> None:
    writer = KafkaTransactionalWriter(NOWHERE, "id", "group", {"enable.idempotence": "true", "linger.ms": 1})
    assert state_of(writer) is WriterState.NEW
    assert not writer.usable
    with pytest.raises(InvalidOperationError, match="id is new and not ready"):
        writer.produce("topic", b"value", None, 0, None)
    with pytest.raises(InvalidOperationError):
        writer.commit({TopicPartition("topic", 0): 1})
    assert writer.flush() == []
    writer.abort()
    assert state_of(writer) is WriterState.NEW
    writer.close()
    writer.close()
    assert state_of(writer) is WriterState.SPENT
    with pytest.raises(InvalidOperationError, match="is spent"):
        writer.init(1)
    with pytest.raises(InvalidOperationError, match="is spent"):
        writer.produce("topic", b"value", None, 0, None)


@pytest.mark.slow
def test_without_a_broker_init_ends_in_time() -> None:
    writer = KafkaTransactionalWriter(NOWHERE, "id", "group")
    begun = time.monotonic()
    with pytest.raises(TransactionError, match="the transactional id id could not be acquired") as caught:
        writer.init(0.5, "topic")
    assert not caught.value.fenced
    assert not writer.usable
    with pytest.raises(TransactionError):
        writer.produce("topic", b"value", None, 0, None)
    writer.abort()
    writer.close()
    assert time.monotonic() - begun < 30
