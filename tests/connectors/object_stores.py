"""Object stores for tests: moto for S3, Azurite for Azure, gcp-storage-emulator for Google Cloud."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from streamrt.common.file_lock import FileLock
from streamrt.jvm.archive import cache_directory
from tests.connectors.proxy import Proxy, proxy
from tests.servers import NoServerError, Server, free_port, program, workspace

# Later ones need a newer Node than distributions have.
AZURITE = "azurite@3.35.0"
_NPM = ("install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev", "--omit=optional")


@contextlib.contextmanager
def moto() -> Iterator[Proxy]:
    """S3 behind a gate."""
    with workspace("moto") as directory:
        port = free_port()
        yield from _behind_gate(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port, directory
        )


@contextlib.contextmanager
def azurite() -> Iterator[Proxy]:
    """Blob Storage of Azure behind a gate."""
    script = azurite_script()
    with workspace("azurite") as directory:
        port = free_port()
        options = ("--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck")
        yield from _behind_gate(
            [program("node"), str(script), "--blobHost", "127.0.0.1", "--blobPort", str(port), *options],
            port,
            directory,
        )


@contextlib.contextmanager
def cloud_storage() -> Iterator[Proxy]:
    """Google Cloud Storage behind a gate."""
    with workspace("gcs") as directory:
        port = free_port()
        script = Path(__file__).with_name("cloud_storage_server.py")
        command = [sys.executable, str(script), "start", "--quiet", "--host", "127.0.0.1", "--port", str(port)]
        yield from _behind_gate([*command, "--in-memory"], port, directory)


def azurite_script() -> Path:
    """Return the program of Azurite, after fetching it into the cache if it is not there."""
    home = cache_directory() / AZURITE.replace("@", "-")
    script = home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if script.exists():
        return script
    npm = shutil.which("npm")
    if npm is None:
        raise NoServerError("npm is not installed: tests with Azure's storage need it, and Node 20 or newer")
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock.acquire(home.parent / f"{home.name}.lock"):
        if not script.exists():
            with tempfile.TemporaryDirectory(dir=home.parent) as new:
                done = subprocess.run(
                    [npm, *_NPM, "--prefix", new, AZURITE], capture_output=True, text=True, check=False
                )
                if done.returncode:
                    raise NoServerError(f"npm could not install {AZURITE}: {done.stderr[-2_000:]}")
                shutil.rmtree(home, ignore_errors=True)
                shutil.copytree(new, home, symlinks=True)
    return script


def _behind_gate(command: list[str], port: int, directory: Path) -> Iterator[Proxy]:
    server = Server(command, port, directory)
    server.start()
    try:
        with proxy(port) as gate:
            yield gate
    finally:
        server.kill()
