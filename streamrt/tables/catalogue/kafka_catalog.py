"""`KafkaCatalog`: the catalogue in a compacted topic.

A change is a compare-and-set: the writer takes the transactional id that all writers share, which ends the transactions of
others, reads the topic to its end, compares, writes and commits. If another writer takes the id in between, the commit fails,
and the change is tried again on what the topic then has. So a commit never follows a change that its writer has not seen.

The version of an object is the offset of its record, with the topic's id: a topic that was deleted and created again has the
same offsets.
"""

import logging
import random
import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

from streamrt.common.backoff import Backoff
from streamrt.common.claims import claim
from streamrt.errors import (
    CatalogConflictError,
    CatalogError,
    InvalidOperationError,
    OffsetOutOfRangeError,
    ProducerError,
    TopicConfigurationError,
    TransactionError,
)
from streamrt.kafka import KafkaError, KafkaRequestError, TopicConfig
from streamrt.records import TopicPartition
from streamrt.tables.access.links import RecordFeed, RecordSender, TableLinks
from streamrt.tables.catalogue.catalog_store import CatalogStore, Stored, conflict

__all__ = ["CATALOG_TOPIC", "KafkaCatalog"]

logger = logging.getLogger("streamrt.tables")

CATALOG_TOPIC = "_streamrt_catalog"
TRANSACTIONAL_ID = "streamrt.catalog"
_ATTEMPTS = 5
_RETRY_S = 0.5
_BATCH = 10_000
_POLL_S = 0.2
_OPEN_TRANSACTION_S = 2.0
_SHORTEST_DELIVERY_MS, _LONGEST_DELIVERY_MS = 1_000, 60_000
# Brokers keep tombstones for a day by default: a cache that is older may have missed some.
_OLDEST_CACHE_S = 3_600.0


class _Definition(NamedTuple):
    name: str
    config: TopicConfig


class _Attempts:
    """The outcome of the attempts to write one record.

    Args:
        key: key of the object.
        is_delete: whether the record deletes it.
        expected: version that the object must have.
    """

    def __init__(self, key: str, is_delete: bool, expected: str | None) -> None:
        self.key = key
        self.topic_id = ""
        self.is_unknown = False
        self.written: list[int] = []
        self._is_delete = is_delete
        self._expected = expected

    def note(self, error: Exception | None, partition: int, offset: int, timestamp: int) -> None:
        """Note the offset of a record that was delivered."""
        if error is None:
            self.written.append(offset)

    def check(self, found: Stored | None) -> str | None:
        """Return the version of the record if an attempt whose outcome was not known has written it; None if it is to write.

        Raises:
            CatalogConflictError: if the object has neither this nor the expected version.
        """
        version = None if found is None else found.version
        versions = [_make_version(offset, self.topic_id) for offset in self.written]
        if versions and (version in versions or (version is None and self._is_delete)):
            return versions[-1] if version is None else version
        if version != self._expected:
            raise conflict(self.key)
        # The attempts before were not committed, and cannot be any more: the id was taken since.
        self.is_unknown = False
        return None


@dataclass
class _Cache:
    """The part of the topic that was read.

    Attributes:
        topic_id: Kafka's id of the topic.
        feed: reads what comes after it.
        partition: the partition.
        objects: the objects by key.
        position: the next offset.
        read_at: when it was complete last, by the monotonic clock.
    """

    topic_id: str
    feed: RecordFeed
    partition: TopicPartition
    objects: dict[str, Stored]
    position: int
    read_at: float


class KafkaCatalog(CatalogStore):
    """A catalogue in a compacted topic of the tables' cluster, which the first change creates.

    Readers need READ and DESCRIBE on the topic; those without, and all while there is no topic, see an empty catalogue.
    Writers also need WRITE and CREATE, and WRITE and DESCRIBE on the transactional id `streamrt.catalog`.

    Args:
        topic: name of the topic.
        replication_factor: number of its replicas if it is created; by default that of the cluster.
    """

    def __init__(self, topic: str = CATALOG_TOPIC, replication_factor: int | None = None) -> None:
        self._topic = topic
        self._replication_factor = replication_factor
        # Writers of another topic need not wait for those of this one.
        self._transactional_id = TRANSACTIONAL_ID if topic == CATALOG_TOPIC else f"{TRANSACTIONAL_ID}.{topic}"
        self._links: TableLinks | None = None
        self._timeout = 30.0
        self._lock = threading.RLock()
        self._cache: _Cache | None = None
        self._sender: RecordSender | None = None
        # The topic that was looked at, and what is wrong with it.
        self._checked: tuple[str, str | None] | None = None

    def connect(self, links: TableLinks | None, timeout: float) -> None:  # noqa: D102
        if links is None:
            raise InvalidOperationError(
                "a catalogue in Kafka needs the address of a broker: pass it, or store=FileCatalog(directory)"
            )
        with self._lock:
            if self._links is not None and self._links is not links:
                raise InvalidOperationError("this KafkaCatalog belongs to another Catalog: make one for each")
            self._links, self._timeout = links, timeout

    def get(self, key: str) -> Stored | None:  # noqa: D102
        with self._lock:
            return self._read().get(key)

    def list(self, prefix: str = "") -> dict[str, Stored]:  # noqa: D102
        with self._lock:
            objects = self._read()
            return {key: objects[key] for key in sorted(objects) if key.startswith(prefix)}

    def put(self, key: str, value: bytes, expected: str | None) -> str:  # noqa: D102
        with self._lock:
            return self._change_object(key, value, expected)

    def delete(self, key: str, expected: str) -> None:  # noqa: D102
        with self._lock:
            self._change_object(key, None, expected)

    def close(self) -> None:  # noqa: D102
        with self._lock:
            self._drop_cache()
            self._drop_sender()
            self._links = None

    # -- Reading -------------------------------------------------------------------------------------------------

    def _read(self, is_for_change: bool = False) -> dict[str, Stored]:
        """Return all objects, as of now.

        Args:
            is_for_change: whether a topic that may not be read is an error, and no empty one: a change would overwrite what
                it does not see.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                cache = self._open_cache()
                if cache is None:
                    return {}
                self._read_to_end(cache, deadline)
            except OffsetOutOfRangeError:
                # The topic was shortened below the cache.
                self._drop_cache()
                if time.monotonic() > deadline:
                    raise
            except KafkaRequestError as error:
                self._drop_cache()
                if error.code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    failure = self._note_unreadable()
                    if is_for_change:
                        raise failure from error
                    return {}
                raise
            else:
                return cache.objects

    def _note_unreadable(self) -> CatalogError:
        """Note that the topic may not be read, and return the error of a change."""
        self.note = f"this user may not read the topic {self._topic} of the catalogue: grant READ and DESCRIBE"
        return CatalogError(
            f"the catalogue cannot be changed: {self.note}, without which objects would be overwritten unseen"
        )

    def _open_cache(self) -> _Cache | None:
        """Return the cache of the topic that exists now, or None if there is none."""
        admin = self._require_links().admin()
        topic_id = admin.topic_ids([self._topic], self._timeout)[self._topic]
        cache = self._cache
        if cache is not None and (cache.topic_id != topic_id or time.monotonic() - cache.read_at > _OLDEST_CACHE_S):
            self._drop_cache()
            cache = None
        if topic_id is None:
            self.note = f"the cluster has no topic {self._topic} yet, in which catalogues are"
            return None
        self.note = self._find_fault(topic_id)
        if cache is None:
            if self.note is not None:
                logger.warning("Objects of the catalogue may be missing: %s.", self.note)
            partition = TopicPartition(self._topic, 0)
            low = admin.offset_bounds([partition], self._timeout)[partition][0]
            cache = _Cache(topic_id, self._require_links().feed(), partition, {}, low, time.monotonic())
            self._cache = cache
            cache.feed.add({partition: low})
            cache.feed.resume([partition])
        return cache

    def _read_to_end(self, cache: _Cache, deadline: float) -> None:
        """Read the topic to its end.

        A commit is answered before the brokers have marked its records as committed, so the end is that of all records. A
        writer that crashed leaves a transaction open until the next writer comes: this is waited for shortly.
        """
        admin = self._require_links().admin()
        end = admin.offset_bounds([cache.partition], self._timeout)[cache.partition][1]
        begun = time.monotonic()
        while max(cache.position, cache.feed.ends().get(cache.partition, 0)) < end:
            left_s = deadline - time.monotonic()
            is_stable = cache.partition in cache.feed.ends()
            if is_stable and (left_s <= 0 or time.monotonic() - begun > _OPEN_TRANSACTION_S):
                break
            if left_s <= 0:
                raise CatalogError(
                    f"the catalogue in topic {self._topic} could not be read within {self._timeout:g} s: see whether the "
                    "brokers answer, or raise the timeout"
                )
            for _, batch in cache.feed.poll(min(_POLL_S, max(left_s, 0.0)), _BATCH):
                for offset, key, value in zip(batch.offsets, batch.keys, batch.values, strict=True):
                    cache.position = offset + 1
                    name = (key or b"").decode("utf-8", "replace")
                    if value is None:
                        cache.objects.pop(name, None)
                    elif name:
                        cache.objects[name] = Stored(value, _make_version(offset, cache.topic_id))
        cache.read_at = time.monotonic()

    def _drop_cache(self) -> None:
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.feed.close()

    # -- Writing -------------------------------------------------------------------------------------------------

    def _change_object(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Write a record if the object has the expected version; return the version of the record."""
        try:
            self._create_topic()
        except KafkaRequestError as error:
            if error.code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            raise self._note_unreadable() from error
        # By chance, so that two writers do not take the id from each other again and again.
        pause_s = random.uniform(_RETRY_S / 5, _RETRY_S)  # noqa: S311 - no secret
        backoff = Backoff(pause_s, time.monotonic() + self._timeout)
        attempts = _Attempts(key, value is None, expected)
        failure: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                claimed = claim(self._acquired, lambda sender: self._read(is_for_change=True))
                sender = claimed.holder
                attempts.topic_id = self._topic_id()
                done = attempts.check(claimed.seen.get(key))
                if done is not None:
                    return done
                sender.produce(self._topic, value, key.encode(), partition=0, on_delivery=attempts.note)
                sender.flush(self._timeout)
                attempts.is_unknown = True
                sender.commit()
            except (TransactionError, ProducerError) as error:
                self._drop_sender()
                failure = error
                if (isinstance(error, ProducerError) and error.refused) or not backoff.pause():
                    break
            except CatalogConflictError:
                raise
            except BaseException as error:
                # Such as an interrupt: the next change would commit this one with it.
                self._drop_sender()
                if attempts.is_unknown and isinstance(error, KafkaRequestError | CatalogError):
                    raise self._make_unknown_error(key, error) from error
                raise
            else:
                self._wait_for(attempts.written[-1])
                return _make_version(attempts.written[-1], attempts.topic_id)
        if attempts.is_unknown:
            return self._resolve_attempts(attempts, failure)
        raise CatalogError(f"the catalogue in topic {self._topic} could not be changed: {failure}") from failure

    def _resolve_attempts(self, attempts: "_Attempts", failure: Exception | None) -> str:
        """Return the version of a change whose outcome is not known, if it can be seen.

        Raises:
            CatalogConflictError: if other writers were faster each time.
            CatalogError: if the outcome stays unknown.
        """
        is_fenced = isinstance(failure, TransactionError) and failure.fenced
        try:
            done = attempts.check(self._read().get(attempts.key))
        except (KafkaRequestError, CatalogError, OffsetOutOfRangeError) as error:
            if isinstance(error, CatalogConflictError):
                raise
            raise self._make_unknown_error(attempts.key, failure or error) from failure
        if done is not None:
            return done
        if is_fenced:
            # Whoever took the id has ended the transaction.
            raise conflict(attempts.key) from failure
        raise self._make_unknown_error(attempts.key, failure) from failure

    def _make_unknown_error(self, key: str, error: object) -> CatalogError:
        kind, _, name = key.partition("/")
        return CatalogError(
            f"it is not known whether {kind} {name!r} was changed, because the brokers did not answer the commit to topic "
            f"{self._topic} ({error}): read it when they answer again, and repeat the change if it is not there"
        )

    def _wait_for(self, offset: int) -> None:
        """Wait until readers see a record that was committed."""
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            try:
                self._read()
            except (KafkaRequestError, CatalogError, OffsetOutOfRangeError):
                # The change is made, whatever became of the brokers since.
                return
            if self._cache is None or self._cache.position > offset:
                return

    def _topic_id(self) -> str:
        """Return the id of the topic that was read last."""
        return "" if self._cache is None else self._cache.topic_id

    def _acquired(self) -> RecordSender:
        """Return a writer that has the transactional id, as far as it knows."""
        if self._sender is not None and not self._sender.usable:
            self._drop_sender()
        if self._sender is None:
            # Otherwise brokers that do not answer are waited for until the transaction ends, a minute later.
            delivery_ms = max(_SHORTEST_DELIVERY_MS, min(_LONGEST_DELIVERY_MS, round(self._timeout * 1_000)))
            options = {"message.timeout.ms": delivery_ms}
            self._sender = self._require_links().sender(options, self._transactional_id)
        return self._sender

    def _drop_sender(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()

    def _create_topic(self) -> None:
        """Create the topic if there is none, and check it otherwise."""
        admin = self._require_links().admin()
        topic_id = admin.topic_ids([self._topic], self._timeout)[self._topic]
        if topic_id is None:
            config = TopicConfig(1, self._replication_factor, {"cleanup.policy": "compact"})
            admin.create_topics([_Definition(self._topic, config)], self._timeout, self._timeout)
            topic_id = admin.topic_ids([self._topic], self._timeout)[self._topic]
        # Another program, or the brokers, may have created it in another way at the same moment.
        fault = None if topic_id is None else self._find_fault(topic_id, is_for_change=True)
        if fault is not None:
            self._checked = None
            raise TopicConfigurationError(f"{fault}: change the topic, or choose another one")

    def _find_fault(self, topic_id: str, is_for_change: bool = False) -> str | None:
        """Return why a topic cannot hold a catalogue, in one clause.

        Args:
            topic_id: Kafka's id of the topic.
            is_for_change: whether to look again at a topic that could not, because somebody may have mended it.
        """
        if self._checked is None or self._checked[0] != topic_id or (is_for_change and self._checked[1] is not None):
            try:
                found = self._require_links().admin().inspect_topics([self._topic], self._timeout)[self._topic]
            except KafkaRequestError as error:
                # Settings need a further right, DESCRIBE_CONFIGS.
                if error.code not in (
                    KafkaError.TOPIC_AUTHORIZATION_FAILED,
                    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                ):
                    raise
                found = None
            policy = "compact" if found is None else found.extra_config.get("cleanup.policy", "compact")
            count = 1 if found is None else found.num_partitions
            fault = None
            if count != 1 or policy != "compact":
                fault = (
                    f"topic {self._topic} has {count} partitions and cleanup.policy={policy}, and a catalogue needs 1 "
                    "partition and cleanup.policy=compact"
                )
            self._checked = (topic_id, fault)
        return self._checked[1]

    def _require_links(self) -> TableLinks:
        if self._links is None:
            raise InvalidOperationError("the store is not connected: give it to a Catalog")
        return self._links


def _make_version(offset: int, topic_id: str) -> str:
    return f"{offset}@{topic_id}"
