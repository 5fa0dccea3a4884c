"""The contract of serializers and deserializers, and how the others are found by name.

A serializer is called once for every key or value, so the contract has two doors:

- `__call__(value, ctx)` is what a serializer must define;
- `bind(topic, field)` returns the function that tasks call. By default it wraps `__call__`. A serializer that needs
  neither the topic nor the headers overrides it and saves building a context for every record.

`None` never reaches a deserializer: a key of None or a tombstone stays None whatever the type.
"""

import abc
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from streamrt.models import Headers, HeadersMapping

BoundSerializer = Callable[[Any, "Headers | None"], "bytes | None"]
"""Serializes the keys or the values of one topic: takes a value and the record's headers, returns bytes or None."""

BoundDeserializer = Callable[[bytes, "Headers | None"], Any]
"""Deserializes the keys or the values of one topic: takes bytes and the record's headers, returns a value."""

Bound = TypeVar("Bound", BoundSerializer, BoundDeserializer)


class MessageField(str, enum.Enum):
    """Which part of a record is serialized."""

    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True)
class SerializationContext:
    """What a serializer may want to know beside the value.

    Attributes:
        topic: name of the topic that the record is read from or goes to.
        field: whether the key or the value is meant.
        headers: the record's headers, or None where it has none.
    """

    topic: str
    field: MessageField
    headers: Headers | None = None


class Serializer(abc.ABC):
    """Turns a key or a value into bytes.

    Instances travel to the processes that run the tasks, so they must be picklable.

    Example:
        >>> class Upper(Serializer):
        ...     def __call__(self, value, ctx):
        ...         return value.upper().encode()
        >>> Upper()("a", SerializationContext("topic", MessageField.VALUE))
        b'A'
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let a class that defines its call alone be called so, also where the class above it binds in a faster way."""
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls) and "bind" not in vars(cls):
            cls.bind = Serializer.bind  # type: ignore[method-assign]

    @property
    def extra_headers(self) -> HeadersMapping:
        """Headers that are appended to every record serialized by this object."""
        return {}

    @property
    def writes_headers(self) -> bool:
        """Whether the bound function appends to the headers that it is given; then it needs a list of the record's own."""
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
    """Turns the bytes of a key or a value into an object.

    Instances travel to the processes that run the tasks, so they must be picklable.

    Example:
        >>> class Lower(Deserializer):
        ...     def __call__(self, value, ctx):
        ...         return value.decode().lower()
        >>> Lower()(b"A", SerializationContext("topic", MessageField.VALUE))
        'a'
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let a class that defines its call alone be called so, also where the class above it binds in a faster way."""
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls) and "bind" not in vars(cls):
            cls.bind = Deserializer.bind  # type: ignore[method-assign]

    @property
    def split_values(self) -> bool:
        """Whether the result is an iterable whose items are processed as records of their own."""
        return False

    @abc.abstractmethod
    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        """Deserialize one value.

        Args:
            value: the bytes; never None.
            ctx: topic, field and headers of the record.

        Raises:
            SerializationError: if the bytes are not of this format.
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


class BoundFunctions(Generic[Bound]):
    """Keeps what `bind` returns, for a `__call__` where binding is expensive. A copy in another process begins anew."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, MessageField], Bound] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundFunctions, ()

    # What was kept so far is no difference between two serializers.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoundFunctions)

    def __hash__(self) -> int:
        return hash(BoundFunctions)

    def of(self, owner: Any, bind: Callable[[Any, str, MessageField], Bound], ctx: SerializationContext) -> Bound:
        """Return the function of `owner` for a topic and field, made at the first call.

        Args:
            owner: the serializer or deserializer.
            bind: makes the function.
            ctx: what has the topic and the field.
        """
        place = (ctx.topic, ctx.field)
        function = self._functions.get(place)
        if function is None:
            function = self._functions[place] = bind(owner, *place)
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
"""What a topic takes as serializer: a name, or an object."""

DeserializerType = DeserializerName | Deserializer
"""What a topic takes as deserializer: a name, or an object."""
