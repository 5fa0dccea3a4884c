"""Consumer options of those who read a table: those of the connection, of groups, offsets and commits are refused."""

from collections.abc import Mapping
from typing import Any

from streamrt.errors import ArgumentTypeError, ConfigurationError
from streamrt.kafka.connection import field_of
from streamrt.kafka.reading.partition_feed import MEMBERSHIP_OPTIONS

__all__ = ["check_feed_options", "refusal_of"]

_GROUP = "readers of tables join no group"
_OFFSETS = "start= says where to begin"
_COMMITS = "readers of tables commit nothing: keep their position"
_CONNECTION = "the catalogue has the connection"
_CODE = "clients of tables run no code but their own"
_REFUSED = {
    **dict.fromkeys(MEMBERSHIP_OPTIONS, _GROUP),
    "rebalance_cb": _GROUP,
    **dict.fromkeys(("auto.offset.reset", "offset.store.method", "offset.store.path"), _OFFSETS),
    **dict.fromkeys(("enable.auto.commit", "auto.commit.enable", "auto.commit.interval.ms"), _COMMITS),
    **dict.fromkeys(("enable.auto.offset.store", "offset_commit_cb", "on_commit"), _COMMITS),
    "offset.store.sync.interval.ms": _COMMITS,
    **dict.fromkeys(("error_cb", "logger", "log_cb"), "the log of StreamRT has what the client says"),
    "isolation.level": "tables are read up to the last committed row",
    "enable.partition.eof": "readers need to know where partitions end",
}
_CONNECTION_PREFIXES = ("sasl.", "ssl.", "https.", "enable.sasl.", "enable.ssl.")
"""Of options of connections, also those that `ConnectionConfig` lacks."""


def check_feed_options(method: str, options: object) -> dict[str, Any]:
    """Return the consumer options of a reader.

    Args:
        method: name of the method that has them, for errors.
        options: options of librdkafka, or None.

    Raises:
        ArgumentTypeError: if they are not a mapping from names.
        ConfigurationError: if one cannot be used.

    Example:
        >>> check_feed_options("scan", {"fetch.min.bytes": 1})
        {'fetch.min.bytes': 1}
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise ArgumentTypeError(
            f"{method}(options=...) must be a mapping from names of librdkafka, such as 'fetch.min.bytes', to values"
        )
    for name in options:
        advice = _REFUSED.get(name) or refusal_of(name)
        if advice is not None:
            raise ConfigurationError(f"{method}(options=...): {name} is not supported: {advice}")
    return dict(options)


def refusal_of(name: str) -> str | None:
    """Return why no client of a table, reader or writer, takes an option; None if it may take it.

    The connection is the catalogue's, and so is its security; callbacks and plug-ins are code.

    Args:
        name: the option, as librdkafka names it.

    Example:
        >>> refusal_of("enable.ssl.certificate.verification"), refusal_of("fetch.min.bytes")
        ('the catalogue has the connection', None)
    """
    if field_of(name) is not None or name.startswith(_CONNECTION_PREFIXES):
        return _CONNECTION
    return _CODE if name == "plugin.library.paths" or name.endswith("_cb") else None
