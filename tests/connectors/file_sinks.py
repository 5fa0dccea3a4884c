"""Common parts of tests of sinks of files."""

import io
from pathlib import Path
from typing import Any, ClassVar

import pytest

from streamrt.connectors.file_sinks.file_stores import LocalStore
from streamrt.connectors.files import JSONFormat
from streamrt.testing.connectors import TransactionalSinkConformance, Written


class FileSinkConformance(TransactionalSinkConformance):
    """The contract of sinks of files. The order of writing is noted, since times of files are too coarse to tell."""

    rejected: ClassVar[Any] = {"n": object()}
    keys: ClassVar[Any] = (b"key", None, "schlüssel", "two\r\nlines")
    many = 2_000
    store: ClassVar[Any] = LocalStore
    order: list[str]

    @pytest.fixture(autouse=True)
    def note_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.order = []
        put = self.store.put

        def noted(store: Any, name: str, content: bytes) -> None:
            put(store, name, content)
            if not name.startswith("_"):
                self.order.append(name)

        monkeypatch.setattr(self.store, "put", noted)

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the records in the order of writing, with the names of their files."""
        assert sorted(self.order) == self.files()
        return [(name, record) for name in self.order for record in self.parsed(self.content(name))]

    def written(self) -> list[Written]:
        return [
            Written(
                record["_value"], record["_key"], record["_timestamp"], name.split("/")[-3], int(name.split("/")[-2])
            )
            for name, record in self.records()
        ]

    def parsed(self, content: bytes) -> list[Any]:
        return list(JSONFormat().deserialize(io.BytesIO(content)))

    def files(self) -> list[str]:
        """Return the sorted names of all files."""
        raise NotImplementedError

    def content(self, name: str) -> bytes:
        """Return the content of a file."""
        raise NotImplementedError


def visible(path: Path) -> list[str]:
    """Return the names of the files that readers see."""
    found = (str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    return sorted(name for name in found if not any(part.startswith(("_", ".")) for part in Path(name).parts))
