"""The settings of traces."""

import importlib.util
from dataclasses import dataclass

from streamrt.arguments import checked
from streamrt.errors import ConfigurationError
from streamrt.extras import install_command

__all__ = ["Tracing", "require_tracing"]

_PACKAGES = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


@dataclass(frozen=True)
class Tracing:
    """Which commits and records an application traces. Where traces go, the variables of OpenTelemetry say (`OTEL_...`).

    Args:
        sample_ratio: the share of records that begin a trace, among those that bring no trace context. Records that bring one
            are traced if it says so.
        max_per_second: most records per second that begin a trace, of a stream in a process of tasks; None for no limit.
        commit_ratio: the share of commits that are traced.

    Raises:
        ConfigurationError: if a share is not between 0 and 1, or the limit is not above 0.

    Example:
        >>> Tracing(sample_ratio=0.01)
        Tracing(sample_ratio=0.01, commit_ratio=1.0, max_per_second=20.0)
    """

    sample_ratio: float = 0.001
    commit_ratio: float = 1.0
    max_per_second: float | None = 20.0

    def __post_init__(self) -> None:
        for name in ("sample_ratio", "commit_ratio"):
            share = getattr(self, name)
            checked(f"Tracing({name}=...)", share, int | float, "a number from 0 to 1", lambda value: 0 <= value <= 1)
        what, wanted = "Tracing(max_per_second=...)", "a number above 0, or None for no limit"
        checked(what, self.max_per_second, int | float, wanted, lambda limit: limit > 0, optional=True)


def require_tracing(tracing: Tracing | None) -> None:
    """Check that the packages for traces are installed, if there are any traces.

    Raises:
        ConfigurationError: if they are missing.
    """
    if tracing is not None and not all(map(_is_installed, _PACKAGES)):
        raise ConfigurationError(f"tracing needs OpenTelemetry: run {install_command('tracing')}")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        # A package above it is missing.
        return False
