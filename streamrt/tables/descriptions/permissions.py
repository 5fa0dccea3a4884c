"""Permissions of tables: which parts of the process that connects them they may use.

Whoever may write a catalogue's topic decides what its tables are. Without a limit, a table could name any environment
variable, secret, file or server, and an application that reads or writes it would send the one to the other. So the process
that uses tables says what they may use, by *grants*:

```
env:NAME                      the variable in `${env:NAME}`
host:NAME                     a server
directory:PATH                files in and below it
connector:CLASS               a source or sink of `streamrt.connectors`
secret:env:NAME@HOST          a secret, for one server; also secret:file:PATH@HOST
```

Names of variables, secrets and servers may have `*`; a server may be a network such as `10.0.0.0/8`. A secret does not go
to a URL with `http://` of another machine, unless its grant says `@http://HOST`.
"""

import fnmatch
import ipaddress
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from streamrt.common.addresses import is_loopback
from streamrt.common.texts import one_line
from streamrt.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError
from streamrt.secret import SecretRef
from streamrt.tables.descriptions.variables import variables_in

__all__ = ["GRANTS_VARIABLE", "TablePermissions"]

GRANTS_VARIABLE = "STREAMRT_TABLES_ALLOW"
"""Environment variable with grants, separated by white space."""
AWS = "amazonaws.com"
"""The name that stands for the server of a service of AWS without an address."""

_KINDS = ("env", "host", "directory", "connector", "secret")
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#\s]*)", re.IGNORECASE)
_HOST_NAMES = re.compile(
    r"(^|_)(hosts?|servers?|brokers?|address(es)?|endpoints?|urls?|uris?|dsn|conninfo|account)(_|$)", re.I
)
_PATH_NAMES = re.compile(
    r"(^|_)(paths?|dirs?|directory|directories|files?|filename|filepath|folder|database_path|db|origin|destination|location|ca|"
    r"cert|certificate|keyfile|warehouse)(_|$)",
    re.IGNORECASE,
)
_DSN_HOST = re.compile(r"\b(?:host|hostaddr|server)\s*=\s*([^\s;]+)", re.IGNORECASE)


class TablePermissions:
    """The grants of a process.

    Args:
        grants: the grants; None for everything, of a catalogue that no one else writes.

    Raises:
        ArgumentTypeError: if the grants are not strings.
        ArgumentValueError: if one is of an unknown kind, or incomplete.

    Example:
        >>> permissions = TablePermissions(["env:STAGE", "secret:env:RIDES_TOKEN@rides.example"])
        >>> permissions.require_variables("the topic", "${env:STAGE}.orders")
        >>> permissions.require_variables("the topic", "${env:AWS_SECRET_ACCESS_KEY}.orders")
        Traceback (most recent call last):
        ...
        streamrt.errors.ConfigurationError: the topic uses the environment variable AWS_SECRET_ACCESS_KEY, which tables ...
    """

    def __init__(self, grants: Iterable[str] | None = ()) -> None:
        self._everything = grants is None
        if isinstance(grants, str) or not all(isinstance(each, str) for each in grants or ()):
            raise ArgumentTypeError("Catalog(allow=...) must be a list of grants such as 'host:rides.example'")
        self._grants: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        for grant in grants or ():
            kind, _, name = grant.partition(":")
            if kind not in _KINDS or not name or (kind == "secret" and not name.rpartition("@")[0]):
                raise ArgumentValueError(
                    f"Catalog(allow=...) has the grant {one_line(grant)!r}: grants are env:NAME, host:NAME, directory:PATH, "
                    "connector:CLASS, and secret:env:NAME@HOST or secret:file:PATH@HOST"
                )
            self._grants[kind].append(name)

    @classmethod
    def of_environment(cls) -> "TablePermissions":
        """Return the grants of the environment variable `STREAMRT_TABLES_ALLOW`."""
        return cls(os.environ.get(GRANTS_VARIABLE, "").split())

    def require_variables(self, what: str, value: Any) -> None:
        """Raise unless tables may use the environment variables in a string, or in the strings of a list or mapping.

        Raises:
            ConfigurationError: if they may not use one.
        """
        for text in _find_strings(value):
            for name in () if self._everything else variables_in(text):
                if not any(fnmatch.fnmatchcase(name, pattern) for pattern in self._grants["env"]):
                    raise _make_refusal(f"{what} uses the environment variable {name}", f"env:{name}")

    def require_connector(self, what: str, kind: str) -> None:
        """Raise unless tables may be read or written by a class of `streamrt.connectors`.

        Raises:
            ConfigurationError: if they may not.
        """
        if not self._everything and kind not in self._grants["connector"]:
            raise _make_refusal(f"{what} is connected by {kind}", f"connector:{kind}")

    def require_place(self, what: str, options: Any, otherwise: str | None = None) -> None:
        """Raise unless tables may use the servers, files and secrets in options whose variables have their values.

        Args:
            what: what has the options, for the error.
            options: values by name.
            otherwise: what secrets are for if no server is named.

        Raises:
            ConfigurationError: if they may not use one.
        """
        if self._everything:
            return
        places = [place for name, text in _named_texts("", options) for place in _hosts_in(name, text)]
        secrets = list(_find_secrets(options))
        for scheme, host in places:
            # A secret that may go to a server is also a grant for the server.
            granted = bool(secrets) and all(self._may_send(secret, scheme, host) for secret in secrets)
            if not granted and not any(_is_host(host, pattern) for pattern in self._grants["host"]):
                raise _make_refusal(f"{what} is at the server {one_line(host)!r}", f"host:{host}")
        for path in (path for name, text in _named_texts("", options) for path in _paths_in(name, text)):
            if not any(_is_below(path, directory) for directory in self._grants["directory"]):
                raise _make_refusal(f"{what} uses the file or directory {one_line(path)!r}", f"directory:{path}")
        for secret in secrets:
            for scheme, host in places or [("", otherwise or "nothing")]:
                if not self._may_send(secret, scheme, host):
                    address = f"http://{host}" if scheme == "http" and not is_loopback(host) else host
                    raise _make_refusal(
                        f"{what} sends the secret {secret} to {one_line(host)!r}", f"secret:{secret}@{address}"
                    )

    def _may_send(self, secret: SecretRef, scheme: str, host: str) -> bool:
        for grant in self._grants["secret"]:
            name, _, pattern = grant.rpartition("@")
            is_plain = scheme == "http" and not is_loopback(host)
            if is_plain != pattern.startswith("http://"):
                continue
            if fnmatch.fnmatchcase(str(secret), name) and _is_host(host, pattern.removeprefix("http://")):
                return ".." not in Path(secret.name).parts
        return False


def _make_refusal(what: str, grant: str) -> ConfigurationError:
    return ConfigurationError(
        f"{what}, which tables of this catalogue may not use, because others can write the catalogue: if this is right, "
        f"allow it by Catalog(..., allow=[{grant!r}]), or by {GRANTS_VARIABLE}={grant!r} in the environment"
    )


def _find_strings(value: Any) -> Iterator[str]:
    return (text for _, text in _named_texts("", value))


def _named_texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for inner, each in value.items():
            # Names of columns or headers say nothing about what their values are, but that of the option does.
            yield from _named_texts(str(inner), each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _named_texts(name, each)


def _find_secrets(value: Any) -> Iterator[SecretRef]:
    if isinstance(value, SecretRef):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _find_secrets(each)


def _hosts_in(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield scheme and host of each server in the value of an option."""
    urls = [found for found in _URL.findall(text) if found[0].lower() != "file"]
    for scheme, servers in urls:
        for server in servers.split(","):
            yield scheme.lower(), _host_of(server)
    if not urls and "://" not in text:
        in_dsn = _DSN_HOST.findall(text)
        for server in in_dsn or (text.split(",") if _HOST_NAMES.search(name) else ()):
            yield "", _host_of(server)


def _host_of(server: str) -> str:
    try:
        host = urllib.parse.urlsplit(f"//{server.strip()}").hostname
    except ValueError:
        host = None
    # What is not a host cannot be granted by one.
    return host or server.strip() or "(none)"


def _paths_in(name: str, text: str) -> Iterator[str]:
    if text.lower().startswith("file:"):
        yield urllib.parse.unquote(text[5:].removeprefix("//"))
    elif "://" in text:
        return
    elif text.startswith(("/", "~", ".")) or ".." in Path(text).parts or _PATH_NAMES.search(name):
        yield text


def _is_host(host: str, pattern: str) -> bool:
    if fnmatch.fnmatchcase(host.lower(), pattern.lower()):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        return False


def _is_below(path: str, directory: str) -> bool:
    """Return whether a path is in a directory, wherever its links lead."""
    try:
        return Path(path).expanduser().resolve().is_relative_to(Path(directory).expanduser().resolve())
    except (OSError, RuntimeError, ValueError):
        return False
