"""A sink for MySQL and MariaDB."""

import datetime
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamrt.connectors.argument_checks import checked_type
from streamrt.connectors.clients import ClientConnectFailureCallback, ClientConnectSuccessCallback
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.libraries import require_library
from streamrt.connectors.mysql.mysql_inserts import RowWriter, StatementRunner
from streamrt.connectors.mysql.mysql_values import code_of, key_type, reason_of, type_of
from streamrt.connectors.retries import Retries
from streamrt.connectors.sinks.batch import SinkBatch
from streamrt.connectors.sinks.transactional import SinkCommit, SinkPosition
from streamrt.connectors.sql.sql_rows import TableRows
from streamrt.connectors.sql.sql_sink import PrimaryKeyColumns, SQLSink, TableName
from streamrt.connectors.sql.sql_statement import Parameters, Statement
from streamrt.connectors.tls import TLS, check_tls, tls_context
from streamrt.errors import ArgumentValueError, SinkError
from streamrt.secret import Secret

if TYPE_CHECKING:
    import pymysql

__all__ = ["MySQLSink"]

_LONGEST_NAME = 255
_PARAMETERS = frozenset({
    "bind_address", "program_name", "ssl_ca", "ssl_cert", "ssl_disabled", "ssl_key", "ssl_key_password",
    "ssl_verify_cert", "ssl_verify_identity", "unix_socket",
})  # fmt: skip
# Errors of the client (2000 and more) are those of the connection, but for TLS and plugins of authentication.
_CLIENT_ERRORS = range(2_000, 3_000)
_LASTING_CLIENT_ERRORS = frozenset({2026, 2054, 2058, 2059, 2061})
# Errors of the server that an operator or time may cure: locks, resources, connections, shutdown, failover; see
# https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html and https://mariadb.com/kb/en/mariadb-error-codes/.
_PASSING = frozenset({
    1020, 1021, 1030, 1037, 1038, 1040, 1041, 1047, 1053, 1114, 1129, 1152, 1158, 1159, 1160, 1161, 1180, 1184, 1203,
    1205, 1206, 1213, 1226, 1290, 1317, 1412, 1637, 1836, 1927, 1969, 3024, 3100, 3101, 3168, 3169, 3572, 4031,
})  # fmt: skip
# Errors of the server whose text names only users, hosts and databases.
_SPOKEN = frozenset({1040, 1044, 1045, 1049, 1129, 1130, 1203, 1205, 1213, 1226, 1290, 1698, 1836, 1969})
_NO_TABLE = 1146
# About the columns of a table: names, number, size of a row.
_COLUMN_CODES = frozenset({1059, 1060, 1117, 1118, 1166})
_EXACT_COLLATIONS = ("utf8mb4_0900_bin", "utf8mb4_nopad_bin")


class MySQLSink(SQLSink):
    """Writes dicts to tables of a MySQL or MariaDB database, each value once.

    The fields of a value are columns; tables and columns are created when they first occur. Tables must be stored by an
    engine with transactions, such as InnoDB. Needs the extra `mysql`.

    Args:
        host: host of the server.
        user: name of the user.
        password: the password, or a function that returns it. The process that opens a connection calls the function.
        database: name of the database; it must exist.
        table_name: name of the table, or a function that returns it for an item. None with `statement`.
        port: port of the server.
        schema_auto_update: whether missing tables and columns are created.
        connection_timeout_seconds: time limit for opening a connection, in seconds.
        statement_timeout_seconds: time limit for one statement, and for its waits for locks, in seconds.
        primary_key_columns: columns of the primary key of tables that the sink creates, or a function that returns them
            for an item. Use `__key` for the key of the record. There, text has 255 characters at most.
        upsert_on_primary_key: whether a row replaces the columns of the one with its primary key.
        on_conflict_do_nothing: whether a row is dropped if its primary key exists.
        include_metadata: whether the columns `__key` (the key of the record as text) and `timestamp` (its event time)
            are added.
        on_client_connect_success: called without arguments after `setup` succeeds.
        on_client_connect_failure: called with the exception when `setup` fails.
        statement: a statement that is run for each item, instead of writing a row: INSERT, UPDATE, DELETE, REPLACE or WITH,
            with parameters such as `:sku`. Needs `name`, and goes without options of tables.
        parameters: returns the parameters for an item by name; by default, they are the fields of its value.
        position_table: name of the table, in the same database, that holds the positions of the group; None to write
            values at least once, without positions.
        name: name of the sink, unique in the application; by default database and table. Required if `table_name` is a
            function.
        retries: how requests are repeated while the server is away.
        tls: True for TLS with a certificate that the system trusts, the path of a file of trusted certificates, or False
            for none; by default, PyMySQL decides.
        **kwargs: further parameters of the connection: `unix_socket`, `bind_address`, `program_name` and those that
            begin with `ssl_`, such as `ssl_cert` for a certificate of the client.

    Raises:
        ConfigurationError: if an argument cannot be used, or PyMySQL is not installed.

    Example:
        ```python
        sink = MySQLSink(
            host="localhost",
            user="streamrt",
            password=lambda: os.environ["MYSQL_PWD"],
            database="shop",
            table_name="orders",
            primary_key_columns="order_id",
            upsert_on_primary_key=True,
        )
        sdf.sink(sink)
        ```
    """

    # Of InnoDB.
    _most_columns = 1_017
    # In bytes; in characters, it is 64.
    _longest_identifier = 256
    _position_type = "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    _position_text = "LONGTEXT CHARACTER SET utf8mb4"
    _table_options = " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4"

    def __init__(
        self,
        host: str,
        user: str,
        password: CredentialInput,
        database: str,
        table_name: TableName | None = None,
        port: int = 3306,
        schema_auto_update: bool = True,
        connection_timeout_seconds: int = 30,
        statement_timeout_seconds: int = 30,
        primary_key_columns: PrimaryKeyColumns = (),
        upsert_on_primary_key: bool = False,
        on_conflict_do_nothing: bool = False,
        include_metadata: bool = True,
        on_client_connect_success: ClientConnectSuccessCallback | None = None,
        on_client_connect_failure: ClientConnectFailureCallback | None = None,
        *,
        statement: str | None = None,
        parameters: Parameters | None = None,
        position_table: str | None = "streamrt_positions",
        name: str | None = None,
        retries: Retries | None = None,
        tls: TLS = None,
        **kwargs: Any,
    ) -> None:
        require_library("MySQLSink", "pymysql", "mysql")
        super().__init__(
            table_name,
            statement=statement,
            parameters=parameters,
            schema_auto_update=schema_auto_update,
            primary_key_columns=primary_key_columns,
            upsert_on_primary_key=upsert_on_primary_key,
            on_conflict_do_nothing=on_conflict_do_nothing,
            include_metadata=include_metadata,
            position_table=position_table,
            name=name,
            retries=retries,
            on_client_connect_success=on_client_connect_success,
            on_client_connect_failure=on_client_connect_failure,
        )
        for option, text in (("host", host), ("user", user), ("database", database)):
            checked_type("MySQLSink", option, text, str, "a non-empty string", bool)
        for option, number, least in (
            ("port", port, "1"),
            ("connection_timeout_seconds", connection_timeout_seconds, "1 second"),
            ("statement_timeout_seconds", statement_timeout_seconds, "1 second"),
        ):
            checked_type("MySQLSink", option, number, int, f"{least} or more", lambda number: number >= 1)
        unknown = sorted(kwargs.keys() - _PARAMETERS)
        if unknown:
            raise ArgumentValueError(
                f"MySQLSink has no parameter {unknown[0]!r}; those of the connection are {', '.join(sorted(_PARAMETERS))}"
            )
        check_tls("MySQLSink", tls, kwargs, ("ssl_ca", "ssl_disabled", "ssl_verify_cert", "ssl_verify_identity"))
        fault = _position_fault(self.name)
        if fault is not None:
            raise ArgumentValueError(f"MySQLSink(name=...) {fault}")
        self._settings: dict[str, Any] = {"host": host, "port": port, "database": database, "user": user}
        self._connection_timeout = connection_timeout_seconds
        self._statement_timeout = statement_timeout_seconds
        self._password = Credential(password, "MySQLSink(password=...)")
        # Other parameters may also hold secrets, such as `ssl_key_password`.
        self._hidden = Secret(json.dumps(kwargs))
        self._tls = tls
        self._largest_packet = 0
        self._collation = "utf8mb4_bin"
        # Tables with unique indexes besides the primary key.
        self._other_keys: set[str] = set()
        # Columns of each table in which equal strings have the same characters.
        self._exact_texts: dict[str, frozenset[str]] = {}

    def __repr__(self) -> str:
        return f"MySQLSink({', '.join(map(repr, self._settings.values()))}, ***, {self.destination!r})"

    @property
    def destination(self) -> str:  # noqa: D102
        settings = getattr(self, "_settings", None)
        return f"{settings['database']}.{super().destination}" if settings else super().destination

    def setup(self) -> None:
        """Connect, and create the table of positions.

        Raises:
            SinkError: if there is no connection, the database does not exist, or the table cannot be created.
        """
        import pymysql

        try:
            super().setup()
        except (pymysql.Error, OSError, ValueError, RuntimeError) as error:
            raise SinkError(f"{self._server} cannot be used: {self._error_reason(error)}") from None

    def positions(self, group: str, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], SinkPosition]:  # noqa: D102
        self._check_group(group)
        return super().positions(group, partitions)

    def write_transaction(self, batches: Sequence[SinkBatch], commit: SinkCommit) -> None:  # noqa: D102
        if commit.positions:
            self._check_group(commit.group)
        super().write_transaction(batches, commit)

    def _check_group(self, group: str) -> None:
        fault = _position_fault(group)
        if fault is not None and self._position_table is not None:
            raise SinkError(
                f"the consumer group cannot have a position in table {self._position_table!r}: its name {fault}"
            )

    def _request_retried(self, request: Callable[[], Any], what: str) -> Any:
        import pymysql

        try:
            return super()._request_retried(request, what)
        except pymysql.Error as error:
            raise SinkError(f"the sink {self.name}: {what} failed: {self._error_reason(error)}") from None

    def _connect(self) -> "pymysql.Connection[Any]":
        import pymysql
        from pymysql.constants import CLIENT

        seconds = self._statement_timeout
        connection = pymysql.connect(
            **self._settings,
            **self._tls_settings(),
            **json.loads(self._hidden.reveal()),
            password=self._password.reveal(),
            charset="utf8mb4",
            autocommit=False,
            # The number of rows that an update has found, not only of those that it has changed.
            client_flag=CLIENT.FOUND_ROWS,
            # Values that do not fit are errors. Quotes and backslashes have the meaning that literals expect.
            sql_mode="TRADITIONAL",
            connect_timeout=self._connection_timeout,
            # The server gives up first, and tells why.
            read_timeout=seconds + 5,
            write_timeout=seconds + 5,
        )
        if self._tls and not connection._secure:
            # Older clients go on without a word.
            connection.close()
            raise SinkError(f"{self._server} has no TLS: give it a certificate, or use tls=False")
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute(
                f"SET SESSION time_zone = '+00:00', lock_wait_timeout = {seconds}, innodb_lock_wait_timeout = {seconds},"
                " sql_notes = 1, max_error_count = 65535"
            )
            if "mariadb" in connection.get_server_info().lower():
                cursor.execute(f"SET SESSION max_statement_time = {seconds}")
            cursor.execute("SELECT @@max_allowed_packet")
            self._largest_packet = int(cursor.fetchone()[0])
            # In others, keys that differ in case, in accents or in spaces at their end would be equal.
            cursor.execute(
                "SELECT COLLATION_NAME FROM information_schema.COLLATIONS WHERE COLLATION_NAME IN (%s, %s)",
                _EXACT_COLLATIONS,
            )
            self._collation = (cursor.fetchone() or ("utf8mb4_bin",))[0]
        connection.commit()
        return connection

    def _tls_settings(self) -> dict[str, Any]:
        if self._tls is None:
            return {}
        if self._tls is False:
            return {"ssl_disabled": True}
        try:
            return {"ssl": tls_context(self._tls)}
        except OSError as error:
            raise SinkError(f"MySQLSink cannot read certificates from {self._tls}: {error.strerror}") from None

    @property
    def _server(self) -> str:
        where = self._settings
        return f"the MySQL database {where['database']!r} at {where['host']}:{where['port']}"

    def _may_pass(self, error: BaseException) -> bool:
        import pymysql

        if not isinstance(error, pymysql.Error):
            return False
        code = code_of(error)
        if code in _CLIENT_ERRORS:
            return code not in _LASTING_CLIENT_ERRORS
        # The driver has no number for a connection that is closed or out of step.
        broken = pymysql.InterfaceError | pymysql.InternalError | pymysql.OperationalError
        return code in _PASSING or (not code and isinstance(error, broken))

    def _error_reason(self, error: BaseException) -> str:
        import pymysql

        if isinstance(error, SinkError):
            return str(error)
        code = code_of(error) if isinstance(error, pymysql.Error) else 0
        if code and code not in _CLIENT_ERRORS and code not in _SPOKEN:
            # The server's text may quote values.
            return reason_of(code)
        text = (str(error.args[-1] if error.args else "").splitlines() or [""])[0] or type(error).__name__
        return self._password.masked(text)

    def _type_of(self, value: Any) -> str | None:
        return type_of(value)

    def _key_type(self, kind: str) -> str:
        return key_type(kind, self._collation)

    def _make_timestamp(self, milliseconds: int) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(0, datetime.timezone.utc) + datetime.timedelta(milliseconds=milliseconds)

    def _quote_name(self, name: str) -> str:
        doubled = name.replace("`", "``")
        return f"`{doubled}`"

    def _adapt_statement(self, text: str) -> str:
        return text.replace("%", "%%").replace("?", "%s")

    def _fold_name(self, name: str) -> str:
        return name.lower()

    def _find_fault(self, name: Any) -> str | None:
        if isinstance(name, str):
            if len(name) > 64:
                return f"a name must have 64 characters at most, not {len(name)}"
            if name.endswith(" ") or any(character > "\uffff" for character in name):
                return "a name must not end with a space, and must not contain characters above U+FFFF"
        return super()._find_fault(name)

    def _find_columns(self, table: str) -> dict[str, str]:
        import pymysql

        with self._open_transaction() as cursor:
            try:
                cursor.execute(f"SHOW FULL COLUMNS FROM {self._quote_name(table)}")
            except pymysql.Error as error:
                if code_of(error) != _NO_TABLE:
                    raise
                return {}
            # Field, Type, Collation, ...
            found = cursor.fetchall()
        columns = {row[0]: row[1] for row in found}
        self._exact_texts[table] = frozenset(row[0] for row in found if row[2] in _EXACT_COLLATIONS)
        if self._position_table is not None:
            self._check_engine(table)
        return columns

    def _check_engine(self, table: str) -> None:
        found = self._run_query(
            "SELECT t.TABLE_NAME, t.ENGINE FROM information_schema.TABLES t"
            " JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE"
            " WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = ? AND e.TRANSACTIONS = 'NO'",
            table,
        )
        # Some servers ignore the case of names.
        engine = next((row[1] for row in found if row[0] in (table, table.lower())), None)
        if engine is not None:
            raise _without_transactions(table, engine)

    def _find_primary_key(self, table: str) -> tuple[str, ...]:
        with self._open_transaction() as cursor:
            cursor.execute(f"SHOW KEYS FROM {self._quote_name(table)}")
            # Table, Non_unique, Key_name, Seq_in_index, Column_name, ...
            unique = [row for row in cursor.fetchall() if not int(row[1])]
        self._other_keys.discard(table)
        if any(row[2] != "PRIMARY" for row in unique):
            self._other_keys.add(table)
        return tuple(row[4] for row in unique if row[2] == "PRIMARY")

    def _insert_rows(self, rows: TableRows, columns: Sequence[str]) -> None:
        with self._connection.cursor() as cursor:
            if not self._upsert and not self._ignore:
                self._make_writer(cursor, rows, columns, "").write(rows)
                return
            certain = self._has_certain_keys(rows)
            for part, own in rows.statements(columns, rows.key_of if certain else lambda row: None):
                # In the order of keys, so that two processes seldom wait for each other.
                ordered = part.by_key() if certain else part
                self._make_writer(cursor, part, own, self._conflict_clause(part, own)).write(ordered)

    def _has_certain_keys(self, rows: TableRows) -> bool:
        """Return whether keys are equal for the database if they are for Python; else, rows are written as they come."""
        exact = self._exact_texts.get(rows.table, frozenset())

        def is_certain(column: str) -> bool:
            kind = rows.kinds[column]
            wanted = (
                int if "int" in kind else bytes if kind.startswith("varbinary") else str if column in exact else None
            )
            return wanted is not None and all(type(row[column]) is wanted for row in rows.rows)

        return all(map(is_certain, rows.primary_key))

    def _describe_statement(self, statement: Statement) -> dict[str, str]:
        self._check_engines(statement)
        with self._open_transaction() as cursor:
            # The server knows no types of parameters.
            cursor.execute("PREPARE streamrt FROM %s", (statement.render(lambda name: "?"),))
            cursor.execute("DEALLOCATE PREPARE streamrt")
        return dict.fromkeys(statement.names, "")

    def _check_engines(self, statement: Statement) -> None:
        """Refuse a statement that names a table without transactions, in whichever database."""
        if self._position_table is None:
            return
        found = self._run_query(
            "SELECT t.TABLE_SCHEMA = DATABASE(), t.TABLE_SCHEMA, t.TABLE_NAME, t.ENGINE FROM information_schema.TABLES t"
            " JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE WHERE e.TRANSACTIONS = 'NO'"
        )
        for is_own, database, table, engine in found:
            if table.lower() in statement.words and (is_own or database.lower() in statement.words):
                raise _without_transactions(table, engine)

    def _execute_statement(self, statement: Statement, rows: TableRows) -> None:
        with self._connection.cursor() as cursor:
            StatementRunner(cursor, statement, self._largest_packet, self._may_pass).run(rows)

    def _is_about_columns(self, error: BaseException) -> bool:
        return code_of(error) in _COLUMN_CODES

    def _make_writer(self, cursor: Any, rows: TableRows, columns: Sequence[str], conflict: str) -> RowWriter:
        return RowWriter(
            cursor,
            self._qualify_name(rows.table),
            {column: self._quote_name(column) for column in columns},
            conflict,
            singly=bool(conflict) and rows.table in self._other_keys,
            largest_packet=self._largest_packet,
            passes=self._may_pass,
        )

    def _conflict_clause(self, rows: TableRows, columns: Sequence[str]) -> str:
        names = [self._quote_name(column) for column in columns if column not in rows.primary_key and self._upsert]
        updates = [f"{name} = VALUES({name})" for name in names]
        if not updates:
            # A column that stays as it is: INSERT IGNORE would also hide other errors.
            name = f"{self._qualify_name(rows.table)}.{self._quote_name(rows.primary_key[0])}"
            updates = [f"{name} = {name}"]
        return f" ON DUPLICATE KEY UPDATE {', '.join(updates)}"


def _without_transactions(table: str, engine: str) -> SinkError:
    return SinkError(
        f"table {table!r} is stored by {engine}, which has no transactions: change its engine to InnoDB, or write at "
        "least once with position_table=None"
    )


def _position_fault(name: str) -> str | None:
    """Return why a name cannot be in the table of positions."""
    if len(name) > _LONGEST_NAME:
        return f"must have {_LONGEST_NAME} characters at most, not {len(name)}"
    # MySQL takes names for equal that differ in spaces at the end.
    return "must not end with a space" if name.endswith(" ") else None
