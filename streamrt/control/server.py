"""The control server of an application: starlette and uvicorn in a daemon thread of the process that runs it."""

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Sequence

import uvicorn

from streamrt.common.addresses import HostPort, is_wildcard
from streamrt.connectors.credentials import Credential
from streamrt.control.controlled import Controlled
from streamrt.control.guard import Guard
from streamrt.control.protocol import MOST_CONNECTIONS, ControlProtocol
from streamrt.control.rights import TokenRights
from streamrt.control.routes import Routes
from streamrt.errors import ConfigurationError
from streamrt.runtime.driver.life.lifecycle import ApplicationStatus
from streamrt.runtime.driver.observation.owners import announcement

__all__ = ["ControlServer"]

logger = logging.getLogger("streamrt")

_GRACE_S = 1
_JOIN_S = 2.0
_WORKING = (ApplicationStatus.RUNNING, ApplicationStatus.PAUSED)


class ControlServer:
    """Serves the routes of one application while it runs, and longer if it was started by `start()`.

    Args:
        address: where to listen; port 0 takes a free one.
        token: what callers must know; None for no token.
        app: the application.
        rights: other tokens, and what they may do.

    Attributes:
        token: what callers must know.
    """

    def __init__(
        self, address: HostPort, token: Credential | None, app: Controlled, rights: Sequence[TokenRights] = ()
    ) -> None:
        self._address = address
        self._rights = rights
        self.token = token
        self._lag = app.lag
        self._routes = Routes(app, lambda: self._stays)
        self._lock = threading.Lock()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._bound: HostPort | None = None
        self._stays = False

    @property
    def location(self) -> str | None:
        """The URL of the server; None while it does not listen."""
        bound = self._bound
        if bound is None:
            return None
        host = socket.gethostname() if is_wildcard(bound.host) else bound.host
        return f"http://{HostPort(host, bound.port)}"

    @property
    def announced(self) -> str:
        """The announcement of this server that group members pass to other instances; empty while it does not listen."""
        return "" if self._bound is None else announcement(self._bound)

    def open(self, *, stays: bool) -> bool:
        """Listen, unless the server does so already.

        Args:
            stays: whether it goes on after the application has stopped.

        Returns:
            Whether it listens from now on.

        Raises:
            ConfigurationError: if the address cannot be used.
        """
        with self._lock:
            self._stays = self._stays or stays
            if self._bound is not None:
                return False
            listening = _open_socket(self._address)
            self._bound = bound = HostPort(self._address.host, listening.getsockname()[1])
            self._server = uvicorn.Server(
                uvicorn.Config(
                    Guard(self._routes.asgi(), bound, self.token, self._rights),
                    loop="asyncio",
                    http=ControlProtocol,
                    ws="none",
                    lifespan="off",
                    interface="asgi3",
                    # The logging of the program is not ours to configure, and the routes log changes themselves.
                    log_config=None,
                    log_level="warning",
                    access_log=False,
                    # The audit needs the address of the other side, not what it says about itself.
                    proxy_headers=False,
                    server_header=False,
                    timeout_graceful_shutdown=_GRACE_S,
                )
            )
            # Daemon threads do not delay the end of the process.
            self._thread = threading.Thread(
                target=_run_server, args=(self._server, listening), name="streamrt-control", daemon=True
            )
            self._thread.start()
            self._lag.start()
        logger.info("control: listening at %s", self.location)
        return True

    def close(self) -> None:
        """Listen no more; wait a moment for answers that are under way."""
        with self._lock:
            server, thread = self._server, self._thread
            self._server = self._thread = self._bound = None
            self._stays = False
            self._lag.close()
        if server is not None and thread is not None:
            server.should_exit = True
            thread.join(_JOIN_S)


def _open_socket(address: HostPort) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        listening = socket.create_server(tuple(address), family=family, backlog=MOST_CONNECTIONS)
        # Accepted sockets inherit it. asyncio sets it only on sockets that name their protocol, which this one does not, and
        # the body of an answer would wait 40 ms for the other side to acknowledge the header.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = f"port {address.port} is in use; choose another port, or 0 for a free one"
        else:
            why = f"{error.strerror or error}; give an address of this machine"
        raise ConfigurationError(f"the control server cannot listen at {address}: {why}") from None


def _run_server(server: uvicorn.Server, listening: socket.socket) -> None:
    try:
        asyncio.run(server.serve(sockets=[listening]))
    except Exception as error:
        # The application goes on without it.
        logger.error("the control server has ended: %s: %s", type(error).__name__, error)
        logger.debug("control: the error was", exc_info=error)
    finally:
        listening.close()
