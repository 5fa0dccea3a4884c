"""Conformance suites for serializers and deserializers, StreamRT's and yours.

Subclass a suite in a test module, give the subclass a name that begins with `Test`, and define what it tests. pytest
collects the inherited tests. The suites need the packages pytest and hypothesis.

Example:
    ```python
    class TestUpperSerializer(SerializerConformance):
        accepted = (("a", b"A"),)
        refused = (5,)

        def make(self) -> Serializer:
            return Upper()
    ```
"""
# ruff: noqa: S101 - asserting is what a test suite does

import contextlib
import copy
import datetime
import pickle
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import cloudpickle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamrt.errors import IgnoreMessage, SerializationError
from streamrt.records import Headers
from streamrt.serializers import Deserializer, MessageField, SerializationContext, Serializer

__all__ = ["DeserializerConformance", "SerializerConformance"]

_TOPIC = "conformance"
_HEADERS: tuple[Headers | None, ...] = (None, [("name", b"\xff"), ("name", None)])

# The same test runs for each subclass, which hypothesis reports as a mistake by default.
_thoroughly = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors])

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=())),
    st.binary(),
    st.sampled_from([object(), Decimal("1.5"), datetime.datetime(2020, 1, 1), 2**64, -(2**63) - 1, 10**400]),
)
_ANYTHING = st.recursive(
    _SCALARS,
    lambda items: st.one_of(
        st.lists(items, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), items, max_size=3),
        st.tuples(items, items),
    ),
    max_leaves=6,
)


class _Outcome:
    """The outcome of a call: a result or an exception."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.error: Exception | None = None
        self.result: Any = None
        try:
            self.result = call()
        except Exception as error:  # noqa: BLE001 - the tests decide which exceptions are allowed
            self.error = error

    def same_as(self, other: "_Outcome") -> bool:
        return type(self.error) is type(other.error) and _are_equal(self.result, other.result)


def _are_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal and have the same types, at any depth: 1 equals 1.0 and True in Python."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_are_equal(item, other[key]) for key, item in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    # NaN differs from itself, and its repr does not.
    return bool(one == other) or repr(one) == repr(other)


def _container_ids(value: Any) -> set[int]:
    """Return the identities of what can be changed in place in a value, at any depth."""
    own = {id(value)} if isinstance(value, dict | list | set | bytearray) else set()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return own.union(*map(_container_ids, inner))


class SerializerConformance:
    """The contract of every `Serializer`.

    Attributes:
        accepted: pairs of a value and its bytes.
        refused: values that must raise `SerializationError`.
        none: serialized form of None: None for a tombstone, or bytes such as those of JSON's `null`.
    """

    accepted: ClassVar[Sequence[tuple[Any, bytes | None]]]
    refused: ClassVar[Sequence[Any]] = ()
    none: ClassVar[bytes | None] = None

    def make(self) -> Serializer:
        """Return the serializer under test."""
        raise NotImplementedError

    def test_values_become_their_bytes(self) -> None:
        """Each accepted value gives its bytes, as key and as value."""
        serializer = self.make()
        for value, data in self.accepted:
            for field in MessageField:
                assert serializer(value, SerializationContext(_TOPIC, field)) == data

    def test_results_are_bytes_or_none(self) -> None:
        """Kafka's producer accepts nothing else."""
        for value, _ in self.accepted:
            assert type(self.make()(value, SerializationContext(_TOPIC, MessageField.VALUE))) in (bytes, type(None))

    def test_none_has_one_representation(self) -> None:
        """None becomes a tombstone, or the null of the format."""
        assert self.make()(None, SerializationContext(_TOPIC, MessageField.VALUE)) == self.none

    def test_refused_values_raise_a_serialization_error(self) -> None:
        """The message is not empty, because users read it."""
        for value in self.refused:
            with pytest.raises(SerializationError) as caught:
                self.make()(value, SerializationContext(_TOPIC, MessageField.VALUE))
            assert str(caught.value), f"the error about {value!r} says nothing"

    def test_bind_agrees_with_a_call(self) -> None:
        """Tasks use the bound function, which must not differ."""
        serializer = self.make()
        for field in MessageField:
            bound = serializer.bind(_TOPIC, field)
            for value in [*(value for value, _ in self.accepted), *self.refused, None]:
                for headers in _HEADERS:
                    direct = _Outcome(lambda: serializer(value, SerializationContext(_TOPIC, field, headers)))  # noqa: B023
                    assert _Outcome(lambda: bound(value, headers)).same_as(direct), repr(value)  # noqa: B023

    def test_it_can_be_pickled(self) -> None:
        """A serializer is sent to the processes that run tasks."""
        again: Serializer = pickle.loads(cloudpickle.dumps(self.make()))
        bound = again.bind(_TOPIC, MessageField.VALUE)
        for value, data in self.accepted:
            assert bound(value, None) == data

    def test_values_are_not_changed(self) -> None:
        """The value is passed on to the next operator, and one that is refused to callbacks."""
        for value in [*(value for value, _ in self.accepted), *self.refused]:
            try:
                before = copy.deepcopy(value)
            except TypeError:
                continue  # some objects cannot be copied, such as a memoryview
            with contextlib.suppress(SerializationError):
                self.make()(value, SerializationContext(_TOPIC, MessageField.VALUE))
            assert _are_equal(value, before)

    def test_extra_headers_are_pairs_of_a_name_and_a_value(self) -> None:
        """They are merged into the record's own headers."""
        for name, value in self.make().extra_headers.items():
            assert isinstance(name, str)
            assert value is None or isinstance(value, str | bytes)

    @given(value=_ANYTHING)
    @_thoroughly
    def test_any_object_gives_bytes_or_a_serialization_error(self, value: Any) -> None:
        """Users would take other exceptions for bugs of StreamRT."""
        outcome = _Outcome(lambda: self.make().bind(_TOPIC, MessageField.VALUE)(value, None))
        if outcome.error is not None:
            assert isinstance(outcome.error, SerializationError), repr(outcome.error)
        else:
            assert outcome.result is None or isinstance(outcome.result, bytes)


class DeserializerConformance:
    """The contract of every `Deserializer`.

    Attributes:
        accepted: pairs of bytes and their value.
        refused: bytes that must raise `SerializationError`.
        headers: headers for the bytes, for formats that need some.
        values: strategy of values that the serializer accepts, for the round trip; None skips random round trips.
    """

    accepted: ClassVar[Sequence[tuple[bytes, Any]]]
    refused: ClassVar[Sequence[bytes]] = ()
    headers: ClassVar[Headers | None] = None
    values: ClassVar[st.SearchStrategy[Any] | None] = None

    def make(self) -> Deserializer:
        """Return the deserializer under test."""
        raise NotImplementedError

    def make_serializer(self) -> Serializer | None:
        """Return the serializer for the round trips; None skips them."""
        return None

    def test_bytes_become_their_values(self) -> None:
        """Each of the accepted bytes gives its value, of the same type, as key and as value."""
        deserializer = self.make()
        for data, value in self.accepted:
            for field in MessageField:
                assert _are_equal(self._read_data(deserializer, data, field), value), repr(data)

    def test_refused_bytes_raise_a_serialization_error(self) -> None:
        """The message is not empty, because users read it."""
        for data in self.refused:
            with pytest.raises(SerializationError) as caught:
                self._read_data(self.make(), data)
            assert str(caught.value), f"the error about {data!r} says nothing"

    def test_bind_agrees_with_a_call(self) -> None:
        """Tasks use the bound function, which must not differ."""
        deserializer = self.make()
        for field in MessageField:
            for data in [*(data for data, _ in self.accepted), *self.refused]:
                self._check_agreement(deserializer, data, field)

    def test_many_values_are_what_each_of_them_is(self) -> None:
        """What `bind_batch` returns, if it returns anything, has the results of `bind`; it never hides an error."""
        for field in MessageField:
            load = self.make().bind_batch("topic", field)
            if load is None or self.headers is not None:
                continue
            given = [data for data, _ in self.accepted]
            loaded = load(given * 2)
            if loaded is not None:
                rows = [value for _, value in self.accepted] * 2
                assert all(map(_are_equal, loaded, rows)), given
            for data in self.refused:
                assert load([given[0], data]) is None, repr(data)

    def test_it_can_be_pickled(self) -> None:
        """A deserializer is sent to the processes that run tasks."""
        again: Deserializer = pickle.loads(cloudpickle.dumps(self.make()))
        assert again.split_values == self.make().split_values
        for data, value in self.accepted:
            assert _are_equal(self._read_data(again, data), value)

    def test_each_call_gives_an_object_of_its_own(self) -> None:
        """Operators change values in place, which must not affect the next record."""
        deserializer = self.make()
        for data, _ in self.accepted:
            one, other = self._read_data(deserializer, data), self._read_data(deserializer, data)
            assert _container_ids(one).isdisjoint(_container_ids(other)), repr(data)

    def test_what_was_read_can_be_written_and_read_again(self) -> None:
        """The values of the accepted bytes survive the round trip."""
        serializer = self.make_serializer()
        if serializer is not None:
            for _, value in self.accepted:
                self._round_trip(serializer, value)

    @given(data=st.data())
    @_thoroughly
    def test_random_values_survive_the_round_trip(self, data: st.DataObject) -> None:
        """All that the serializer writes can be read."""
        serializer = self.make_serializer()
        if serializer is not None and self.values is not None:
            self._round_trip(serializer, data.draw(self.values))

    @given(data=st.binary(max_size=16))
    @_thoroughly
    def test_random_bytes_give_a_value_or_a_declared_exception(self, data: bytes) -> None:
        """Users would take other exceptions for bugs of StreamRT."""
        self._check_declared(data)

    def test_damaged_bytes_give_a_value_or_a_declared_exception(self) -> None:
        """Truncated, extended or flipped bytes come from disks, networks and other programs."""
        for data, _ in self.accepted:
            cuts = range(0, len(data), max(1, len(data) // 20))
            for cut in cuts:
                self._check_declared(data[:cut])
                self._check_declared(data[cut:])
                for bit in range(8):
                    self._check_declared(data[:cut] + bytes([data[cut] ^ 1 << bit]) + data[cut + 1 :])
            self._check_declared(data + data)

    def _check_declared(self, data: bytes) -> None:
        error = self._check_agreement(self.make(), data, MessageField.VALUE).error
        assert error is None or isinstance(error, SerializationError | IgnoreMessage), (data, error)

    def _read_data(self, deserializer: Deserializer, data: bytes, field: MessageField = MessageField.VALUE) -> Any:
        value = deserializer(data, SerializationContext(_TOPIC, field, self.headers))
        return list(value) if deserializer.split_values else value

    def _check_agreement(self, deserializer: Deserializer, data: bytes, field: MessageField) -> _Outcome:
        def bound() -> Any:
            value = deserializer.bind(_TOPIC, field)(data, self.headers)
            return list(value) if deserializer.split_values else value

        outcome = _Outcome(bound)
        assert outcome.same_as(_Outcome(lambda: self._read_data(deserializer, data, field))), repr(data)
        return outcome

    def _round_trip(self, serializer: Serializer, value: Any) -> None:
        written = serializer(value, SerializationContext(_TOPIC, MessageField.VALUE))
        # A deserializer never gets null.
        if written is not None:
            assert _are_equal(self._read_data(self.make(), written), value), repr(value)
