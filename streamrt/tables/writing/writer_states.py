"""The states of writers: a compacted topic with the last checkpoint of each.

```
topic      _streamrt_writers, in partition 0
key        <topic of the rows>/<id of the writer>
value      {"v":1,"state":"page-7","token":"{...}","topic":"shop.orders","topic_id":"kT3..."}
```

- A record is in the Kafka transaction of the rows that its token means, so both are there or neither is.
- `token` is the text of `Offsets`: all rows of this id up to the checkpoint.
- The topic is unique in the cluster, whereas catalogues may have tables of the same name: two writers with one id are the
  same only if their rows are in the same topic. Former versions had the name of the table in the key, which differs if the
  topic was chosen; such a record is read if its rows are in this topic, and there is no other.
- `topic` and `topic_id` are those of the rows. A topic that was deleted and created again has no rows of the former one,
  so the state is also dropped.
- A null value, or no record, means that there is no state. A higher `v` is refused.
- All partitions but 0 are unused, so that more of them change nothing.
"""

import contextlib
import json
import logging
import time
from typing import Any, NamedTuple

from streamrt.errors import StateError, StoreVersionError, TokenVersionError, TopicConfigurationError
from streamrt.kafka.client import KafkaRequestError
from streamrt.kafka.cluster.topic_config import TopicConfig
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.tables.access.links import TableLinks
from streamrt.topics import Topic

__all__ = ["WRITERS_TOPIC", "Saved", "WriterStates"]

WRITERS_TOPIC = "_streamrt_writers"
"""Topic with the states of all writers of a cluster."""

logger = logging.getLogger("streamrt.tables")

_PARTITION = TopicPartition(WRITERS_TOPIC, 0)
_VERSION = 1
_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024), "min.cleanable.dirty.ratio": "0.1"}
_POLL_S = 1.0
_POLL_RECORDS = 10_000
_LONGEST = 4
"""How many times as long as the timeout the topic may be read in all, however slowly records come."""


class Saved(NamedTuple):
    """The record that a writer's last checkpoint has left.

    Attributes:
        state: the writer's text; None if there is no checkpoint.
        token: all rows of the writer's id up to it.
        offset: offset of the record; -1 if there is none.
        is_former: whether it has the key of former versions.
    """

    state: str | None = None
    token: Offsets = Offsets({})
    offset: int = -1
    is_former: bool = False


class WriterStates:
    """Reads the state of one writer, and makes the records that change it.

    Args:
        links: how topics are reached.
        table: name of the table.
        writer_id: id of the writer.
        topic: topic of the table.
        topic_id: Kafka's id of the topic, if known.
        timeout: seconds to wait for answers.
    """

    def __init__(
        self, links: TableLinks, table: str, writer_id: str, topic: str, topic_id: str | None, timeout: float
    ) -> None:
        self._links = links
        self._who = f"writer {writer_id!r} of table {table!r}"
        self._key = f"{topic}/{writer_id}".encode()
        self.former_key = f"{table}/{writer_id}".encode()
        self._topic = topic
        self._topic_id = topic_id
        self._timeout = timeout

    def prepare(self, replication_factor: int | None) -> None:
        """Create the topic if there is none.

        Args:
            replication_factor: number of its replicas; None leaves it to the cluster.

        Raises:
            TopicConfigurationError: if the topic exists, and would forget states.
            TopicCreationError: if it cannot be created.
        """
        admin = self._links.admin()
        found = admin.inspect_topics([WRITERS_TOPIC], self._timeout)[WRITERS_TOPIC]
        if found is None:
            admin.create_topics(
                [Topic(WRITERS_TOPIC, TopicConfig(1, replication_factor, dict(_CONFIG)))], self._timeout
            )
        elif found.extra_config.get("cleanup.policy", "compact") != "compact":
            raise TopicConfigurationError(
                f"topic {WRITERS_TOPIC!r} keeps the states of writers and has cleanup.policy="
                f"{found.extra_config['cleanup.policy']}, which would delete them: set it to compact"
            )

    def read(self) -> Saved:
        """Return the last checkpoint. No other writer with the id may commit meanwhile: take its transactional id first.

        Raises:
            KafkaRequestError: if the topic could not be read to its end in time: nothing came for the timeout, or it took
                several times as long in all.
            StateError: if the record cannot be understood.
        """
        # The high watermark, and not the last stable offset, below which the own last record need not be.
        start, end = self._links.admin().offset_bounds([_PARTITION], self._timeout)[_PARTITION]
        found: dict[bytes, tuple[int, bytes | None]] = {}
        with contextlib.closing(self._links.feed()) as feed:
            feed.add({_PARTITION: start})
            feed.resume([_PARTITION])
            begun = time.monotonic()
            latest, last = begun + _LONGEST * self._timeout, start - 1
            deadline = begun + self._timeout
            while start < end and feed.ends().get(_PARTITION, -1) < end:
                batches = feed.poll(min(_POLL_S, self._timeout), _POLL_RECORDS)
                for _, batch in batches:
                    for at, key, content in zip(batch.offsets, batch.keys, batch.values, strict=True):
                        last = at
                        if key is not None and key in (self._key, self.former_key):
                            found[key] = at, content
                now = time.monotonic()
                if batches and last < end - 1:
                    deadline = now + self._timeout
                if now > latest or (not batches and now > deadline):
                    raise self._make_late_error(now - begun, last + 1, end)
        offset, value = found.get(self._key, (-1, None))
        if offset >= 0 or self._key == self.former_key:
            return Saved(offset=offset) if value is None else self._parse_state(value, offset)
        offset, value = found.get(self.former_key, (-1, None))
        former = Saved() if value is None else self._parse_state(value, offset, is_former=True)
        return Saved() if former.state is None else former._replace(is_former=True)

    def record(self, state: str, token: Offsets) -> tuple[bytes, bytes]:
        """Return key and value of the record of a checkpoint."""
        value = {
            "v": _VERSION,
            "state": state,
            "token": str(token),
            "topic": self._topic,
            "topic_id": self._topic_id,
        }
        return self._key, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def _make_late_error(self, waited_s: float, reached: int, end: int) -> KafkaRequestError:
        return KafkaRequestError(
            f"the state of {self._who} was not read within {waited_s:.3g} s: {_PARTITION} has offsets up to {end}, and no "
            f"record came after offset {reached}, because a transaction of another writer is open there, or brokers do not "
            "answer in time: try again; brokers end such a transaction after its transaction.timeout.ms",
            retriable=True,
        )

    def _parse_state(self, value: bytes, offset: int, *, is_former: bool = False) -> Saved:
        key = self.former_key if is_former else self._key
        where = f"the state of {self._who} at offset {offset} of {_PARTITION}"
        try:
            document: dict[str, Any] = json.loads(value)
            version = document["v"]
            if type(version) is int and version > _VERSION:
                raise StoreVersionError(
                    f"a newer version of StreamRT wrote {where} (format {version}, this one knows {_VERSION}): "
                    "upgrade StreamRT"
                )
            saved = Saved(str(document["state"]), Offsets.parse(document["token"]), offset)
            topic, topic_id = document["topic"], document["topic_id"]
        except TokenVersionError as error:
            raise StoreVersionError(f"{where} has a newer token: {error}") from None
        except (KeyError, RecursionError, TypeError, ValueError):
            raise StateError(
                f"{where} cannot be read: another program wrote to the topic; write a record without a value for the key "
                f"{key.decode()!r} to begin without a state"
            ) from None
        if topic != self._topic and is_former:
            # It belongs to a table of this name in another catalogue.
            return Saved()
        if topic != self._topic or topic_id != self._topic_id:
            again = (
                "another topic" if topic != self._topic else "a topic of this name that was deleted and created again"
            )
            logger.warning("The state of %s is dropped, because its rows are in %s", self._who, again)
            return Saved(offset=offset)
        return saved
