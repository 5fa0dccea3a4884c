"""A MariaDB server of the tests' own, from the package `mariadb-server`."""

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pymysql

from tests.servers import Server, free_port, program, workspace
from tests.support import wait_until

USER = "tester"
DATABASE = "tests"


class MariaDB:
    """A server that listens on the loopback interface and wants a password.

    Args:
        directory: where it keeps its data.
        options: settings of the server, such as `log-bin`; a setting without a value is an empty string.
    """

    def __init__(self, directory: Path, options: Mapping[str, str]) -> None:
        self.port = free_port()
        self.password = secrets.token_hex(8)
        owner = _owner()
        settings = {
            "datadir": str(directory / "data"),
            "socket": str(directory / "socket"),
            "bind-address": "127.0.0.1",
            "port": str(self.port),
            # A crash of the system is not tested, and each wait for the disk takes time.
            "innodb-flush-log-at-trx-commit": "2",
            "innodb-log-file-size": "8M",
            "innodb-buffer-pool-size": "16M",
            "skip-name-resolve": "",
            **({} if owner is None else {"user": owner}),
            **options,
        }
        command = [program("mariadbd"), "--no-defaults"]
        command += [f"--{name}={value}" if value else f"--{name}" for name, value in settings.items()]
        _install(directory / "data", owner)
        init = directory / "init.sql"
        init.write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;\n"
            f"CREATE OR REPLACE USER {USER}@'%' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;\n"
        )
        init.chmod(0o644)
        self._server = Server([*command, f"--init-file={init}"], self.port, directory)

    @property
    def settings(self) -> dict[str, Any]:
        """How to connect, for `pymysql.connect`."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "user": USER,
            "password": self.password,
            "database": DATABASE,
        }

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        self._server.start()
        wait_until(self._answers, what="MariaDB to answer")

    def stop(self) -> None:
        """Ask the server to end, and wait for it."""
        self._server.stop()

    def kill(self) -> None:
        """Kill the server, as a crash would."""
        self._server.kill()

    def freeze(self) -> None:
        """Halt the server; clients wait for its answers."""
        self._server.freeze()

    def thaw(self) -> None:
        """Let a frozen server go on."""
        self._server.thaw()

    def connect(self, **more: Any) -> Any:
        """Return a connection. The server has no TLS, and the client would read the system's certificates each time."""
        return pymysql.connect(
            **{**self.settings, "connect_timeout": 5, "autocommit": True, "ssl_disabled": True, **more}
        )

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def query(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return list(cursor.fetchall())

    def _answers(self) -> bool:
        with contextlib.suppress(pymysql.err.Error):
            self.connect().close()
            return True
        return False


@contextlib.contextmanager
def mariadb(options: Mapping[str, str] | None = None) -> Iterator[MariaDB]:
    """Run a server until the block ends.

    Args:
        options: settings of the server, such as `log-bin`.
    """
    with workspace("mariadb") as directory:
        owner = _owner()
        if owner is not None:
            shutil.chown(directory, owner)
        server = MariaDB(directory, options or {})
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _install(data: Path, owner: str | None) -> None:
    command = [program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", "--skip-test-db"]
    command += ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
    command += [] if owner is None else [f"--user={owner}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _owner() -> str | None:
    """Return the user that runs the server, if root starts it."""
    if os.geteuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("mysql").pw_name
    return "nobody"
