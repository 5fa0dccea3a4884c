"""`MySqlCdcLiteSource`: the changes of one table of MySQL or MariaDB, as records."""

from streamrt.connectors.argument_checks import checked_text
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import CredentialInput
from streamrt.connectors.mysql.mysql_cdc import MySQLCdcSource

__all__ = ["MySqlCdcLiteSource"]


class MySqlCdcLiteSource(MySQLCdcSource):
    """Produces the changes of one table of MySQL or MariaDB, from its first start on, without the rows that it has.

    Records and guarantee are those of `MySQLCdcSource`, which has more options. Needs the extra `mysql`.

    Args:
        host: host of the server.
        user: name of the user.
        password: the password, or a function that returns it, which is called in the process of the source.
        database: name of the database.
        table: name of the table.
        port: port of the server.
        commit_interval: seconds between flushes.
        tls: True for TLS with a certificate that the system trusts, or the path of a file of trusted certificates;
            False for no encryption.
        name: name of the source, unique in the application; by default made of the database and the table.
        shutdown_timeout: seconds that the source has to end when the application stops.
        on_client_connect_success: called without arguments after the first connection.
        on_client_connect_failure: called with the exception if the first connection fails.

    Raises:
        ConfigurationError: if an argument cannot be used, or a library is not installed.

    Example:
        ```python
        orders = MySqlCdcLiteSource("db", "replicator", lambda: os.environ["DB_PASSWORD"], "shop", "orders")
        sdf = app.dataframe(source=orders)
        ```
    """

    def __init__(
        self,
        host: str,
        user: str,
        password: CredentialInput,
        database: str,
        table: str,
        port: int = 3306,
        commit_interval: float = 5.0,
        tls: bool | str = True,
        name: str | None = None,
        shutdown_timeout: float = 10,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
    ) -> None:
        super().__init__(
            host,
            user,
            password,
            database,
            [checked_text("MySqlCdcLiteSource", "table", table)],
            port,
            f"mysql-cdc-{database}-{table}" if name is None else name,
            shutdown_timeout,
            on_client_connect_success,
            on_client_connect_failure,
            tls=tls,
            snapshot="never",
            commit_interval=commit_interval,
        )
