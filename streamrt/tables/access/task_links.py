"""How the processes of tasks reach the topics of tables."""

from typing import Any

from streamrt.kafka import ConnectionConfig
from streamrt.secret import Secret
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.tables.access.links import TableLinks

__all__ = ["TaskLinks"]


class TaskLinks:
    """Reaches the topics of a cluster. It can be pickled: the connection is a secret, which is sent apart.

    Args:
        connection: connection to the brokers.
        timeout: seconds to wait for answers.
    """

    def __init__(self, connection: ConnectionConfig, timeout: float) -> None:
        self._begin(Secret(connection.to_secret_json()), timeout)

    def _begin(self, connection: Secret, timeout: float) -> None:
        self._connection = connection
        self.timeout = timeout
        self._links: KafkaLinks | None = None

    @property
    def links(self) -> TableLinks:
        """The links, which are made when they are needed."""
        if self._links is None:
            self._links = KafkaLinks(ConnectionConfig.from_secret_json(self._connection.reveal()), self.timeout)
        return self._links

    def close(self) -> None:
        """Close the connections."""
        if self._links is not None:
            self._links.close()
            self._links = None

    def __getstate__(self) -> Any:
        return self._connection, self.timeout

    def __setstate__(self, state: Any) -> None:
        self._begin(*state)
