"""The part of a catalogue that has databases."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone

from streamrt.errors import CatalogConflictError, DatabaseExistsError, DatabaseNotEmptyError, InvalidOperationError
from streamrt.tables.catalog_base import DEFAULT_DATABASE, CatalogBase
from streamrt.tables.info import DatabaseInfo
from streamrt.tables.naming import IF_EXISTS, IF_MISSING, check_choice, check_name, check_text, check_texts
from streamrt.tables.objects import IfExists, IfMissing, now

__all__ = ["CatalogDatabases"]

_BEGINNING = datetime(1970, 1, 1, tzinfo=timezone.utc)


class CatalogDatabases(CatalogBase):
    """Databases: names under which tables are."""

    def create_database(
        self,
        name: str,
        *,
        comment: str | None = None,
        properties: Mapping[str, str] | None = None,
        if_exists: IfExists = "error",
    ) -> DatabaseInfo:
        """Create a database.

        Args:
            name: its name: letters, digits, `_` and `-`.
            comment: what it is for.
            properties: texts of your own.
            if_exists: what happens if it exists: "error", "ignore" leaves it, "replace" gives it this comment and these
                properties; tables stay.

        Raises:
            DatabaseExistsError: if it exists.
        """
        check_name("database", name)
        check_choice("if_exists", if_exists, IF_EXISTS)
        self._require_open()
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
                return found or self.database(name)
            return replace(wanted, created_at=found.created_at, version=found.version + 1)

        if if_exists == "ignore" and name in self.databases():
            return self.database(name)
        made = self._objects.change(self._objects.databases, name, create)
        assert made is not None  # noqa: S101 - `create` returns one
        return made

    def drop_database(
        self, name: str, *, cascade: bool = False, delete_data: bool = False, missing: IfMissing = "error"
    ) -> None:
        """Drop a database.

        Args:
            name: its name.
            cascade: whether its tables are dropped, too.
            delete_data: whether their topics are deleted, with all records.
            missing: what happens if there is none: "error" or "ignore".

        Raises:
            DatabaseNotFoundError: if there is none.
            DatabaseNotEmptyError: if it has tables, without `cascade`.
            CatalogError: if a running application uses one of its tables.
        """
        check_choice("missing", missing, IF_MISSING)
        if name == DEFAULT_DATABASE:
            raise InvalidOperationError(f"the database {DEFAULT_DATABASE!r} is always there: drop its tables")
        if check_name("database", name) not in self.databases():
            if missing == "ignore":
                return
            raise self._no_database(name)
        tables = self.tables(name)
        if tables and not cascade:
            raise DatabaseNotEmptyError(
                f"database {name!r} has {len(tables)} tables, such as {tables[0]!r}: drop them first, or pass cascade=True"
            )
        for table in tables:
            self.drop_table(table, delete_data=delete_data, missing="ignore")
        dropped = self._objects.find(self._objects.databases, name)
        self._objects.change(self._objects.databases, name, lambda _: None)
        # Tables that others have created in the meantime would belong to nothing.
        late = self._objects.names(self._objects.tables, f"{name}.")
        if late and dropped is not None and not cascade:
            with contextlib.suppress(CatalogConflictError):
                self._objects.put(self._objects.databases, name, dropped.value, None, dropped)
            raise DatabaseNotEmptyError(f"database {name!r} has the new table {late[0]!r}: drop it first")
        for table in late:
            self.drop_table(table, delete_data=delete_data, missing="ignore")

    def databases(self) -> list[str]:
        """Return the names of the databases, sorted."""
        self._require_open()
        return sorted({*self._objects.names(self._objects.databases), DEFAULT_DATABASE})

    def database(self, name: str) -> DatabaseInfo:
        """Return what is known of a database.

        Raises:
            DatabaseNotFoundError: if there is none.
        """
        self._require_open()
        found = self._objects.find(self._objects.databases, check_name("database", name))
        if found is not None:
            return found.value
        if name == DEFAULT_DATABASE:
            return DatabaseInfo(name, "exists without being created", {}, _BEGINNING, _BEGINNING)
        raise self._no_database(name)
