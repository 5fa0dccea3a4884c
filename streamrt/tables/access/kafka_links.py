"""Tables on Kafka."""

import threading
from collections.abc import Mapping
from typing import Any

from streamrt.kafka.cluster.admin import TopicAdmin
from streamrt.kafka.connection import ConnectionConfig, HoldsSecrets, as_connection
from streamrt.kafka.reading.partition_feed import PartitionFeed
from streamrt.kafka.writing.sender import KafkaSender, TransactionalSender
from streamrt.tables.access.links import RecordFeed, RecordSender, TableAdmin

__all__ = ["KafkaLinks"]


class KafkaLinks(HoldsSecrets):
    """Reaches the topics of a cluster. It may be used in any thread.

    Args:
        connection: connection to the brokers.
        timeout: seconds to wait for a transactional id.
    """

    def __init__(self, connection: str | ConnectionConfig, timeout: float = 30.0) -> None:
        self.connection = as_connection(connection)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._admin: TopicAdmin | None = None

    def admin(self) -> TableAdmin:
        """Return the administration; one for all callers, which `close` closes."""
        with self._lock:
            if self._admin is None:
                self._admin = TopicAdmin(self.connection)
            return self._admin

    def feed(self, options: Mapping[str, Any] | None = None) -> RecordFeed:
        """Return a new reader; the caller closes it.

        Args:
            options: consumer options of librdkafka.
        """
        return PartitionFeed(self.connection, options)

    def sender(self, options: Mapping[str, Any] | None = None, transactional_id: str | None = None) -> RecordSender:
        """Return a new writer; the caller closes it.

        Args:
            options: producer options of librdkafka.
            transactional_id: id under which one writer at a time can commit: earlier ones with it are fenced, and their
                open transactions aborted, before this returns.

        Raises:
            ConfigurationError: if an option contradicts this.
            TransactionError: if the id was not acquired.
        """
        if transactional_id is None:
            return KafkaSender(self.connection, options)
        return TransactionalSender(self.connection, transactional_id, options, self._timeout)

    def close(self) -> None:
        """Close the administration."""
        with self._lock:
            admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
