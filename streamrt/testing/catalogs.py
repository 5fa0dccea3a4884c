"""Conformance suite for stores of catalogues, StreamRT's and yours.

Subclass it in a test module, give the subclass a name that begins with `Test`, and define what it tests. pytest collects
the inherited tests.

Example:
    ```python
    class TestMemoryCatalog(CatalogStoreConformance):
        @pytest.fixture(autouse=True)
        def shared(self) -> None:
            self.store = MemoryCatalog()

        def make(self) -> CatalogStore:
            return self.store
    ```
"""
# ruff: noqa: S101 - asserting is what a test suite does

import json
import threading
import time
from typing import Any

import pytest

from streamrt.errors import CatalogConflictError
from streamrt.tables.catalogue.catalog_store import CatalogStore

__all__ = ["CatalogStoreConformance"]

_KEY = "table/shop.orders"
_WAIT_S = 60.0


class CatalogStoreConformance:
    """The contract of every `CatalogStore`.

    Attributes:
        writers: how many writers work at once in the tests of this.
        changes: how many changes each of them makes.
    """

    writers = 3
    changes = 4

    def make(self) -> CatalogStore:
        """Return a connected store; all stores of one test have the same objects, and none at its beginning."""
        raise NotImplementedError

    def test_what_was_put_is_there_for_all(self) -> None:
        """Another store sees it at once."""
        one, other = self.make(), self.make()
        assert other.get(_KEY) is None
        version = one.put(_KEY, _make_document(n=1), None)
        stored = other.get(_KEY)
        assert stored is not None
        assert json.loads(stored.value) == {"n": 1}
        assert stored.version == version

    def test_lists_are_sorted_and_have_one_prefix(self) -> None:
        """Keys of other kinds are left out."""
        store = self.make()
        for key in ("table/b.x", "table/a.y", "table/a.x", "tab/a.x", "database/a"):
            store.put(key, _make_document(key=key), None)
        assert list(store.list("table/")) == ["table/a.x", "table/a.y", "table/b.x"]
        assert list(store.list("table/a.")) == ["table/a.x", "table/a.y"]
        assert json.loads(store.list("database/")["database/a"].value) == {"key": "database/a"}
        assert store.list("view/") == {}
        assert len(store.list()) == 5

    def test_only_the_expected_version_is_changed(self) -> None:
        """The loser of a race learns it, and nothing is changed."""
        store, other = self.make(), self.make()
        first = store.put(_KEY, _make_document(n=1), None)
        second = other.put(_KEY, _make_document(n=2), first)
        assert second != first
        for expected in (None, first, "never"):
            with pytest.raises(CatalogConflictError) as caught:
                store.put(_KEY, _make_document(n=3), expected)
            assert caught.value.retriable
        with pytest.raises(CatalogConflictError):
            store.delete(_KEY, first)
        stored = store.get(_KEY)
        assert stored is not None
        assert (json.loads(stored.value), stored.version) == ({"n": 2}, second)

    def test_what_was_deleted_is_gone(self) -> None:
        """It can be created again, and an old version does not fit the new object."""
        store, other = self.make(), self.make()
        first = store.put(_KEY, _make_document(n=1), None)
        store.delete(_KEY, first)
        assert other.get(_KEY) is None
        assert other.list() == {}
        with pytest.raises(CatalogConflictError):
            other.delete(_KEY, first)
        with pytest.raises(CatalogConflictError):
            other.put(_KEY, _make_document(n=2), first)
        other.put(_KEY, _make_document(n=2), None)
        with pytest.raises(CatalogConflictError):
            store.put(_KEY, _make_document(n=3), first)

    def test_names_are_any_text(self) -> None:
        """Consumer groups have slashes, dots, spaces and letters of all kinds."""
        store = self.make()
        names = ("a/b", "..", ".", ".hidden", "a b", "Ä€", "a%2Fb", "-x", "A", "a")
        for name in names:
            store.put(f"usage/{name}", _make_document(name=name), None)
        found = {key: json.loads(stored.value) for key, stored in self.make().list("usage/").items()}
        assert found == {f"usage/{name}": {"name": name} for name in names}

    def test_writers_at_once_lose_no_change(self) -> None:
        """Each increments one number by compare-and-set, again after each conflict."""
        self.make().put(_KEY, _make_document(n=0), None)
        conflicts: list[int] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                store = self.make()
                for _ in range(self.changes):
                    conflicts.append(_increment_number(store))
            except BaseException as error:  # noqa: BLE001 - shown by the test
                errors.append(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(self.writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * self.changes * _WAIT_S)
            assert not thread.is_alive(), "a call of the store does not return"
        assert errors == []
        stored = self.make().get(_KEY)
        assert stored is not None
        assert json.loads(stored.value) == {"n": self.writers * self.changes}, f"{sum(conflicts)} conflicts"


def _increment_number(store: CatalogStore) -> int:
    """Add one to the number; return how often another writer was faster."""
    conflicts, deadline = 0, time.monotonic() + _WAIT_S
    while True:
        assert time.monotonic() < deadline, f"{conflicts} conflicts, and no change within {_WAIT_S:g} s"
        stored = store.get(_KEY)
        assert stored is not None
        try:
            store.put(_KEY, _make_document(n=json.loads(stored.value)["n"] + 1), stored.version)
        except CatalogConflictError:
            conflicts += 1
        else:
            return conflicts


def _make_document(**values: Any) -> bytes:
    return json.dumps(values).encode()
