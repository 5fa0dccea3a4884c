"""The part of a catalogue that knows which applications use its tables."""

import logging
from collections.abc import Iterable
from dataclasses import replace

from streamrt.errors import ArgumentValueError, CatalogError
from streamrt.tables.catalogue.catalog_state import CatalogState
from streamrt.tables.catalogue.objects import now
from streamrt.tables.descriptions.changelog_tables import strip_changelog_suffix
from streamrt.tables.descriptions.usages import STALE_AFTER, ApplicationInfo, Lineage, Usage

__all__ = ["CatalogUsages"]

logger = logging.getLogger("streamrt.tables")


class CatalogUsages:
    """The notes of applications on their use of tables; `Catalog` says what each method does."""

    def __init__(self, state: CatalogState) -> None:
        self._state = state
        self._objects = state.objects

    def record(
        self, application: str, reads: Iterable[str], writes: Iterable[str], maintains: Iterable[str] = ()
    ) -> None:
        """Note what an application uses, in place of what was noted before; applications do it when they start."""
        self._state.require_open()
        if not application or not isinstance(application, str):
            raise ArgumentValueError("record_usage() needs the name of an application")
        read, written, maintained = (
            tuple(sorted({self._find_name(name) for name in names})) for names in (reads, writes, maintains)
        )
        wanted = ApplicationInfo(application, read, written, now(), maintained)
        self._objects.change(self._objects.applications, application, lambda _: wanted, keep_unknown=False)

    def exchange(self, first: str, second: str, applications: Iterable[str]) -> None:
        """Note that applications write the other one of two tables, whose names were exchanged."""
        names = {first: second, second: first}

        def change(found: ApplicationInfo | None) -> ApplicationInfo | None:
            if found is None:
                return None
            return replace(found, writes=tuple(sorted(names.get(each, each) for each in found.writes)))

        for application in applications:
            self._objects.change(self._objects.applications, application, change)

    def forget(self, application: str) -> None:
        """Delete what was noted of an application, if anything was: it is gone, or will note it again when it starts."""
        self._state.require_open()
        if not application or not isinstance(application, str):
            raise ArgumentValueError("forget_usage() needs the name of an application")
        self._objects.delete_unread(self._objects.applications, application)

    def applications(self) -> list[ApplicationInfo]:
        """Return the applications that use tables, sorted by name, as they said at their last starts."""
        self._state.require_open()
        return list(self._objects.all(self._objects.applications).values())

    def of(self, name: str) -> list[Usage]:
        """Return which applications read, write and maintain a table, as they said at their last starts."""
        name = self._find_name(name)
        if self._objects.store.get(self._objects.tables.key(name)) is None:
            raise self._state.no_table(name)
        return [usage for each in self.applications() for usage in each.usages() if usage.table == name]

    def lineage(self) -> Lineage:
        """Return where rows come from and go: tables, and the applications that read and write them."""
        return Lineage.of(self._objects.names(self._objects.tables), self.applications())

    def require_unused(self, table: str) -> None:
        """Raise CatalogError if a running application uses a table."""
        cluster = self._state.cluster()
        for usage in (usage for each in self.applications() for usage in each.usages() if usage.table == table):
            since = usage.since.isoformat()
            if cluster is None and usage.since + STALE_AFTER > now():
                raise CatalogError(
                    f"application {usage.application!r} {usage.kind} table {table!r}, was started at {since} and "
                    "may be running, which this catalogue without a broker cannot see: pass force=True to drop it, or "
                    "forget_usage() the application if it is gone"
                )
            if cluster is None:
                logger.warning(
                    "Table %s is dropped although application %s %s it: the application was started at %s, too long ago to "
                    "be taken as running.",
                    *(table, usage.application, usage.kind, since),
                )
            elif cluster.group_is_active(usage.application, self._state.timeout):
                raise CatalogError(
                    f"the running application {usage.application!r} {usage.kind} table {table!r}: stop it first, or pass "
                    "force=True"
                )

    def _find_name(self, name: object) -> str:
        """Return the full name of a table; the log of its changes is a part of it."""
        return self._state.full_name(strip_changelog_suffix(name) if isinstance(name, str) else name)
