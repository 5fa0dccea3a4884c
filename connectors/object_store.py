"""Common parts of sinks and sources of files in object stores: the bucket, and credentials that appear nowhere."""

import re
from typing import Any

from pydantic import SecretStr

from streamrt.connectors.argument_checks import checked_type
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.errors import ArgumentValueError, argument_error

__all__ = ["StoreAccess"]

_SHORTEST_SECRET = 4


class StoreAccess:
    """The bucket of an object store, and its credentials.

    Args:
        owner: name of the connector's class.
        kind: what the store calls a bucket.
        container: name of the bucket.

    Raises:
        ConfigurationError: if the name is empty or is a path.
    """

    def __init__(self, owner: str, kind: str, container: str) -> None:
        self.container = checked_type(
            owner, kind, container, str, f"the name of a {kind}", lambda name: name and "/" not in name
        )
        self.kind = kind
        self._owner = owner
        self._secrets: dict[str, Credential] = {}

    def text(self, name: str, value: str | None, default: str | None = None) -> str | None:
        """Return an argument that must be text.

        Args:
            name: name of the argument.
            value: its value.
            default: its value if it is not given.

        Raises:
            ConfigurationError: if it is not text.
        """
        return checked_type(self._owner, name, value, str, "a str", optional=True, hidden=True) or default or None

    def url(self, name: str, value: str | None, default: str | None = None) -> str | None:
        """Return an argument that must be a URL without credentials.

        Args:
            name: name of the argument.
            value: its value.
            default: its value if it is not given.

        Raises:
            ConfigurationError: if it is not a URL, or has credentials.
        """
        url = self.text(name, value, default)
        if url is not None and not re.fullmatch(r"https?://[^/@?#\s]+(/[^@?#\s]*)?", url):
            raise ArgumentValueError(
                f"{self._owner}({name}=...) must be a URL such as http://host:9000, without credentials"
            )
        return url

    def hold(
        self, name: str, value: CredentialInput | None, default: str | None = None, *, required: bool = False
    ) -> None:
        """Keep a secret.

        Args:
            name: name of the argument.
            value: its value.
            default: its value if it is not given.
            required: whether it must be given.

        Raises:
            ConfigurationError: if it is missing, or neither text nor a function.
        """
        # Variables of the environment may be empty.
        given = (default or None) if value is None else value
        if given is None and not required:
            return
        text = isinstance(given, str | SecretStr)
        if given is None or not (given if text else callable(given)):
            raise argument_error(
                f"{self._owner}({name}=...) must be a non-empty str or a function that returns one", of_type=text
            )
        self._secrets[name] = Credential(given, f"{self._owner}({name}=...)")

    def holds(self, name: str) -> bool:
        """Return whether a secret was given.

        Args:
            name: name of the argument.
        """
        return name in self._secrets

    def secret(self, name: str) -> str | None:
        """Return a secret, or None if there is none.

        Args:
            name: name of the argument.
        """
        held = self._secrets.get(name)
        return None if held is None else held.reveal()

    def is_there(self, filesystem: Any) -> bool:
        """Return whether the bucket exists.

        Args:
            filesystem: the file system of fsspec.
        """
        try:
            filesystem.ls(self.container, detail=False)
        except FileNotFoundError:
            return False
        return True

    def path(self, filepath: str) -> str:
        """Return the path of a file or a folder, with the bucket.

        Args:
            filepath: the path in the bucket.
        """
        return f"{self.container}/{filepath.strip('/')}".rstrip("/")

    def masked(self, text: str) -> str:
        """Return a text without the secrets, and without the parts of those that are connection strings.

        Args:
            text: the text.
        """
        for whole in (known for credential in self._secrets.values() for known in credential.known):
            for part in (whole, *re.findall(r"(?:AccountKey|SharedAccessSignature)=([^;]+)", whole)):
                if len(part) >= _SHORTEST_SECRET:
                    text = text.replace(part, "***")
        return text
