"""Values in internal topics that must be read back exactly: rows, with dates, Decimals and bytes."""

from typing import Any

from streamrt.errors import SerializationError, StoreCorruptedError
from streamrt.serializers import Deserializer, SerializationContext, Serializer
from streamrt.state.encoding import dumps_exact, loads_exact

__all__ = ["ExactDeserializer", "ExactSerializer"]


class ExactSerializer(Serializer):
    """Writes the values that a store can keep, in the form of stores.

    Raises:
        SerializationError: by a value that a store cannot keep.
    """

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes:  # noqa: D102
        return dumps_exact(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactSerializer)

    def __hash__(self) -> int:
        return hash(ExactSerializer)


class ExactDeserializer(Deserializer):
    """Reads what `ExactSerializer` wrote.

    Raises:
        SerializationError: by other bytes.
    """

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:  # noqa: D102
        try:
            return loads_exact(value)
        except StoreCorruptedError as error:
            raise SerializationError(str(error)) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactDeserializer)

    def __hash__(self) -> int:
        return hash(ExactDeserializer)
