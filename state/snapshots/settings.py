"""The settings of snapshots of state."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from streamrt.arguments import checked, checked_int, type_name
from streamrt.errors import ArgumentValueError, ConfigurationError
from streamrt.extras import install_command
from streamrt.secret import Secret

__all__ = ["StateSnapshots"]

_LIBRARIES: Final[Mapping[str, tuple[str, str]]] = {
    "abfs": ("adlfs", "azure"),
    "abfss": ("adlfs", "azure"),
    "az": ("adlfs", "azure"),
    "gcs": ("gcsfs", "gcs"),
    "gs": ("gcsfs", "gcs"),
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
}
"""Module and extra for the schemes of object stores."""


@dataclass(frozen=True)
class StateSnapshots:
    """Where snapshots of state go, how often they are taken, and how many are kept.

    Args:
        url: a directory as a URL of fsspec, such as `s3://bucket/prefix`, `gs://bucket/prefix`, `abfs://container/prefix` or
            `file:///mnt/snapshots`. Several applications may share it.
        interval_s: seconds between two snapshots of a store partition. Without new commits, none is taken.
        commits: number of commits after which a snapshot is taken earlier; 0 for none. In micro-batch mode, the commits of
            one Python worker count.
        keep: number of snapshots of a store partition that are kept.
        least_replay: number of changelog offsets from which on a restore asks for a snapshot; fewer are replayed faster.
        storage_options: options of the file system of fsspec, such as credentials. They are neither logged nor pickled as
            text. By default, each process takes credentials from its environment, as the client of the object store does.

    Raises:
        ConfigurationError: if a value cannot be used, or the library for the URL is not installed.

    Example:
        >>> StateSnapshots("file:///mnt/snapshots", interval_s=60).keep
        3
    """

    url: str
    interval_s: float = 300.0
    commits: int = 0
    keep: int = 3
    least_replay: int = 10_000
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        checked("StateSnapshots(url=...)", self.url, str, "a URL such as s3://bucket/prefix", show=type_name)
        parts = urlsplit(self.url)
        if not parts.scheme or not (parts.netloc or parts.path) or "@" in parts.netloc:
            raise ArgumentValueError(
                "StateSnapshots(url=...) must be a URL such as s3://bucket/prefix or file:///mnt/snapshots, without "
                "credentials"
            )
        for name, least in (("commits", 0), ("keep", 1), ("least_replay", 1)):
            checked_int(f"StateSnapshots({name}=...)", getattr(self, name), least)
        checked(
            "StateSnapshots(interval_s=...)", self.interval_s, int | float, "a number above 0", lambda value: value > 0
        )
        checked("StateSnapshots(storage_options=...)", self.storage_options, Mapping, "a dict", show=type_name)
        object.__setattr__(self, "storage_options", _hold(self.storage_options))
        module, extra = _LIBRARIES.get(parts.scheme, ("fsspec", "files"))
        if importlib.util.find_spec(module) is None:
            raise ConfigurationError(
                f"state_snapshots at {parts.scheme}:// needs {module}: run {install_command(extra)}"
            )

    @classmethod
    def parse(cls, text: str) -> "StateSnapshots":
        """Return the settings that a text means: the URL, and the other numbers as its query.

        Args:
            text: the text, as in the environment variable `STREAMRT_STATE_SNAPSHOTS`.

        Raises:
            ConfigurationError: if it cannot be used.

        Example:
            >>> StateSnapshots.parse("file:///mnt/snapshots?interval_s=60&keep=5")
            StateSnapshots(url='file:///mnt/snapshots', interval_s=60.0, commits=0, keep=5, least_replay=10000)
        """
        url, _, query = text.partition("?")
        given: dict[str, Any] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name not in ("interval_s", "commits", "keep", "least_replay"):
                raise ArgumentValueError(
                    f"state_snapshots has the unknown part {name!r}: known are interval_s, commits, keep and least_replay"
                )
            try:
                given[name] = float(value) if name == "interval_s" else int(value)
            except ValueError:
                raise ArgumentValueError(f"state_snapshots: {name}={value!r} is not a number") from None
        return cls(url, **given)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the file system, in plain text."""
        return _reveal(self.storage_options)


def _hold(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with each text as a secret: each file system names its credentials in its own way."""
    return {
        name: Secret(value) if isinstance(value, str) else _hold(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
    }


def _reveal(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.reveal() if isinstance(value, Secret) else _reveal(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
    }
