"""Which options of topics a broker takes, for clusters in memory. Source: Kafka's topic configuration."""

import re

__all__ = ["TOPIC_OPTIONS", "option_fault"]

_INT = 2**31 - 1
_LONG = 2**63 - 1

_RANGES = {
    "compression.gzip.level": (-1, 9),
    "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-131_072, 22),
    "delete.retention.ms": (0, _LONG),
    "file.delete.delay.ms": (0, _LONG),
    "flush.messages": (1, _LONG),
    "flush.ms": (0, _LONG),
    "index.interval.bytes": (0, _INT),
    "local.retention.bytes": (-2, _LONG),
    "local.retention.ms": (-2, _LONG),
    "max.compaction.lag.ms": (1, _LONG),
    "max.decompressed.message.bytes": (1, _INT),
    "max.message.bytes": (0, _INT),
    "message.timestamp.after.max.ms": (0, _LONG),
    "message.timestamp.before.max.ms": (0, _LONG),
    "min.compaction.lag.ms": (0, _LONG),
    "min.insync.replicas": (1, _INT),
    "remote.copy.lag.bytes": (-1, _LONG),
    "remote.copy.lag.ms": (-1, _LONG),
    "retention.bytes": (-_LONG - 1, _LONG),
    "retention.ms": (-1, _LONG),
    "segment.bytes": (1_048_576, _INT),
    "segment.index.bytes": (4, _INT),
    "segment.jitter.ms": (0, _LONG),
    "segment.ms": (1, _LONG),
}
_WORDS = {
    "cleanup.policy": {"compact", "delete"},
    "compression.type": {"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"},
    "message.timestamp.type": {"CreateTime", "LogAppendTime"},
}
_BOOLEANS = {
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "unclean.leader.election.enable",
}
_RATIO = "min.cleanable.dirty.ratio"
_TEXTS = {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}

TOPIC_OPTIONS = frozenset({*_RANGES, *_WORDS, *_BOOLEANS, _RATIO, *_TEXTS})
"""The names of all options of topics."""


def option_fault(name: str, value: str) -> str | None:
    """Return why a broker would refuse an option of a topic, or None.

    Args:
        name: the option.
        value: its value.

    Example:
        >>> option_fault("retention.ms", "1 day")
        "retention.ms='1 day': it must be a whole number from -1 to 9223372036854775807"
        >>> option_fault("retention.ms", "86400000")
    """
    text = value.strip()
    if name in _RANGES:
        lowest, highest = _RANGES[name]
        expected = f"a whole number from {lowest} to {highest}"
        fits = re.fullmatch(r"[+-]?[0-9]{1,19}", text) is not None and lowest <= int(text) <= highest
        # Level 0 of gzip would be no compression.
        fits = fits and (name != "compression.gzip.level" or int(text) != 0)
    elif name in _WORDS:
        expected = f"one of {', '.join(sorted(_WORDS[name]))}"
        listed = text.split(",") if name == "cleanup.policy" else [text]
        fits = {word.strip() for word in listed if word.strip() or name != "cleanup.policy"} <= _WORDS[name]
    elif name in _BOOLEANS:
        expected, fits = "true or false", text.lower() in ("true", "false")
    elif name == _RATIO:
        expected, fits = "a number from 0 to 1", re.fullmatch(r"0(\.[0-9]*)?|1(\.0*)?|\.[0-9]+", text) is not None
    elif name in _TEXTS:
        return None
    else:
        return f"{name}: topics have no such option"
    return None if fits else f"{name}={value!r}: it must be {expected}"
