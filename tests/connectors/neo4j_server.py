"""A Neo4j server within a JVM."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.connectors.java_server import java_server
from tests.servers import free_port, workspace

PASSWORD = "sesame-of-neo4j"
_SETTINGS = {
    "server.bolt.enabled": "true",
    "server.http.enabled": "false",
    "dbms.usage_report.enabled": "false",
    "dbms.security.auth_enabled": "true",
    # Wrong passwords are part of the tests.
    "dbms.security.auth_max_failed_attempts": "0",
    "server.memory.pagecache.size": "16m",
}


@contextmanager
def neo4j_server() -> Iterator[int]:
    """Run a server until the block ends; return its port."""
    import neo4j

    # Its own start script also opens these.
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "java.lang")]
    with workspace("neo4j") as directory, java_server("neo4j", directory, "-Xmx400m", *opened) as jvm:
        port = free_port()
        lines = [f"{name}={value}" for name, value in _SETTINGS.items()]
        lines.append(f"server.bolt.listen_address=127.0.0.1:{port}")
        (directory / "neo4j.conf").write_text("\n".join(lines))
        home, settings = (jvm.java.io.File(str(directory / name)).toPath() for name in ("home", "neo4j.conf"))
        builder = jvm.org.neo4j.dbms.api.DatabaseManagementServiceBuilder(home)
        service = builder.loadPropertiesFromFile(settings).build()
        with neo4j.GraphDatabase.driver(f"bolt://127.0.0.1:{port}", auth=("neo4j", "neo4j")) as driver:
            change = "ALTER CURRENT USER SET PASSWORD FROM 'neo4j' TO $password"
            driver.execute_query(change, password=PASSWORD, database_="system")
        assert service is not None
        yield port
