"""A view that is built again next to the old one, and swapped, on a real broker: readers see old rows or new ones."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streamrt import Application
from streamrt.errors import ApplicationTimeoutError, InvalidOperationError, StaleTokenError, TableNotFoundError
from streamrt.tables import Catalog
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CUSTOMERS = ("ann", "bob", "eve")


class Shop:
    """A table of orders, and applications with views of it.

    Args:
        kafka: the broker.
        catalog: a catalogue there.
    """

    def __init__(self, kafka: Kafka, catalog: Catalog) -> None:
        self._kafka = kafka
        self.catalog = catalog
        self.database = unique("shop").replace("-", "_")
        self.view = f"{self.database}.totals"
        catalog.create_database(self.database)
        columns = "id BIGINT NOT NULL, customer STRING NOT NULL, amount BIGINT NOT NULL, PRIMARY KEY (id)"
        self.orders = catalog.create_table(f"{self.database}.orders", columns, num_partitions=2)
        self._written = 0

    def order(self, count: int) -> None:
        """Write orders."""
        numbers = range(self._written, self._written + count)
        self.orders.upsert([{"id": n, "customer": CUSTOMERS[n % 3], "amount": n + 1} for n in numbers])
        self._written += count

    def totals(self, sign: int) -> dict[str, int]:
        """Return the totals of all orders."""
        return {name: sign * sum(n + 1 for n in range(self._written) if n % 3 == i) for i, name in enumerate(CUSTOMERS)}

    def application(self, group: str, create: str, total: str) -> Application:
        """Return an application with a view."""
        app = self._make(group)
        app.sql(
            f"{create} MATERIALIZED VIEW {self.view} AS SELECT customer, {total} AS total FROM {self.database}.orders "
            "GROUP BY customer"
        )
        return app

    def reader(self) -> Application:
        """Return an application that reads the view."""
        app = self._make(unique("reader"))
        app.table(self.view).to_stream().to_topic(app.topic(unique("out")))
        return app

    def _make(self, group: str) -> Application:
        return Application(
            self._kafka.address,
            consumer_group=group,
            state_dir=self._kafka.state_dir / group,
            auto_offset_reset="earliest",
            processing_guarantee="exactly-once",
            processing_mode="resident",
            spark_master="processes[1]",
            commit_interval=0.2,
            catalog=self.catalog,
        )

    def rows(self, name: str) -> dict[str, int]:
        """Return the rows of a table."""
        return {row["customer"]: row["total"] for row in self.catalog.table(name).scan().rows()}


class Poll:
    """A thread that reads a view again and again."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._over = threading.Event()
        self._table = shop.catalog.table(shop.view)
        self.answers: list[set[bool]] = []
        self.lookups: list[bool] = []
        self.error: BaseException | None = None

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Read as long as the context lasts."""
        thread = threading.Thread(target=self._poll)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _poll(self) -> None:
        try:
            while not self._over.wait(0.1):
                found = self._shop.catalog.query(f"SELECT total FROM {self._shop.view}").to_arrow().to_pylist()
                self.answers.append({row["total"] > 0 for row in found})
                row: dict[str, Any] | None = self._table.get("ann", fresh=True)
                self.lookups.append(row is None or row["total"] > 0)
        except BaseException as error:
            self.error = error


@contextmanager
def running(app: Application) -> Iterator[None]:
    app.start()
    try:
        yield
    finally:
        app.stop(wait=True)


def is_once_turned(values: list[bool]) -> bool:
    """Whether values are True up to a point, and False from there on."""
    return values == sorted(values, reverse=True) and set(values) == {True, False}


def test_a_changed_view_is_built_next_to_the_old_one_and_swapped(kafka: Kafka) -> None:
    with Catalog(kafka.address) as catalog:
        shop = Shop(kafka, catalog)
        group, other = unique("blue"), unique("green")
        shop.order(30)
        blue, reader = shop.application(group, "CREATE", "sum(amount)"), shop.reader()
        with running(blue):
            wait_until(lambda: shop.rows(shop.view) == shop.totals(1), 120, "the rows of the first view")
            with pytest.raises(InvalidOperationError, match=f"is maintained by consumer group '{group}'"):
                shop.application(other, "CREATE", "sum(amount)")
            green = shop.application(other, "CREATE OR REPLACE", "-sum(amount)")
            with pytest.raises(ApplicationTimeoutError, match="has not caught up within"):
                green.swap_view(shop.view, timeout=0.1)
            poll, stream = Poll(shop), catalog.table(shop.view).subscribe()
            reader.start()
            with stream, poll.polling(), running(green):
                shop.order(30)
                info = green.swap_view(shop.view, timeout=180)
                assert (info.topic, info.maintained_by) == (f"{shop.view}.2", other)
                shop.order(3)
                wait_until(lambda: shop.rows(shop.view) == shop.totals(-1), 60, "the rows of the second view")
                wait_until(lambda: shop.rows(f"{shop.view}_next") == shop.totals(1), 60, "the rows of the first one")
                wait_until(lambda: not poll.lookups[-1] or poll.error is not None, 60, "the lookups of a handle")
                with pytest.raises(StaleTokenError, match="has another topic"):
                    wait_until(lambda: stream.poll(1.0) is None, 60, "the end of the subscription")
            assert poll.error is None
            # Never empty, never mixed, and never back.
            assert all(len(each) == 1 for each in poll.answers)
            assert is_once_turned([True in each for each in poll.answers])
            assert is_once_turned(poll.lookups)
            with pytest.raises(StaleTokenError, match=f"table '{shop.view}' has topic '{shop.view}.2' now"):
                reader.wait(300)
            with pytest.raises(InvalidOperationError, match="no other version is built next to it"):
                green.swap_view(shop.view)
        former = shop.application(group, "CREATE", "sum(amount)")
        assert former.view(shop.view).table.name == f"{shop.view}_next"
        former.reset()
        again = shop.application(other, "CREATE OR REPLACE", "-sum(amount)")
        with running(again):
            shop.order(7)
            wait_until(lambda: shop.rows(shop.view) == shop.totals(-1), 120, "further rows")
            assert again.verify(shop.view, timeout=60).equal
        catalog.drop_table(f"{shop.view}_next", delete_data=True)
        with pytest.raises(TableNotFoundError):
            catalog.table(f"{shop.view}_next")
        assert shop.rows(shop.view) == shop.totals(-1)
