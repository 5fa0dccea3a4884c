"""Installation commands for optional packages of StreamRT."""

import functools
import importlib.metadata
import json
from urllib.parse import unquote, urlsplit


def install_command(extra: str) -> str:
    """Return the command that installs an extra of StreamRT, from the origin of the installed StreamRT.

    Args:
        extra: name of the extra, as in `pyproject.toml`.

    Example:
        >>> install_command("avro").endswith('[avro]"')
        True
    """
    url, editable = _origin()
    where = unquote(urlsplit(url).path) if url else "streamrt"
    return f'pip install {"-e " if editable else ""}"{where}[{extra}]"'


def requirement(extra: str) -> str:
    """Return what a project writes into its dependencies to get this StreamRT, from the same origin.

    Args:
        extra: name of the extra, as in `pyproject.toml`; several are separated by commas.

    Example:
        >>> requirement("local").startswith("streamrt[local]")
        True
    """
    url, _ = _origin()
    if url:
        return f"streamrt[{extra}] @ {url}"
    try:
        return f"streamrt[{extra}]>={importlib.metadata.version('streamrt')}"
    except importlib.metadata.PackageNotFoundError:
        # It is run from a source tree.
        return f"streamrt[{extra}]"


@functools.cache
def _origin() -> tuple[str, bool]:
    """Return the address of the directory or file recorded by pip (PEP 610), and whether it is editable; else ""."""
    try:
        noted = json.loads(importlib.metadata.distribution("streamrt").read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        noted = {}
    url = str(noted.get("url", ""))
    return (url if url.startswith("file:") else ""), bool(noted.get("dir_info", {}).get("editable", False))
