"""Errors of records that cannot be produced."""

from typing import Any

from streamrt.errors import KeySerializationError, ValueSerializationError
from streamrt.records import Headers
from streamrt.serializers import SERIALIZERS, BoundSerializer, MessageField, Serializer
from streamrt.topics import Topic

__all__ = ["OutputRefused", "explain"]

_BY_TYPE = {bytes: "bytes", str: "str", int: "int", float: "double"}
"""Names of the serializers for plain types; JSON can represent most others."""
_PLAIN = frozenset(SERIALIZERS[name] for name in (*_BY_TYPE.values(), "json"))


class OutputRefused(Exception):  # noqa: N818 - control flow inside the runtime; never seen by users
    """A record could not be produced, and no callback skipped it."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def explain(
    error: Exception,
    topic: Topic,
    value: tuple[BoundSerializer, Any],
    key: tuple[BoundSerializer, Any],
    headers: Headers | None,
    exchange: str | None,
) -> Exception:
    """Return an error that names the part that could not be serialized, value or key, and a suitable serializer."""
    for part, (serialize, item), kind, serializer in (
        ("value", value, ValueSerializationError, topic.value_serializer),
        ("key", key, KeySerializationError, topic.key_serializer),
    ):
        if item is None and kind is KeySerializationError:
            continue
        try:
            serialize(item, headers)
        except Exception as again:  # noqa: BLE001 - serializers are users' code
            reason = str(again) or type(again).__name__
            message = f"the {part} of a record for topic {topic.name!r} cannot be serialized: {reason}"
            fitting = _find_fitting(item, serializer)
            if fitting is not None and exchange is not None:
                message += f"; give {exchange}() {part}_serializer={fitting!r} and {part}_deserializer={fitting!r}"
            elif fitting is not None:
                message += (
                    f"; declare the topic with {part}_serializer={fitting!r} for {part}s of type {type(item).__name__}"
                )
            clear = kind(message)
            clear.__cause__ = again
            return clear
    return error


def _find_fitting(item: Any, refusing: Serializer) -> str | None:
    """Return the name of another plain serializer for an item that a plain serializer rejects, if there is one."""
    if type(refusing) not in _PLAIN:
        return None
    for name in (_BY_TYPE.get(type(item), "json"), "json"):
        serializer = SERIALIZERS[name]()
        try:
            serializer.bind("", MessageField.VALUE)(item, None)
        except Exception:  # noqa: BLE001, S112 - an unsuitable serializer
            continue
        return None if type(serializer) is type(refusing) else name
    return None
