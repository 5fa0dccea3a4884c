"""A Redis server that wants a password, and keeps what it has acknowledged."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.servers import Server, free_port, program, workspace

PASSWORD = "sesame-of-redis"


class RedisServer(Server):
    """A server with a client of the tests."""

    @property
    def client(self) -> Any:
        import redis

        return redis.Redis(port=self.port, password=PASSWORD)


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """Run a server until the block ends."""
    with workspace("redis") as directory:
        port = free_port()
        options = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "yes", "appendfsync": "always"}
        options |= {"requirepass": PASSWORD, "dir": directory, "databases": 4}
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        server = RedisServer([program("redis-server"), *arguments], port, directory)
        server.start()
        try:
            yield server
        finally:
            server.kill()
