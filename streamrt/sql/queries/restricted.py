"""What a caller with rights for single tables can name in a statement."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamrt.errors import ControlRefusedError
from streamrt.kafka.completion_token import Offsets
from streamrt.sql.queries.query_sources import QueriedApplication, QueryHome, Rights, SystemTable

__all__ = ["restrict"]


def restrict(home: QueryHome, rights: Rights) -> QueryHome:
    """Return a home that leads to the tables of a caller only.

    There are neither state nor views, whose queries are those of the application: a materialized view is a table. Of system
    tables, there is `system.tables`, with the tables of the caller.

    Args:
        home: where names lead.
        rights: what the caller may do.
    """
    listing = home.system["tables"]

    def list_tables() -> Iterator[Mapping[str, Any]]:
        return (row for row in listing.rows() if _may_see(rights, row["name"]))

    application = home.application
    return replace(
        home,
        rights=rights,
        system={"tables": SystemTable(listing.schema, list_tables)},
        state=None,
        view=None,
        application=None if application is None else _RestrictedApplication(application, home, rights),
    )


@dataclass(frozen=True)
class _RestrictedApplication:
    """An application that tells a caller nothing about topics of other tables; see `QueriedApplication`."""

    application: QueriedApplication
    home: QueryHome
    rights: Rights

    def wait_for(self, token: Offsets, timeout: float | None = 60.0) -> None:
        if not set(token.topics) <= set(self._topics()):
            raise ControlRefusedError("after has offsets of topics that are not those of tables this token may use")
        self.application.wait_for(token, timeout)

    def input_topics(self) -> Collection[str]:
        return self.application.input_topics()

    def output_tables(self) -> Collection[str]:
        return self.application.output_tables()

    def _topics(self) -> Iterator[str]:
        for name in self.home.names():
            if _may_see(self.rights, name):
                info = self.home.tables.table(name).info
                yield from (topic for topic in (info.topic, info.requests_topic) if topic is not None)


def _may_see(rights: Rights, name: str) -> bool:
    return rights.may_read(name) or rights.may_write(name)
