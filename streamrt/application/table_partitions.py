"""Topics of tables with a primary key that an application would give more partitions."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from streamrt.errors import TopicConfigurationError

if TYPE_CHECKING:
    from streamrt.tables import TableInfo

__all__ = ["require_direct_tables"]

logger = logging.getLogger("streamrt")


def require_direct_tables(topics: Collection[str], infos: Collection[TableInfo]) -> None:
    """Refuse more partitions for topics of maintained tables; warn of those of other tables with a primary key.

    Args:
        topics: names of the topics that would get more partitions.
        infos: what the catalogue knows of its tables.

    Raises:
        TopicConfigurationError: if one of them is that of a maintained table, whose requests would lie elsewhere than its
            rows.
    """
    for info in infos:
        if info.topic not in topics or info.kind != "primary-key":
            continue
        if info.maintenance is not None:
            raise TopicConfigurationError(
                f"the application reads topic {info.topic!r} of the maintained table {info.name!r}, whose rows stay in their "
                "partitions, as its requests do: create a table with more of them, copy the rows, let the writers and the "
                "application use it, and start the application with another consumer_group"
            )
        logger.warning(
            "the application reads topic %r of table %r, whose rows stay in their partitions: writers refuse the table once "
            "it has more of them; if all rows are written again, create it again with if_exists='replace', and write them",
            info.topic,
            info.name,
        )
