"""`Application.maintain`: the present rows of a maintained table."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from streamrt.dataframe.branch import Frame
from streamrt.dataframe.streaming_table import StreamingTable
from streamrt.relations import Maintain, RowMerger
from streamrt.state.spec import ProcessStoreSpec
from streamrt.state.transactions.keyed import StoreTransaction
from streamrt.state.transactions.process_functions import ProcessTransaction

if TYPE_CHECKING:
    from streamrt.tables import Table
    from streamrt.tables.access.task_links import TaskLinks

__all__ = ["maintain_table"]

F = TypeVar("F", bound=Frame)


def maintain_table(stream: F, table: Table, task_links: TaskLinks) -> StreamingTable[F]:
    """Merge the requests of a table, and return the table of its present rows.

    Args:
        stream: the requests.
        table: the table, which is a maintained one.
        task_links: how tasks read the rows that the table has before.

    Raises:
        InvalidOperationError: if the application writes the rows of the table.
        ConfigurationError: if the library of a rule is not installed.
    """
    rules = table.info.maintenance
    if rules is None:
        raise TypeError(f"{table.name} is not a maintained table")
    branch = stream._branch
    manager, topic = branch.topic_manager, table.topic
    merger = RowMerger(table.schema, table.info.key, rules)
    # What is missing fails here, and not in a task.
    merger.make_upsert()
    name = branch.own_store("rows", "maintain()", "copy()")
    store = branch.store(name, StoreTransaction if rules.ttl_ms is None else ProcessTransaction)
    if rules.ttl_ms is not None:
        store = ProcessStoreSpec(store.name, store.store_type, store.transaction)
    changelog = None
    if rules.changelog:
        from streamrt.tables.descriptions.changelog_tables import describe_changelog
        from streamrt.tables.descriptions.topics import table_topic

        log = table_topic(describe_changelog(table.info), table.home)
        manager.register(log)
        changelog = log
    manager.register(topic)
    operator = Maintain(topic, merger, store, changelog, task_links)
    return StreamingTable(stream, branch.add(operator).of_tables(), table.info.key)
