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
    return f'pip install {_origin()}[{extra}]"'


@functools.cache
def _origin() -> str:
    """Return pip's arguments before the extra: the directory or file recorded by pip (PEP 610), or the package name."""
    try:
        noted = json.loads(importlib.metadata.distribution("streamrt").read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, ValueError):
        noted = {}
    url = urlsplit(noted.get("url", ""))
    if url.scheme != "file":
        return '"streamrt'
    editable = noted.get("dir_info", {}).get("editable", False)
    return f'{"-e " if editable else ""}"{unquote(url.path)}'
