"""Rules of maintained tables as functions: what the row of a key becomes by a request."""

import datetime
import random
import sys
from decimal import Decimal
from typing import Any

import pytest

from streamrt.errors import ConfigurationError, InvalidOperationError, SchemaMismatchError
from streamrt.relations.change import rows_differ
from streamrt.relations.merge_rules import RowMerger
from streamrt.schema import Schema
from streamrt.tables.descriptions.maintenance import (
    Aggregate,
    Function,
    ListAgg,
    Maintenance,
    SequenceGroups,
    Versioned,
)

COLUMNS = "k BIGINT, a BIGINT DEFAULT 5, b STRING, PRIMARY KEY (k)"
NAMES = ("a", "b")


class Folded:
    """A row that is made of requests."""

    def __init__(self, columns: str, rules: Maintenance) -> None:
        merger = RowMerger(Schema(columns), ("k",), rules)
        self.upsert_row, self.delete_row = merger.make_upsert(), merger.make_delete()
        self.row: Any = None

    def upsert(self, **given: Any) -> Any:
        self.row = self.upsert_row(self.row, {"k": 1, **given})
        return self.values()

    def delete(self, *names: str) -> Any:
        given = {"k": 1, **dict.fromkeys(names)} if names else None
        self.row = self.delete_row(self.row, given)
        return self.values()

    def values(self) -> Any:
        return None if self.row is None else tuple(value for name, value in self.row.items() if name != "k")


def fold(merge: Any = "last", columns: str = COLUMNS, **rules: Any) -> Folded:
    return Folded(columns, Maintenance(merge, **rules))


def test_a_partial_update_sets_what_it_gives() -> None:
    row = fold()
    assert row.upsert() == (5, None)
    assert row.upsert(b="x") == (5, "x")
    assert row.upsert(a=None) == (None, "x")
    before = dict(row.row)
    assert row.upsert() == (None, "x")
    assert list(row.row) == list(before)


def test_a_partial_delete_sets_columns_to_null_and_deletes_an_empty_row() -> None:
    row = fold()
    row.upsert(a=1, b="x")
    assert row.delete("a") == (None, "x")
    assert row.delete("b") is None
    assert row.delete("b") is None
    row.upsert(a=1, b="x")
    assert row.delete() is None


def test_columns_that_must_not_be_null() -> None:
    columns = "k BIGINT, a BIGINT NOT NULL, b STRING NOT NULL DEFAULT 'new', PRIMARY KEY (k)"
    row = fold(columns=columns)
    with pytest.raises(SchemaMismatchError, match="column 'a' must not be null, and a new row needs a value"):
        row.upsert(b="x")
    assert row.upsert(a=1) == (1, "new")
    with pytest.raises(SchemaMismatchError, match="column 'a' must not be null"):
        row.delete("a")
    assert row.values() == (1, "new")
    assert row.delete("a", "b") is None


@pytest.mark.rows("FL-169")
def test_deletes_are_ignored_or_refused() -> None:
    for merge in ("last", "first", Versioned("a"), SequenceGroups({"a": ["b"]}), Aggregate(a="sum")):
        row = fold(merge, deletes="ignore")
        row.upsert(a=1, b="x")
        before = row.row
        row.delete()
        row.delete("a")
        assert row.row is before
        row = fold(merge, deletes="refuse")
        with pytest.raises(InvalidOperationError, match="refuses deletes"):
            row.delete()


def test_the_first_row_stays() -> None:
    row = fold("first")
    assert row.upsert(a=1) == (1, None)
    before = row.row
    row.upsert(a=2, b="x")
    assert row.row is before


def test_the_highest_version_counts() -> None:
    row = fold(Versioned("a"))
    assert row.upsert(a=None, b="x") == (None, "x")
    assert row.upsert(a=None, b="y") == (None, "y")
    assert row.upsert(a=3, b="z") == (3, "z")
    before = row.row
    for version in (2, None):
        row.upsert(a=version, b="old")
        assert row.row is before
    row.upsert(b="without a version")
    assert row.row is before
    assert row.upsert(a=3, b="equal") == (3, "equal")


def test_groups_of_columns_have_sequences_of_their_own() -> None:
    columns = "k BIGINT, s BIGINT, a STRING, t DATE, b STRING, free STRING, PRIMARY KEY (k)"
    row = fold(SequenceGroups({"s": ["a"], "t": ["b"]}), columns)
    early, late = datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)
    assert row.upsert(a="no sequence", t=early, b="b1") == (None, None, early, "b1", None)
    assert row.upsert(s=2, a="a2", t=late, b="b2", free="f") == (2, "a2", late, "b2", "f")
    assert row.upsert(s=1, a="a1", t=late, b="b3") == (2, "a2", late, "b3", "f")
    assert row.upsert(s=None, a="a0", free="g") == (2, "a2", late, "b3", "g")
    assert row.upsert(s=3) == (3, "a2", late, "b3", "g")
    before = row.row
    row.upsert(s=1, a="a1", t=early)
    assert row.row is before


@pytest.mark.parametrize(
    ("dtype", "function", "values", "expected"),
    [
        ("BIGINT", "sum", [1, None, 2**62], 2**62 + 1),
        ("BIGINT", "product", [3, None, 2**60], 3 * 2**60),
        ("DECIMAL(38, 2)", "sum", [Decimal("1e35"), Decimal("0.01")], Decimal("1" + "0" * 35 + ".01")),
        ("DECIMAL(10, 2)", "product", [Decimal("0.05"), Decimal("0.50")], Decimal("0.03")),
        ("DOUBLE", "sum", [0.5, 0.25], 0.75),
        ("DATE", "min", [datetime.date(2026, 2, 1), None, datetime.date(2026, 1, 1)], datetime.date(2026, 1, 1)),
        ("STRING", "max", ["a", "é", "b"], "é"),
        ("STRING", "first_value", [None, "a", None, "b"], "a"),
        ("STRING", "first_value_ignore_nulls", [None, "a", "b"], "a"),
        ("STRING", "last_value", ["a", None], None),
        ("STRING", "last_value_ignore_nulls", ["a", "b", None], "b"),
        ("STRING", None, ["a", "b", None], "b"),
        ("STRING", "listagg", ["a", None, "b"], "a,b"),
        ("STRING", ListAgg("; "), ["a", None, "b"], "a; b"),
        ("STRING", ListAgg(""), ["a", "b"], "ab"),
        ("BOOLEAN", "bool_and", [True, None, False, True], False),
        ("BOOLEAN", "bool_or", [False, None, True, False], True),
    ],
)
def test_columns_are_combined(dtype: str, function: Function | None, values: list[Any], expected: Any) -> None:
    rule = Aggregate(**({} if function is None else {"v": function}))
    row = fold(rule, f"k BIGINT, v {dtype}, PRIMARY KEY (k)")
    for value in values:
        row.upsert(v=value)
    assert row.values() == (expected,)
    row.upsert()
    assert row.values() == (expected,)


@pytest.mark.rows("FL-167")
@pytest.mark.parametrize(("function", "most"), [("rbm32", 2**32), ("rbm64", 2**64)])
def test_bitmaps_are_united(function: str, most: int) -> None:
    library = pytest.importorskip("pyroaring")
    kind = library.BitMap if function == "rbm32" else library.BitMap64
    row = fold(Aggregate(v=function), "k BIGINT, v BINARY, PRIMARY KEY (k)")
    for seed in range(5):
        rng, model = random.Random(seed), set[int]()
        row.row = None
        for _ in range(6):
            some = rng.sample(range(most - 2**20, most), 5) + list(range(start := rng.randrange(10**6), start + 3_000))
            model.update(some)
            row.upsert(v=kind(some).serialize())
            row.upsert(v=None)
            (stored,) = row.values()
            assert set(kind.deserialize(stored)) == model
        # The same set is the same bytes, in whatever order it came, so that no change is written.
        before = row.row
        row.upsert(v=kind(some).serialize())
        assert not rows_differ(before, row.row)
        whole = kind(model)
        whole.run_optimize()
        assert stored == whole.serialize()


@pytest.mark.parametrize("value", [b"", b"no bitmap", b"\x3a\x30\x00\x00\x01\x00\x00\x00"])
@pytest.mark.parametrize("function", ["rbm32", "rbm64"])
def test_what_is_not_a_bitmap_is_refused(function: str, value: bytes) -> None:
    pytest.importorskip("pyroaring")
    row = fold(Aggregate(v=function), "k BIGINT, v BINARY, PRIMARY KEY (k)")
    with pytest.raises(SchemaMismatchError, match=rf"column 'v' must be a Roaring bitmap of {function[3:]} bits"):
        row.upsert(v=value)
    assert row.row is None


def test_bitmaps_need_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyroaring", None)
    with pytest.raises(
        ConfigurationError, match=r"Aggregate\(v='rbm32'\) needs the library pyroaring, the extra 'bitmaps'"
    ):
        fold(Aggregate(v="rbm32"), "k BIGINT, v BINARY, PRIMARY KEY (k)").upsert(v=b"")


@pytest.mark.parametrize("function", ["first_value", "first_value_ignore_nulls"])
def test_the_first_value_of_a_column_that_was_left_out_is_the_first_one_given(function: str) -> None:
    row = fold(Aggregate(a="sum", b=function), "k BIGINT, a BIGINT, b STRING, PRIMARY KEY (k)", deletes="allow")
    assert row.upsert(a=1) == (1, None)
    assert row.upsert(b="x") == (1, "x")
    assert row.upsert(b="y") == (1, "x")
    assert row.delete("b") == (1, None)
    assert row.upsert(b="z") == (1, "z")


@pytest.mark.parametrize(
    ("dtype", "function", "value", "message"),
    [
        ("BIGINT", "sum", 2**62, r"the sum of column 'v' \(BIGINT\) would not be an integer of 64 bits"),
        ("INT", "product", 2**20, "would not be an integer of 32 bits"),
        ("DECIMAL(3, 0)", "sum", Decimal(600), "digits before the point"),
        ("DOUBLE", "product", 1e200, "would not be finite"),
    ],
)
def test_a_result_that_does_not_fit_is_refused(dtype: str, function: str, value: Any, message: str) -> None:
    row = fold(Aggregate(v=function), f"k BIGINT, v {dtype}, PRIMARY KEY (k)")
    row.upsert(v=value)
    with pytest.raises(SchemaMismatchError, match=message):
        row.upsert(v=value)
    assert row.values() == (value,)


def test_stored_rows_get_the_columns_of_the_schema() -> None:
    columns = "k BIGINT, a BIGINT, added STRING NOT NULL DEFAULT 'x', PRIMARY KEY (k)"
    read = RowMerger(Schema(columns), ("k",), Maintenance()).make_reader()
    assert read({"k": 1, "a": 2, "dropped": 3}) == {"k": 1, "a": 2, "added": "x"}


RULES = ["last", "first", Versioned("a"), SequenceGroups({"a": ["b"]}), Aggregate(a="sum", b="listagg")]


@pytest.mark.parametrize(
    "rule", RULES, ids=[type(rule).__name__ if not isinstance(rule, str) else rule for rule in RULES]
)
def test_any_requests_give_what_a_naive_fold_gives(rule: Any) -> None:
    for seed in range(100):
        rng = random.Random(seed)
        row = fold(rule, deletes=rng.choice(["allow", "ignore"]))
        allows = row.delete_row({"k": 1}, None) is None
        model: Any = None
        for number in range(12):
            given: dict[str, Any] = {name: rng.choice([None, number % 7]) for name in NAMES if rng.random() < 0.6}
            if "b" in given and given["b"] is not None:
                given["b"] = str(given["b"])
            if rng.random() < 0.2:
                names = tuple(given) if rng.random() < 0.5 else ()
                row.delete(*names)
                if allows and model is not None:
                    model = {name: None if name in names else model[name] for name in NAMES} if names else None
                    if model == {"a": None, "b": None}:
                        model = None
            else:
                row.upsert(**given)
                model = fold_naively(rule, model, given)
            assert row.values() == (None if model is None else (model["a"], model["b"])), (seed, number)


def fold_naively(rule: Any, model: Any, given: dict[str, Any]) -> dict[str, Any]:
    if isinstance(rule, SequenceGroups) and given.get("a") is None:
        given = {}
    if model is None:
        return {"a": 5, "b": None, **given}
    version = -1 if model["a"] is None else model["a"]
    wanted = given.get("a")
    if isinstance(rule, Versioned | SequenceGroups) and given and (-1 if wanted is None else wanted) < version:
        return dict(model)
    if isinstance(rule, Versioned) and version > -1 and wanted is None:
        return dict(model)
    if rule == "first":
        return dict(model)
    if not isinstance(rule, Aggregate):
        return {**model, **given}
    after = dict(model)
    for name, value in given.items():
        if value is not None:
            before = model[name]
            after[name] = value if before is None else before + value if name == "a" else f"{before},{value}"
    return after
