"""The contract of serializers and deserializers. `streamrt.serializers` resolves them by name.

A serializer is called once for every key or value, so the contract has two entry points:

- A serializer must define `__call__(value, ctx)`.
- `bind(topic, field)` returns the function that tasks call. By default it wraps `__call__`. A serializer that needs
  neither the topic nor the headers overrides it, and then builds no context for each record.

A deserializer never gets `None`: a key of None or a tombstone stays None with every deserializer.
"""

import abc
import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from streamrt.records import Headers, HeadersMapping

BoundSerializer = Callable[[Any, "Headers | None"], "bytes | None"]
"""Serializes the keys or the values of one topic: takes a value and the record's headers, returns bytes or None."""

BoundDeserializer = Callable[[bytes, "Headers | None"], Any]
"""Deserializes the keys or the values of one topic: takes bytes and the record's headers, returns a value."""

BatchDeserializer = Callable[[Sequence[bytes]], "Iterable[dict[Any, Any]] | None"]
"""Deserializes many keys or values of one topic, whose records have no headers. Returns None if they must be deserialized one
by one, which tells what they are."""

Bound = TypeVar("Bound", BoundSerializer, BoundDeserializer)


class MessageField(str, enum.Enum):
    """The part of a record that is serialized."""

    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True)
class SerializationContext:
    """The context of a key or value, for serializers and deserializers.

    Attributes:
        topic: name of the topic that the record is read from or written to.
        field: key or value.
        headers: headers of the record, or None if it has none.
    """

    topic: str
    field: MessageField
    headers: Headers | None = None


class Serializer(abc.ABC):
    """Converts a key or a value to bytes.

    Instances are sent to the processes that run tasks, so they must be picklable.

    Example:
        >>> class Upper(Serializer):
        ...     def __call__(self, value, ctx):
        ...         return value.upper().encode()
        >>> Upper()("a", SerializationContext("topic", MessageField.VALUE))
        b'A'
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Restore the default `bind` for a subclass that overrides only `__call__` and inherits a faster `bind`."""
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls) and "bind" not in vars(cls):
            cls.bind = Serializer.bind  # type: ignore[method-assign]

    @property
    def extra_headers(self) -> HeadersMapping:
        """Headers that are appended to every record serialized by this object."""
        return {}

    @property
    def writes_headers(self) -> bool:
        """Whether the bound function appends to its headers; each record then needs a separate list of headers."""
        return False

    @abc.abstractmethod
    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        """Serialize one value.

        Args:
            value: the object to serialize.
            ctx: topic, field and headers of the record.

        Returns:
            The bytes, or None to produce a null.

        Raises:
            SerializationError: if the value has no representation in this format.
        """

    def bind(self, topic: str, field: MessageField) -> BoundSerializer:
        """Return the function that serializes one field of one topic.

        Args:
            topic: name of the topic.
            field: key or value.
        """

        def serialize(value: Any, headers: Headers | None) -> bytes | None:
            return self(value, SerializationContext(topic, field, headers))

        return serialize


class Deserializer(abc.ABC):
    """Converts the bytes of a key or a value to an object.

    Instances are sent to the processes that run tasks, so they must be picklable.

    Example:
        >>> class Lower(Deserializer):
        ...     def __call__(self, value, ctx):
        ...         return value.decode().lower()
        >>> Lower()(b"A", SerializationContext("topic", MessageField.VALUE))
        'a'
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Restore the defaults of `bind` and `bind_batch` for a subclass that overrides only what they are to match."""
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls) and "bind" not in vars(cls):
            cls.bind = Deserializer.bind  # type: ignore[method-assign]
        if not vars(cls).keys().isdisjoint(("__call__", "bind", "split_values")) and "bind_batch" not in vars(cls):
            cls.bind_batch = Deserializer.bind_batch  # type: ignore[method-assign]

    @property
    def split_values(self) -> bool:
        """Whether the result is an iterable whose items are processed as separate records."""
        return False

    @abc.abstractmethod
    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        """Deserialize one value.

        Args:
            value: the bytes; never None.
            ctx: topic, field and headers of the record.

        Raises:
            SerializationError: if the bytes do not have this format.
            IgnoreMessage: to skip the record without an error.
        """

    def bind(self, topic: str, field: MessageField) -> BoundDeserializer:
        """Return the function that deserializes one field of one topic.

        Args:
            topic: name of the topic.
            field: key or value.
        """

        def deserialize(value: bytes, headers: Headers | None) -> Any:
            return self(value, SerializationContext(topic, field, headers))

        return deserialize

    def bind_batch(self, topic: str, field: MessageField) -> BatchDeserializer | None:
        """Return the function that deserializes many values that are dicts, with the results of `bind` in less time.

        Args:
            topic: name of the topic.
            field: key or value.

        Returns:
            The function, or None, the default, if values are read as fast one by one.
        """
        return None


class BoundFunctions(Generic[Bound]):
    """Caches the results of `bind`, for a `__call__` where binding is expensive. A pickled object is empty."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, MessageField], Bound] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundFunctions, ()

    # The cache does not count when two serializers are compared.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoundFunctions)

    def __hash__(self) -> int:
        return hash(BoundFunctions)

    def of(self, owner: Any, bind: Callable[[Any, str, MessageField], Bound], ctx: SerializationContext) -> Bound:
        """Return the function of `owner` for a topic and field; the first call makes it.

        Args:
            owner: the serializer or deserializer.
            bind: makes the function.
            ctx: context with the topic and the field.
        """
        target = (ctx.topic, ctx.field)
        function = self._functions.get(target)
        if function is None:
            function = self._functions[target] = bind(owner, *target)
        return function


SerializerName = Literal[
    "bytes",
    "str",
    "string",
    "int",
    "integer",
    "double",
    "float",
    "json",
    "quix_timeseries",
    "quix_events",
]
DeserializerName = Literal["bytes", "str", "string", "int", "integer", "double", "float", "json", "quix"]
SerializerType = SerializerName | Serializer
"""A serializer argument of a topic: a name or an object."""

DeserializerType = DeserializerName | Deserializer
"""A deserializer argument of a topic: a name or an object."""
