"""The part of a catalogue that has databases."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone

from streamrt.errors import DatabaseExistsError
from streamrt.tables.catalogue.catalog_state import DEFAULT_DATABASE, CatalogState
from streamrt.tables.catalogue.objects import IfExists, now
from streamrt.tables.descriptions.info import DatabaseInfo
from streamrt.tables.descriptions.naming import IF_EXISTS, check_choice, check_name, check_text, check_texts

__all__ = ["CatalogDatabases"]

_BEGINNING = datetime(1970, 1, 1, tzinfo=timezone.utc)


class CatalogDatabases:
    """The databases of a catalogue; `Catalog` says what each method does."""

    def __init__(self, state: CatalogState) -> None:
        self._state = state
        self._objects = state.objects

    def create(
        self, name: str, comment: str | None, properties: Mapping[str, str] | None, if_exists: IfExists
    ) -> DatabaseInfo:
        """Create a database."""
        check_name("database", name)
        check_choice("if_exists", if_exists, IF_EXISTS)
        self._state.require_open()
        check_text("create_database(comment=...)", comment)
        moment = now()
        wanted = DatabaseInfo(name, comment, check_texts("properties", properties), moment, moment)

        def create(found: DatabaseInfo | None) -> DatabaseInfo:
            if found is None and (name != DEFAULT_DATABASE or if_exists == "replace"):
                return wanted
            if if_exists == "error":
                raise DatabaseExistsError(
                    f"database {name!r} exists already: choose another name, or pass if_exists='ignore'"
                )
            if found is None or if_exists == "ignore":
                return found or self.info(name)
            return replace(wanted, created_at=found.created_at, version=found.version + 1)

        if if_exists == "ignore" and name in self.names():
            return self.info(name)
        made = self._objects.change(self._objects.databases, name, create)
        assert made is not None  # noqa: S101 - `create` returns one
        return made

    def names(self) -> list[str]:
        """Return the names of the databases, sorted."""
        self._state.require_open()
        return sorted({*self._objects.names(self._objects.databases), DEFAULT_DATABASE})

    def info(self, name: str) -> DatabaseInfo:
        """Return what is known of a database."""
        self._state.require_open()
        found = self._objects.find(self._objects.databases, check_name("database", name))
        if found is not None:
            return found.value
        if name == DEFAULT_DATABASE:
            return DatabaseInfo(name, "exists without being created", {}, _BEGINNING, _BEGINNING)
        raise self._state.no_database(name)
