"""JSON by orjson: compact, UTF-8, key order kept, NaN and infinities written as null."""

from collections.abc import Callable
from typing import Any

import orjson

from streamrt.errors import IgnoreMessage, SerializationError
from streamrt.models import Headers
from streamrt.serializers.base import (
    BoundDeserializer,
    BoundSerializer,
    Deserializer,
    MessageField,
    SerializationContext,
    Serializer,
)


class JSONSerializer(Serializer):
    """Writes JSON.

    Args:
        dumps: function from an object to JSON as bytes or str; orjson by default, which refuses bytes, sets, datetimes,
            Decimals, dictionaries whose keys are not strings and integers beyond 64 bits.
    """

    def __init__(self, dumps: Callable[[Any], bytes | str] | None = None) -> None:
        self._dumps = dumps

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes:  # noqa: D102
        if self._dumps is None:
            return _dumps(value, None)
        try:
            text = self._dumps(value)
            return text.encode() if isinstance(text, str) else text
        except Exception as error:
            raise SerializationError(f"the value has no JSON form: {str(error) or type(error).__name__}") from error

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:  # noqa: D102
        return _dumps if self._dumps is None else super().bind(topic, field)


class JSONDeserializer(Deserializer):
    """Reads JSON.

    Args:
        loads: function from bytes to an object; orjson by default.
    """

    def __init__(self, loads: Callable[[bytes], Any] | None = None) -> None:
        self._loads = loads

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:  # noqa: D102
        if self._loads is None:
            return _loads(value, None)
        try:
            return self._loads(value)
        except IgnoreMessage:
            raise
        except Exception as error:
            raise SerializationError(f"the bytes are not JSON: {str(error) or type(error).__name__}") from error

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:  # noqa: D102
        return _loads if self._loads is None else super().bind(topic, field)


def _dumps(
    value: Any,
    headers: Headers | None,
    *,
    _dump: Callable[..., bytes] = orjson.dumps,
    _option: int = orjson.OPT_PASSTHROUGH_DATETIME,
) -> bytes:
    try:
        return _dump(value, option=_option)
    except TypeError as error:
        raise SerializationError(f"the value has no JSON form: {error}") from error


def _loads(value: bytes, headers: Headers | None, *, _load: Callable[[bytes], Any] = orjson.loads) -> Any:
    try:
        return _load(value)
    except ValueError as error:
        raise SerializationError(f"the bytes are not JSON: {error}") from error
