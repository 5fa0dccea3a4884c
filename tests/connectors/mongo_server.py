"""A double of MongoDB: mongo-java-server, which speaks its protocol, with its data in memory. It knows no users."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.connectors.java_server import java_server
from tests.servers import workspace

# MongoDB 5.0 announces this; the double is content with less, but clients are not.
_WIRE_VERSION = 13


@contextmanager
def mongo_double() -> Iterator[int]:
    """Run a double until the block ends; return its port."""
    with workspace("mongo") as directory, java_server("mongo", directory, "-Xmx256m") as jvm:
        version = jvm.de.bwaldvogel.mongo.ServerVersion.valueOf("MONGO_5_0")
        announced = version.getClass().getDeclaredField("wireVersion")
        announced.setAccessible(True)
        announced.set(version, _WIRE_VERSION)
        backend = jvm.de.bwaldvogel.mongo.backend.memory.MemoryBackend()
        backend.version(version)
        yield jvm.de.bwaldvogel.mongo.MongoServer(backend).bind().getPort()
