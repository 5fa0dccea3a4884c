"""Resets one store: deletes its changelog, its name in the metadata of committed offsets, and its files."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from streamrt.config import ApplicationConfig
from streamrt.errors import ArgumentTypeError, InvalidOperationError
from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.records import TopicPartition
from streamrt.runtime.driver.housekeeping.state_directory import locked_parts
from streamrt.runtime.driver.starting.group_claim import claimed_group
from streamrt.runtime.metadata import CommittedMetadata, without_store
from streamrt.state import RocksDBStore
from streamrt.state.rocksdb.directory import escaped
from streamrt.topics import Topic, changelog_topic_name
from streamrt.topology import stream_id

__all__ = ["StoreToForget", "claimed_store", "forget_store"]


@dataclass(frozen=True)
class StoreToForget:
    """The existing parts of a store.

    Attributes:
        group: the consumer group.
        scope: the topic of the store, or the sorted names of merged topics, joined by `--`.
        store: its name.
        changelog: its changelog topic; None if there is none.
        offsets: committed offsets whose metadata names the store.
        metadata: the metadata of these offsets without the store.
        files: directories of its store partitions on this machine.
    """

    group: str
    scope: str
    store: str
    changelog: str | None = None
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    metadata: dict[TopicPartition, str | None] = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    @classmethod
    def find(
        cls, admin: TopicAdmin, group: str, topics: Sequence[str], store: str, state_dir: Path, timeout: float = 30.0
    ) -> "StoreToForget":
        """Find the parts of a store.

        Args:
            admin: client for topics and offsets.
            group: the consumer group.
            topics: the topic of the store, or the merged topics.
            store: the name of the store.
            state_dir: the state directory of the application.
            timeout: seconds to wait for each response of the cluster.

        Raises:
            InvalidOperationError: if the group has members, or the store does not exist.
            KafkaRequestError: if Kafka does not respond.
        """
        if admin.group_is_active(group, timeout=timeout):
            raise InvalidOperationError(
                f"consumer group {group!r} has members: stop all instances of the application before you forget a store; "
                "killed instances count until their sessions time out"
            )
        scope = stream_id(topics)
        changelog = changelog_topic_name(group, scope, store)
        found = admin.inspect_topics([changelog, *topics], timeout=timeout)
        configs = {topic: found[topic] for topic in topics}
        partitions = [
            TopicPartition(topic, number)
            for topic, config in configs.items()
            for number in range(0 if config is None else config.num_partitions or 0)
        ]
        committed = admin.committed_stable(group, partitions, timeout=timeout) if partitions else {}
        offsets: dict[TopicPartition, int] = {}
        metadata: dict[TopicPartition, str | None] = {}
        for partition, each in committed.items():
            if each.offset is not None and CommittedMetadata.decode(each.metadata).names(scope, store):
                offsets[partition], metadata[partition] = each.offset, without_store(each.metadata, scope, store)
        with locked_parts(state_dir, group) as parts:
            files = tuple(
                sorted(path for part in parts for path in (part / escaped(scope) / escaped(store)).glob("[0-9]*"))
            )
        exists = found[changelog] is not None
        if not (exists or offsets or files):
            raise InvalidOperationError(
                f"consumer group {group!r} has no store {store!r} of {scope}: there is no topic {changelog}, no committed "
                f"offset names the store, and {state_dir} has no files of it"
            )
        return cls(group, scope, store, changelog if exists else None, offsets, metadata, files)

    def lines(self) -> Iterator[str]:
        """Yield descriptions of the parts to delete, one line each."""
        if self.changelog is not None:
            yield f"the topic {self.changelog}"
        if self.offsets:
            partitions = ", ".join(map(str, sorted(self.offsets)))
            yield f"the name of the store in the metadata of the committed offsets of {partitions}; the offsets stay"
        for path in self.files:
            yield f"the directory {path}"

    def forget(self, admin: TopicAdmin, state_dir: Path, timeout: float = 30.0) -> None:
        """Delete all parts. It can be called again after an error.

        Raises:
            InvalidOperationError: if an instance of the application is running.
            KafkaRequestError: if Kafka rejects a request.
        """
        # First the metadata, which makes the next start require the changelog; last the changelog. The remaining parts
        # are consistent after each step.
        admin.set_committed(self.group, self.offsets, self.metadata)
        with locked_parts(state_dir, self.group):
            for path in self.files:
                RocksDBStore(self.store, self.scope, path.parents[2]).destroy(int(path.name))
                for parent in path.parents[:2]:
                    with contextlib.suppress(OSError):
                        parent.rmdir()
        if self.changelog is not None:
            admin.delete_topics([self.changelog], timeout=timeout)


@contextlib.contextmanager
def claimed_store(
    admin: TopicAdmin,
    connection: ConnectionConfig,
    group: str,
    topics: Sequence[str],
    store: str,
    state_dir: Path,
    timeout: float = 30.0,
) -> Iterator[StoreToForget]:
    """Find the parts of a store, while no other process changes what the group has.

    Raises:
        InvalidOperationError: as `StoreToForget.find`, and if another process has the group.
        KafkaRequestError: if Kafka does not respond.
    """
    look = partial(StoreToForget.find, admin, group, topics, store, state_dir, timeout)
    places = {*topics, changelog_topic_name(group, stream_id(topics), store)}
    with claimed_group(admin, connection, group, places, look, timeout) as (found, held):
        held.confirm()
        yield found


def forget_store(
    admin: TopicAdmin,
    connection: ConnectionConfig,
    config: ApplicationConfig,
    topic: Topic | str | Sequence[Topic | str],
    store: str,
) -> list[str]:
    """Reset one store of an application; return descriptions of the deleted parts, one line each.

    Args:
        admin: client for topics and offsets.
        connection: connection to the brokers.
        config: the application's configuration.
        topic: the topic of the store, or the merged topics.
        store: the name of the store.

    Raises:
        InvalidOperationError: if an instance of the application is running, or the store does not exist.
        KafkaRequestError: if Kafka does not respond, or rejects a request.
    """
    given = [topic] if isinstance(topic, Topic | str) else topic
    if not isinstance(given, Sequence) or not all(isinstance(each, Topic | str) for each in given):
        raise ArgumentTypeError(f"forget_store() needs a topic, or a list of topics, got {topic!r}")
    if not isinstance(store, str):
        raise ArgumentTypeError(f"forget_store() needs the name of a store, got {type(store).__name__}")
    topics = [each.name if isinstance(each, Topic) else each for each in given]
    state_dir, timeout = config.state_dir.absolute(), config.request_timeout
    admin.wait_for_broker(config.broker_start_timeout)
    with claimed_store(admin, connection, config.consumer_group, topics, store, state_dir, timeout) as found:
        found.forget(admin, state_dir, timeout)
    return list(found.lines())
