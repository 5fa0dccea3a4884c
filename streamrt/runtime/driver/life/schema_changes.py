"""Schemas of tables that changed while an application runs, which keeps those with which it was defined."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from streamrt.errors import ConsumerError, SchemaEvolutionError, StreamRTError
from streamrt.tables.descriptions.topics import TableTopic
from streamrt.topics import Topic

if TYPE_CHECKING:
    # With pyarrow, which programs without tables do not wait for.
    from streamrt.tables.descriptions.info import TableInfo

__all__ = ["schema_change"]


def schema_change(
    error: Exception, topics: Iterable[Topic], load: Callable[[str], TableInfo]
) -> SchemaEvolutionError | None:
    """Return the error that says why a record is not a row: its table has another schema now. None if that is not the reason.

    Changes by the rules of evolution need no restart, as far as rows do not use what an older schema does not have, such as
    large numbers in a column that was widened.

    Args:
        error: what ended the application.
        topics: its topics.
        load: returns what the catalogue knows of a table by its name.
    """
    if not isinstance(error, ConsumerError):
        return None
    for topic in topics:
        # External tables have the rows that the application's own source has made.
        if isinstance(topic, TableTopic) and not topic.is_endpoint and f"{topic.name}[" in str(error):
            try:
                version = load(topic.table).schema_version
            except StreamRTError:
                # The first error is what there is to say.
                return None
            if version != topic.schema_version:
                return SchemaEvolutionError(
                    f"table {topic.table!r} has schema version {version}, and this application was defined with version "
                    f"{topic.schema_version}, by which it cannot read all rows: {error}; start the program again"
                )
    return None
