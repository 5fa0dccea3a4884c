"""The settings of the control server, checked when the application is made."""

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamrt.common.addresses import is_loopback, parse_address
from streamrt.control.controlled import Controlled
from streamrt.control.rights import TokenRights, check_rights
from streamrt.control.token import ControlToken, given_token
from streamrt.errors import ConfigurationError
from streamrt.extras import install_command

if TYPE_CHECKING:
    from streamrt.control.server import ControlServer

__all__ = ["control_server", "serving"]

_PACKAGES = ("starlette", "uvicorn", "prometheus_client")


def control_server(
    app: Controlled, token: ControlToken | None, rights: Sequence[TokenRights] | None = None
) -> "ControlServer | None":
    """Return the control server of an application; None if it has none. It does not listen yet.

    Args:
        app: the application.
        token: what callers must know.
        rights: other tokens, and what they may do.

    Raises:
        ConfigurationError: if a setting cannot be used.
    """
    config = app.definition.config
    if config.control_sql is None:
        for name in ("control_sql_rows", "control_sql_timeout"):
            if getattr(config, name) != type(config).model_fields[name].default:
                raise ConfigurationError(f"{name} has no effect without control_sql: set control_sql, or remove it")
    if config.control is None:
        if token is not None:
            raise ConfigurationError("control_token has no effect without control: set control, or remove it")
        if config.control_sql is not None:
            raise ConfigurationError("control_sql has no effect without control: set control, or remove it")
        check_rights(rights, None, None)
        return None
    address = parse_address(config.control)
    credential = given_token(token)
    if credential is None and not is_loopback(address.host):
        raise ConfigurationError(
            f"control={config.control!r} can be reached from other machines: set control_token (environment variable "
            "STREAMRT_CONTROL_TOKEN), or listen on 127.0.0.1"
        )
    if credential is None and config.control_sql is not None:
        raise ConfigurationError(
            f"control_sql={config.control_sql!r} lets callers read all tables of the application: set control_token "
            "(environment variable STREAMRT_CONTROL_TOKEN)"
        )
    others = check_rights(rights, credential, config.control_sql)
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"control needs {' and '.join(missing)}: run {install_command('control')}")
    if config.control_sql is not None and importlib.util.find_spec("duckdb") is None:
        raise ConfigurationError(f"control_sql needs DuckDB: run {install_command('sql')}")
    from streamrt.control.server import ControlServer

    return ControlServer(address, credential, app, others)


@contextmanager
def serving(server: "ControlServer | None") -> Iterator[None]:
    """Let a server listen during the `with` block; one that listens already goes on after it.

    Args:
        server: the server; None for none.

    Raises:
        ConfigurationError: if its address cannot be used.
    """
    opened = server is not None and server.open(stays=False)
    try:
        yield
    finally:
        if opened and server is not None:
            server.close()
