"""Writers of tables over topics in memory: what is told of rows that are on their way, late or lost."""

import gc
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Offsets
from streamrt.errors import DeliveryTimeoutError, ProducerError
from streamrt.kafka.writing.portion import Portion, produce_each
from streamrt.kafka.writing.sender import Delivered
from streamrt.records import Headers
from streamrt.tables.access.links import RecordSender
from streamrt.tables.table import Table
from streamrt.tables.writing.delivery import Deliveries, WriteResult
from streamrt.testing.memory_topics import MemoryLinks
from tests.table_home import Home, create, rows_in, table_info

EVENTS = "id INT, name STRING, score DOUBLE"
LATEST = {"id": 3, "name": "Cy", "score": 91.0}


@pytest.fixture
def links() -> MemoryLinks:
    return MemoryLinks()


@pytest.fixture
def events(links: MemoryLinks) -> Table:
    return create(links, table_info(EVENTS, "demo.events"))


class Unreliable:
    """A sender whose records are delivered when a test says so.

    Args:
        inner: what delivers them.
    """

    def __init__(self, inner: RecordSender) -> None:
        self.inner = inner
        self.usable = True
        self.held: list[Callable[[], None]] = []
        self.told: Delivered | None = None

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp: int | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        on_delivery: Delivered | None = None,
    ) -> None:
        self.told = on_delivery
        self.held.append(lambda: self.inner.produce(topic, value, key, timestamp, headers, partition, on_delivery))

    def produce_all(self, topic: str, portion: Portion) -> None:
        produce_each(self.produce, topic, portion)

    def partitions(self, topic: str, timeout: float) -> int | None:
        return self.inner.partitions(topic, timeout)

    def lose(self) -> None:
        """Lose the record that came last."""
        self.held.clear()
        assert self.told is not None
        self.told(ProducerError("the topic is gone"), -1, -1, -1)

    def poll(self, timeout: float = 0.0) -> None:
        self.inner.poll(timeout)

    def flush(self, timeout: float) -> int:
        self.inner.flush(timeout)
        return len(self.held)

    def deliver(self) -> None:
        held, self.held = self.held, []
        for each in held:
            each()

    def commit(self) -> None:
        self.inner.commit()

    def abort(self) -> None:
        self.inner.abort()

    def close(self) -> None:
        self.inner.close()


class TestOutcomes:
    """Reports about rows that are late, or lost."""

    @pytest.fixture
    def sender(self, links: MemoryLinks, monkeypatch: pytest.MonkeyPatch) -> Unreliable:
        sender = Unreliable(links.sender())
        monkeypatch.setattr(links, "sender", lambda *_: sender)
        return sender

    def test_rows_that_are_on_their_way(self, links: MemoryLinks, events: Table, sender: Unreliable) -> None:
        with events.writer() as writer:
            result = writer.append(LATEST)
            batch = writer.append_rows([LATEST, LATEST])
            assert not result.done()
            assert not batch.done()
            with pytest.raises(
                DeliveryTimeoutError, match=r"1 row of table 'demo.events' was not delivered within 0.01 s"
            ):
                result.wait(timeout=0.01)
            with pytest.raises(DeliveryTimeoutError, match=r"2 rows of table 'demo.events' were not delivered"):
                batch.wait(timeout=0.01)
            with pytest.raises(DeliveryTimeoutError, match=r"3 rows of table 'demo.events' were not delivered"):
                writer.flush(timeout=0.01)
            sender.deliver()
            assert result.wait(10).offset == 0
            assert batch.wait(10).partition_map("demo.events") == {0: 3}
            assert writer.flush().partition_map("demo.events") == {0: 3}

    def test_rows_that_are_lost(self, events: Table, sender: Unreliable) -> None:
        writer = events.writer()
        writer.append(LATEST)
        sender.deliver()
        lost = writer.append(LATEST)
        sender.lose()
        batch = writer.append_rows([LATEST])
        sender.lose()
        why = (
            r"2 rows of table 'demo.events' were not delivered \(of the rows of this writer, counted from 0: 1, 2\): 2 "
            "because the topic is gone"
        )
        with pytest.raises(ProducerError, match=f"^{why}$"):
            writer.flush()
        with pytest.raises(ProducerError, match=r"the topic is gone"):
            lost.wait(60)
        with pytest.raises(ProducerError, match=r"the topic is gone"):
            batch.wait(60)
        # They were told, and the writer goes on.
        assert writer.flush().partition_map("demo.events") == {0: 1}
        writer.append(LATEST)
        sender.lose()
        with pytest.raises(ProducerError, match=r"1 row of table 'demo.events' was not delivered .*: 3\)"):
            writer.close()
        writer.close()

    def test_rows_that_are_late_when_the_writer_is_closed(self, events: Table, sender: Unreliable) -> None:
        home = Home(events._home.links)
        home.timeout = 0.01
        writer = Table(events.info, home).writer()
        writer.append(LATEST)
        sender.deliver()
        late: list[Any] = [writer.append(LATEST), writer.append_rows([LATEST] * 2)]
        with pytest.raises(DeliveryTimeoutError) as error:
            writer.close()
        assert str(error.value) == (
            "3 rows of table 'demo.events' were not delivered within 0.01 s, and the writer is closed now: brokers may have "
            "some of them; look in the table which are there, and write the others again; flush(timeout=...) before the "
            "end waits longer, and a writer with an id writes each row once"
        )
        for each in late:
            with pytest.raises(ProducerError, match=r"was not delivered before its writer was closed"):
                each.wait(0)
        writer.close()

    def test_reports_that_an_interrupt_has_hit(self, events: Table, sender: Unreliable) -> None:
        with events.writer() as writer:
            writer.append(LATEST)
            writer.append_rows([LATEST] * 2)
            # The client has none of them any more, and has told nothing of them.
            sender.held.clear()
            with pytest.raises(
                ProducerError, match=r"not known whether 3 rows .* were delivered, because an interrupt"
            ):
                writer.flush(timeout=10)
            writer.append(LATEST)
            sender.deliver()
            assert writer.flush().partition_map("demo.events") == {0: 1}

    def test_writer_that_is_never_closed(
        self, links: MemoryLinks, events: Table, sender: Unreliable, caplog: pytest.LogCaptureFixture
    ) -> None:
        def leave(**options: Any) -> None:
            writer = events.writer(**options)
            writer.append_rows([LATEST] * 3)

        with caplog.at_level(logging.WARNING):
            leave()
            gc.collect()
        assert "A writer of table 'demo.events' was never closed" in caplog.text
        assert "are dropped (3)" in caplog.text

    def test_row_whose_append_was_interrupted_counts_for_no_other(
        self, events: Table, sender: Unreliable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = events.writer()
        produce = sender.produce

        def interrupted(*given: Any, **options: Any) -> None:
            produce(*given, **options)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(sender, "produce", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.append(LATEST)
        sender.deliver()
        sender.poll()
        writer.append(LATEST)
        with pytest.raises(DeliveryTimeoutError, match=r"1 row of table"):
            writer.flush(timeout=0.01)
        sender.deliver()
        assert writer.flush().partition_map("demo.events") == {0: 2}
        writer.close()

    def test_producer_that_is_broken(self, events: Table, sender: Unreliable) -> None:
        writer = events.writer()
        writer.append(LATEST)
        sender.usable = False
        with pytest.raises(ProducerError, match=r"had a fatal error and may have lost 1 rows"):
            writer.flush()
        writer.close(failed=True)

    def test_threads_that_write_and_wait(self, links: MemoryLinks, events: Table) -> None:
        positions: list[int] = []
        with events.writer() as writer:

            def work() -> None:
                for number in range(50):
                    positions.append(writer.append({"id": number}).wait(60).offset)

            threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(300)
                assert not thread.is_alive()
        assert sorted(positions) == list(range(200))
        assert Counter(row["id"] for row in rows_in(links, events)) == dict.fromkeys(range(50), 4)


def test_position_of_a_row_does_not_wait_for_a_closed_writer() -> None:
    deliveries = Deliveries("shop.orders", "shop.orders", None, lambda timeout: None, 1.0)
    result = WriteResult(deliveries)
    deliveries.accept(result)
    deliveries.close()
    assert result.done()
    with pytest.raises(ProducerError):
        result.wait(60)
    assert deliveries.token() == Offsets({})
