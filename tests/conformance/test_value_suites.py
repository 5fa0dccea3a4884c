"""Suites for serializers, row formats, tables and catalogues find what they are for, as those in `test_suites` do."""

import copy
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from streamrt.errors import SerializationError
from streamrt.records import Headers, TopicPartition
from streamrt.schema import Schema
from streamrt.serializers import Deserializer, JSONDeserializer, JSONSerializer, SerializationContext, Serializer
from streamrt.serializers.row_formats import RowFormat, row_format
from streamrt.tables.catalogue.catalog_store import CatalogStore, MemoryCatalog, Stored
from streamrt.testing import memory_topics
from streamrt.testing.catalogs import CatalogStoreConformance
from streamrt.testing.links import TableConformance
from streamrt.testing.memory_topics import MemoryLinks
from streamrt.testing.row_formats import RowFormatConformance
from streamrt.testing.serializers import DeserializerConformance, SerializerConformance

pytestmark = pytest.mark.slow


def failed(suite: type) -> str | None:
    """Run the tests of a suite until one fails, those of hypothesis last; return its name."""
    tests = [each for each in inspect.getmembers(suite, inspect.isfunction) if each[0].startswith("test_")]
    for name, test in sorted(tests, key=lambda each: hasattr(each[1], "hypothesis")):
        one = suite()
        if hasattr(test, "hypothesis"):
            # That it fails is enough: the smallest example takes seconds. Other examples might miss the fault.
            test._hypothesis_internal_use_settings = settings(  # type: ignore[attr-defined]
                test._hypothesis_internal_use_settings,  # type: ignore[attr-defined]
                phases=[Phase.generate],
                database=None,
                derandomize=True,
            )
        try:
            if "links" in inspect.signature(test).parameters:
                getattr(one, name)(one.make())
            else:
                getattr(one, name)()
        except (Exception, pytest.fail.Exception):
            return name
    return None


# -- Serializers -------------------------------------------------------------------------------------------------------


class Right(JSONSerializer):
    """Refuses what is not a mapping; None is a tombstone."""

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise SerializationError(f"a value of type {type(value).__name__} is not a mapping")
        return super().__call__(value, ctx)

    def bind(self, topic: str, field: Any) -> Callable[[Any, Headers | None], bytes | None]:
        return lambda value, headers: self(value, SerializationContext(topic, field, headers))


class GivesText(Right):
    def __call__(self, value: Any, ctx: SerializationContext) -> Any:
        data = super().__call__(value, ctx)
        return None if data is None else data.decode()


class GivesByteArrays(Right):
    def __call__(self, value: Any, ctx: SerializationContext) -> Any:
        data = super().__call__(value, ctx)
        return None if data is None else bytearray(data)


class RaisesOtherErrors(Right):
    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        if value is not None and not isinstance(value, dict):
            raise TypeError("no mapping")
        return super().__call__(value, ctx)


class SaysNothing(Right):
    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        try:
            return super().__call__(value, ctx)
        except SerializationError:
            raise SerializationError("") from None


class SwallowsErrors(Right):
    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        try:
            return super().__call__(value, ctx)
        except SerializationError:
            return b"{}"


class BindsOtherwise(Right):
    def bind(self, topic: str, field: Any) -> Callable[[Any, Headers | None], bytes | None]:
        return lambda value, headers: json.dumps(value).encode()


class ChangesTheValue(Right):
    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        data = super().__call__(value, ctx)
        if isinstance(value, dict):
            value["written"] = True
        return data


class ChangesWhatItRefuses(Right):
    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        if isinstance(value, list):
            value.clear()
        return super().__call__(value, ctx)


class DependsOnHeaders(Right):
    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        data = super().__call__(value, ctx)
        return b" " if data and ctx.headers else data

    def bind(self, topic: str, field: Any) -> Callable[[Any, Headers | None], bytes | None]:
        return lambda value, headers: self(value, SerializationContext(topic, field))


class WritesNull(Right):
    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        return b"null" if value is None else super().__call__(value, ctx)


class CannotBePickled(Right):
    def __reduce__(self) -> Any:
        raise TypeError("never")


class HeadersOfNumbers(Right):
    @property
    def extra_headers(self) -> Any:
        return {"version": 1}


class RemembersTheFirst(Right):
    first: bytes | None = None

    def __call__(self, value: Any, ctx: SerializationContext) -> bytes | None:
        data = super().__call__(value, ctx)
        if self.first is None:
            self.first = data
        return data if value is None else self.first


def serializer_suite(double: type[Serializer]) -> type:
    class Suite(SerializerConformance):
        accepted: ClassVar[Sequence[tuple[Any, bytes | None]]] = (({"a": 1}, b'{"a":1}'), ({"b": [2]}, b'{"b":[2]}'))

        # Not shared: a double changes them.
        @property
        def refused(self) -> Sequence[Any]:  # type: ignore[override]
            return ([1], 5)

        def make(self) -> Serializer:
            return double()

    Suite.accepted = copy.deepcopy(Suite.accepted)
    return Suite


SERIALIZERS: list[type[Serializer]] = [
    GivesText,
    GivesByteArrays,
    RaisesOtherErrors,
    SaysNothing,
    SwallowsErrors,
    BindsOtherwise,
    ChangesTheValue,
    ChangesWhatItRefuses,
    DependsOnHeaders,
    WritesNull,
    CannotBePickled,
    HeadersOfNumbers,
    RemembersTheFirst,
]


def test_c12_the_suite_of_serializers_passes_a_right_one() -> None:
    assert failed(serializer_suite(Right)) is None


@pytest.mark.parametrize("double", SERIALIZERS)
def test_c12_the_suite_of_serializers_finds(double: type[Serializer]) -> None:
    assert failed(serializer_suite(double))


# -- Deserializers -----------------------------------------------------------------------------------------------------


class RightReader(JSONDeserializer):
    def bind(self, topic: str, field: Any) -> Callable[[bytes, Headers | None], Any]:
        return lambda data, headers: self(data, SerializationContext(topic, field, headers))


class ReadsAnything(RightReader):
    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        try:
            return super().__call__(value, ctx)
        except SerializationError:
            return None


class LetsErrorsThrough(RightReader):
    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        return json.loads(value)


class ReadsIntegersAsFloats(RightReader):
    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        found = super().__call__(value, ctx)
        return {name: float(each) if type(each) is int else each for name, each in found.items()}


class ReadsTheFirst(RightReader):
    cache: ClassVar[dict[bytes, Any]] = {}

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        return self.cache.setdefault(value, super().__call__(value, ctx))


class SharesWhatIsInside(ReadsTheFirst):
    cache: ClassVar[dict[bytes, Any]] = {}

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        found = super().__call__(value, ctx)
        return dict(found) if isinstance(found, dict) else found


class LosesDigits(RightReader):
    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        found = super().__call__(value, ctx)
        return {name: round(each, 5) if type(each) is float else each for name, each in found.items()}


class SplitsUntilPickled(RightReader):
    split = True

    def __reduce__(self) -> Any:
        return (RightReader, ())

    @property
    def split_values(self) -> bool:
        return self.split

    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        return [super().__call__(value, ctx)]


class RaisesOnDamage(RightReader):
    def __call__(self, value: bytes, ctx: SerializationContext) -> Any:
        if value[:1] != b"{":
            raise IndexError("damaged")
        return super().__call__(value, ctx)


class BindsAnother(RightReader):
    def bind(self, topic: str, field: Any) -> Callable[[bytes, Headers | None], Any]:
        return lambda data, headers: json.loads(data)


def deserializer_suite(double: type[Deserializer]) -> type:
    class Suite(DeserializerConformance):
        accepted: ClassVar[Sequence[tuple[bytes, Any]]] = (
            (b'{"a":1}', {"a": 1}),
            (b'{"b":[2],"c":{"d":1.5}}', {"b": [2], "c": {"d": 1.5}}),
        )
        refused = (b"", b"{", b"\xff")
        values = st.dictionaries(st.text(max_size=2), st.floats(allow_nan=False, allow_infinity=False), max_size=2)

        def make(self) -> Deserializer:
            return double()

        def make_serializer(self) -> Serializer:
            return JSONSerializer()

    return Suite


def test_c12_the_suite_of_deserializers_passes_a_right_one() -> None:
    assert failed(deserializer_suite(RightReader)) is None


@pytest.mark.parametrize(
    "double",
    [
        ReadsAnything,
        LetsErrorsThrough,
        ReadsIntegersAsFloats,
        ReadsTheFirst,
        SharesWhatIsInside,
        LosesDigits,
        SplitsUntilPickled,
        RaisesOnDamage,
        BindsAnother,
    ],
)
def test_c12_the_suite_of_deserializers_finds(double: type[Deserializer]) -> None:
    assert failed(deserializer_suite(double))


# -- Formats of rows ---------------------------------------------------------------------------------------------------


def rows_suite(changed: Mapping[str, Any]) -> type:
    def make(schema: Schema) -> RowFormat:
        right = row_format("json", schema)
        kind = type(right)
        double = type("Double", (kind,), {"right": kind, **changed})
        # So that copies that were pickled are doubles as well.
        globals()["Double"] = double
        double.__module__, double.__qualname__ = __name__, "Double"
        right.__class__ = double
        return right

    class Suite(RowFormatConformance):
        types = ("BIGINT", "STRING", "TIMESTAMP", "DOUBLE")
        refused = (b"", b"null", b"{")

        def make(self, schema: Schema) -> RowFormat:
            return make(schema)

    return Suite


def _cut_times(self: Any, row: Any, topic: str, *rest: Any) -> bytes:
    row = {name: each.replace(microsecond=0) if hasattr(each, "microsecond") else each for name, each in row.items()}
    data: bytes = self.right.encode(self, row, topic, *rest)
    return data


def _unordered(self: Any, values: Sequence[bytes], topic: str, columns: Any = None) -> Any:
    batch = self.right.decode_batch(self, values, topic, columns)
    return batch.select(sorted(batch.schema.names))


def _reversed_rows(self: Any, values: Sequence[bytes], topic: str, columns: Any = None) -> Any:
    return self.right.decode_batch(self, [*reversed(values)], topic, columns)


def _without_place(self: Any, values: Sequence[bytes], topic: str, columns: Any = None) -> Any:
    try:
        return self.right.decode_batch(self, values, topic, columns)
    except SerializationError as error:
        raise SerializationError(str(error).partition(": ")[2]) from None


def _all_but_bad_ones(self: Any, values: Sequence[bytes], topic: str, columns: Any = None) -> Any:
    good = []
    for value in values:
        try:
            self.decode(value, topic)
        except SerializationError:
            continue
        good.append(value)
    return self.right.decode_batch(self, good, topic, columns)


def _tells_values(self: Any, row: Any, topic: str, *rest: Any) -> bytes:
    try:
        data: bytes = self.right.encode(self, row, topic, *rest)
    except SerializationError as error:
        raise SerializationError(f"{error}: {row}") from None
    return data


def _fills_nulls(self: Any, row: Any, topic: str, *rest: Any) -> bytes:
    if isinstance(row, dict):
        row = {name: "" if each is None else each for name, each in row.items()}
    data: bytes = self.right.encode(self, row, topic, *rest)
    return data


def _with_other_names(self: Any, value: bytes, topic: str) -> dict[str, Any]:
    return {name.upper(): each for name, each in self.right.decode(self, value, topic).items()}


@pytest.mark.parametrize(
    "changed",
    [
        {"encode": _cut_times},
        {"decode_batch": _unordered},
        {"decode_batch": _reversed_rows},
        {"decode_batch": _without_place},
        {"decode_batch": _all_but_bad_ones},
        {"encode": _tells_values},
        {"encode": _fills_nulls},
        {"decode": _with_other_names},
        {"encode_batch": lambda self, batch, topic: self.right.encode_batch(self, batch, topic)[:-1]},
    ],
    ids=lambda changed: next(iter(changed.values())).__name__,
)
def test_c12_the_suite_of_row_formats_finds(changed: Mapping[str, Any]) -> None:
    assert failed(rows_suite(changed))


def test_c12_the_suite_of_row_formats_passes_a_right_one() -> None:
    assert failed(rows_suite({})) is None


# -- Catalogues --------------------------------------------------------------------------------------------------------


class LastWins(MemoryCatalog):
    def _require_version(self, key: str, expected: str | None) -> None:
        """Compares nothing."""


class DeletesAnyVersion(MemoryCatalog):
    def delete(self, key: str, expected: str) -> None:
        self._objects.pop(key, None)


class CreatesOverWhatThereIs(MemoryCatalog):
    def _require_version(self, key: str, expected: str | None) -> None:
        if expected is not None:
            super()._require_version(key, expected)


class Unsorted(MemoryCatalog):
    def list(self, prefix: str = "") -> dict[str, Stored]:
        return {key: self._objects[key] for key in self._objects if key.startswith(prefix)}


class ByFolder(MemoryCatalog):
    def list(self, prefix: str = "") -> dict[str, Stored]:
        folder = prefix.partition("/")[0]
        return {key: each for key, each in super().list().items() if key.startswith(folder)}


class IgnoresCase(MemoryCatalog):
    def get(self, key: str) -> Stored | None:
        return super().get(key.lower())

    def put(self, key: str, value: bytes, expected: str | None) -> str:
        return super().put(key.lower(), value, expected)


class Caching(MemoryCatalog):
    """Reads what another one has written once, and never again."""

    def __init__(self, shared: MemoryCatalog | None = None) -> None:
        super().__init__()
        self._shared = shared or MemoryCatalog()
        self._known: dict[str, Stored | None] = {}

    def get(self, key: str) -> Stored | None:
        return self._known.setdefault(key, self._shared.get(key))

    def list(self, prefix: str = "") -> dict[str, Stored]:
        return self._shared.list(prefix)

    def put(self, key: str, value: bytes, expected: str | None) -> str:
        return self._shared.put(key, value, expected)

    def delete(self, key: str, expected: str) -> None:
        self._shared.delete(key, expected)


class LooksThenWrites(MemoryCatalog):
    """Compares first, and then writes."""

    def put(self, key: str, value: bytes, expected: str | None) -> str:
        self._require_version(key, expected)
        # Another writer comes in between.
        found = self._objects.get(key)
        if found is not None and self._changes == 2:
            self._objects[key] = Stored(b'{"n": 100}', "other")
        self._changes += 1
        self._objects[key] = Stored(bytes(value), str(self._changes))
        return str(self._changes)


class SameVersion(MemoryCatalog):
    def put(self, key: str, value: bytes, expected: str | None) -> str:
        super().put(key, value, expected)
        self._objects[key] = Stored(bytes(value), "1")
        return "1"


def catalog_suite(double: type[MemoryCatalog]) -> type:
    class Suite(CatalogStoreConformance):
        def __init__(self) -> None:
            self.shared = double()

        def make(self) -> CatalogStore:
            return Caching(self.shared._shared) if isinstance(self.shared, Caching) else self.shared

    return Suite


def test_c12_the_suite_of_catalogues_passes_a_right_one() -> None:
    assert failed(catalog_suite(MemoryCatalog)) is None


@pytest.mark.parametrize(
    "double",
    [LastWins, DeletesAnyVersion, CreatesOverWhatThereIs, Unsorted, ByFolder, IgnoresCase, Caching, SameVersion],
)
def test_c12_the_suite_of_catalogues_finds(double: type[MemoryCatalog]) -> None:
    assert failed(catalog_suite(double))


# -- Tables ------------------------------------------------------------------------------------------------------------


def table_suite() -> type:
    class Suite(TableConformance):
        def make(self) -> MemoryLinks:
            return MemoryLinks()

    return Suite


def test_c12_the_suite_of_tables_passes_a_right_one() -> None:
    assert failed(table_suite()) is None


def _everything_is_visible(self: Any, entry: Any) -> bool:
    return True


def _nobody_is_fenced(self: Any) -> bool:
    return True


def _same_ids(self: Any, topic_names: Sequence[str], timeout: float = 30) -> dict[str, str | None]:
    return {name: "id" if name in self._links._topics else None for name in topic_names}


def _commits_what_is_aborted(self: Any) -> None:
    self.end(aborted=False)


def _ends_are_stable(
    self: Any, partitions: Sequence[TopicPartition], timeout: float = 30, *, isolation_level: str = "read_uncommitted"
) -> dict[TopicPartition, tuple[int, int]]:
    return {each: (0, self._links._partition(each).high) for each in partitions}


def _never_paused(self: Any, partitions: Sequence[TopicPartition]) -> None:
    """Reads on."""


def _never_moved(self: Any, partition: TopicPartition, offset: int) -> None:
    """Reads on."""


def _reports_in_any_order(self: Any, timeout: float = 0.0) -> None:
    reports, self._reports = self._reports, []
    for on_delivery, error, partition, offset, sent_at in reversed(reports):
        on_delivery(error, partition, offset, sent_at)


@pytest.mark.parametrize(
    ("name", "method", "double"),
    [
        ("_Partition", "is_visible", _everything_is_visible),
        ("_MemorySender", "_owns_id", _nobody_is_fenced),
        ("_MemoryAdmin", "topic_ids", _same_ids),
        ("_MemorySender", "abort", _commits_what_is_aborted),
        ("_MemoryAdmin", "offset_bounds", _ends_are_stable),
        ("_MemoryFeed", "pause", _never_paused),
        ("_MemoryFeed", "seek", _never_moved),
        ("_MemorySender", "poll", _reports_in_any_order),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_c12_the_suite_of_tables_finds(
    monkeypatch: pytest.MonkeyPatch, name: str, method: str, double: Callable[..., Any]
) -> None:
    kind = getattr(memory_topics, name)
    monkeypatch.setattr(kind, method, double)
    monkeypatch.setattr("streamrt.testing.links._WAIT_S", 1.0)
    assert failed(table_suite())
