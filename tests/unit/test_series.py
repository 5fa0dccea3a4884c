"""`StreamingSeries`: every operator, evaluated through the expression that tasks evaluate."""

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamrt import MessageContext, StreamingDataFrame, StreamingSeries, message_context
from streamrt.errors import ColumnTypeError, InvalidOperationError, MissingColumnError
from tests.unit.apps import Stage

RECORD = {"a": 7, "b": 2, "zero": 0, "text": "word", "none": None, "list": [1, 2], "nested": {"x": {"y": 5}, "l": [9]}}


@pytest.fixture
def sdf() -> StreamingDataFrame:
    return Stage().sdf


def value_of(series: StreamingSeries, value: Any = RECORD) -> Any:
    return series.test(value)[0][0]


# -- Operators -------------------------------------------------------------------------------------------------------

ARITHMETIC = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("operation", ARITHMETIC + COMPARISONS, ids=lambda operation: str(operation.__name__))
def test_binary_operators_are_those_of_python(sdf: StreamingDataFrame, operation: Callable[[Any, Any], Any]) -> None:
    expected = operation(7, 2)
    assert value_of(operation(sdf["a"], sdf["b"])) == expected
    assert value_of(operation(sdf["a"], 2)) == expected
    assert value_of(operation(7, sdf["b"])) == expected
    assert value_of(operation(sdf["a"], sdf["a"])) == operation(7, 7)


def test_unary_minus_abs_and_round(sdf: StreamingDataFrame) -> None:
    assert value_of(-sdf["a"]) == -7
    negative = -sdf["a"]
    assert value_of(-negative) == 7
    assert value_of((-sdf["a"]).abs()) == value_of(abs(-sdf["a"])) == 7
    assert value_of((sdf["a"] / 3).round(2)) == value_of(round(sdf["a"] / 3, 2)) == 2.33
    rounded = value_of((sdf["a"] / 3).round())
    assert (rounded, type(rounded)) == (2, int)
    assert value_of(round(sdf["a"] / 3)) == 2


@pytest.mark.parametrize("digits", [1.5, "2", True])
def test_round_needs_a_number_of_digits(sdf: StreamingDataFrame, digits: Any) -> None:
    with pytest.raises(InvalidOperationError, match=r"round\(\) needs a number of digits"):
        sdf["a"].round(digits)


@pytest.mark.parametrize(
    ("left", "right"), [(a, b) for a in ("a", "zero", "text", "none") for b in ("b", "zero", "none", "list")]
)
def test_and_and_or_yield_one_of_their_operands(sdf: StreamingDataFrame, left: str, right: str) -> None:
    assert value_of(sdf[left] & sdf[right]) is (RECORD[left] and RECORD[right])
    assert value_of(sdf[left] | sdf[right]) is (RECORD[left] or RECORD[right])
    assert value_of(RECORD[left] & sdf[right]) is (RECORD[left] and RECORD[right])
    assert value_of(RECORD[left] | sdf[right]) is (RECORD[left] or RECORD[right])


def test_and_and_or_do_not_touch_the_right_side_without_need(sdf: StreamingDataFrame) -> None:
    assert value_of(sdf["zero"] & sdf["missing"]) == 0
    assert value_of(sdf["text"] | sdf["missing"]) == "word"
    assert value_of((sdf["a"] > 5) | (sdf["none"] > 5)) is True
    with pytest.raises(MissingColumnError):
        value_of(sdf["a"] & sdf["missing"])


@pytest.mark.parametrize(("column", "result"), [("a", False), ("zero", True), ("none", True), ("text", False)])
def test_tilde_is_logical_not(sdf: StreamingDataFrame, column: str, result: bool) -> None:
    assert value_of(~sdf[column]) is result


def test_isin_contains_is_isnot_isnull_and_notnull(sdf: StreamingDataFrame) -> None:
    assert value_of(sdf["b"].isin([1, 2])) is True
    assert value_of(sdf["b"].isin({1})) is False
    assert value_of(sdf["b"].isin(sdf["list"])) is True
    assert value_of(sdf["list"].contains(2)) is True
    assert value_of(sdf["text"].contains("or")) is True
    assert value_of(sdf["list"].contains(sdf["b"])) is True
    assert value_of(sdf["list"].contains(sdf["a"])) is False
    assert value_of(sdf["none"].is_(None)) is True
    assert value_of(sdf["a"].is_(sdf["a"])) is True
    assert value_of(sdf["a"].isnot(None)) is True
    assert value_of(sdf["none"].isnull()) is True
    assert value_of(sdf["zero"].isnull()) is False
    assert value_of(sdf["none"].notnull()) is False
    assert value_of(sdf["zero"].notnull()) is True


def test_comparison_for_equality_works_with_everything(sdf: StreamingDataFrame) -> None:
    assert value_of(sdf["none"] == 5) is False
    assert value_of(sdf["text"] != sdf["list"]) is True
    assert value_of(sdf["nested"] == {"x": {"y": 5}, "l": [9]}) is True


def test_apply_passes_the_result_through_a_function(sdf: StreamingDataFrame) -> None:
    assert value_of((sdf["a"] + 1).apply(str).apply(len)) == 1
    assert value_of(sdf["none"].apply(lambda item: item is None)) is True


def test_items_of_items_can_be_reached(sdf: StreamingDataFrame) -> None:
    assert value_of(sdf["nested"]["x"]["y"] * 2) == 10
    assert value_of(sdf["nested"]["l"][0]) == 9
    assert value_of(sdf["list"][-1]) == 2
    assert value_of(sdf["text"][0]) == "w"
    assert value_of((sdf["list"] + sdf["list"])[3]) == 2


def test_column_names_are_never_taken_for_code(sdf: StreamingDataFrame) -> None:
    names = ["value", "key", "x0", "__class__", "1 + 1", "a'b\"c", "import os", "", " ", "ä\n"]
    record = {name: number for number, name in enumerate(names, start=1)}
    for name, number in record.items():
        assert value_of(sdf[name] + 0, record) == number


def test_constants_may_be_any_object(sdf: StreamingDataFrame) -> None:
    marker = object()
    assert value_of(sdf["zero"] | cast("Any", marker)) is marker
    assert value_of(sdf["none"] == float("nan")) is False
    assert value_of(sdf["list"] + [3]) == [1, 2, 3]
    assert RECORD["list"] == [1, 2]


def test_many_terms_can_be_combined(sdf: StreamingDataFrame) -> None:
    columns = [f"c{number}" for number in range(200)]
    total = reduce(operator.add, [sdf[column] for column in columns])
    assert value_of(total, dict.fromkeys(columns, 1)) == 200


def test_a_record_is_not_changed_by_evaluation(sdf: StreamingDataFrame) -> None:
    record = {"a": [1]}
    value_of(sdf["a"] + [2], record)
    assert record == {"a": [1]}


# -- Key, timestamp, headers, context --------------------------------------------------------------------------------


def test_test_returns_key_timestamp_and_headers_beside_the_result(sdf: StreamingDataFrame) -> None:
    assert (sdf["a"] + 1).test({"a": 1}, key="k", timestamp=7, headers=[("h", b"")]) == [(2, "k", 7, [("h", b"")])]
    assert sdf["a"].test({"a": 1}) == [(1, b"key", 0, None)]


def test_compose_hands_the_result_to_a_sink(sdf: StreamingDataFrame) -> None:
    seen: list[Any] = []
    run = (sdf["a"] + 1).compose(lambda *output: seen.append(output))
    run({"a": 1}, b"k", 7, None)
    assert seen == [(2, b"k", 7, None)]
    (sdf["a"] + 1).compose()({"a": 1}, b"k", 7, None)
    assert (sdf["a"] + 1).compose_returning()({"a": 1}, b"k", 7, None) == (2, b"k", 7, None)


def test_a_series_can_be_made_from_a_function_of_all_metadata(sdf: StreamingDataFrame) -> None:
    series = StreamingSeries.from_apply_callback(
        lambda value, key, timestamp, headers: (value["a"], key, timestamp), sdf
    )
    assert series.test({"a": 1}, key="k", timestamp=7)[0][0] == (1, "k", 7)
    assert series.frame is sdf
    sdf["x"] = series
    assert sdf.test({"a": 1}, key="k", timestamp=7)[0][0] == {"a": 1, "x": (1, "k", 7)}


def test_functions_of_a_series_have_a_message_context(sdf: StreamingDataFrame) -> None:
    context = MessageContext(topic="t", partition=3, offset=9, size=1)
    assert sdf["a"].apply(lambda item: message_context().offset + item).test({"a": 1}, ctx=context)[0][0] == 10


# -- Errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [*ARITHMETIC, *COMPARISONS[2:]], ids=lambda operation: str(operation.__name__))
def test_none_in_arithmetic_and_order_is_a_type_error(
    sdf: StreamingDataFrame, operation: Callable[[Any, Any], Any]
) -> None:
    for series in (operation(sdf["none"], 1), operation(1, sdf["none"]), operation(sdf["a"], sdf["none"])):
        with pytest.raises(TypeError, match="NoneType") as caught:
            value_of(series)
        assert type(caught.value) is TypeError
    with pytest.raises(TypeError):
        value_of(-sdf["none"])


def test_a_missing_column_is_named_with_those_that_there_are(sdf: StreamingDataFrame) -> None:
    with pytest.raises(MissingColumnError) as caught:
        value_of(sdf["missing"] + 1, {"a": 1, "b": 2})
    assert str(caught.value) == "column 'missing' is missing; the value has 'a', 'b'"
    assert isinstance(caught.value, KeyError)
    assert (caught.value.column, caught.value.available) == ("missing", ("a", "b"))
    with pytest.raises(MissingColumnError, match="the value has no columns at all"):
        value_of(sdf["missing"], {})


def test_a_missing_item_of_a_column_is_named_with_the_items_of_that_column(sdf: StreamingDataFrame) -> None:
    with pytest.raises(MissingColumnError, match="column 'z' is missing; the value has 'y'"):
        value_of(sdf["nested"]["x"]["z"])


def test_of_two_columns_the_missing_one_is_named(sdf: StreamingDataFrame) -> None:
    for series in (sdf["a"] + sdf["missing"], sdf["missing"] + sdf["a"], sdf["a"].apply(str) + sdf["missing"]):
        with pytest.raises(MissingColumnError, match="column 'missing'"):
            value_of(series)


@pytest.mark.parametrize("value", [None, 5, "text", [1, 2]])
def test_a_column_of_a_value_without_columns_is_a_column_type_error(sdf: StreamingDataFrame, value: Any) -> None:
    with pytest.raises(ColumnTypeError) as caught:
        value_of(sdf["a"] + 1, value)
    assert str(caught.value).startswith(f"cannot read column a: the value is of type {type(value).__name__}")
    assert ("tombstone" in str(caught.value)) is (value is None)
    assert isinstance(caught.value, TypeError)


def test_an_item_of_a_column_without_items_is_a_column_type_error(sdf: StreamingDataFrame) -> None:
    with pytest.raises(ColumnTypeError, match=r"cannot read column a.x: the value is of type int"):
        value_of(sdf["a"]["x"])
    with pytest.raises(ColumnTypeError, match=r"cannot read column list.9: the value is of type list"):
        value_of(sdf["list"][9])


def test_a_column_that_was_not_looked_at_is_not_blamed(sdf: StreamingDataFrame) -> None:
    series = (sdf["zero"] & sdf["a"]["x"]) | (sdf["none"] + 1)
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        value_of(series)
    assert type(caught.value) is TypeError


def broken(item: Any) -> Any:
    return dict[str, Any]()["inner"]


def wrong(item: Any) -> Any:
    return 1 + item["none"]


def test_errors_inside_users_functions_are_left_alone(sdf: StreamingDataFrame) -> None:
    with pytest.raises(KeyError) as caught:
        value_of(sdf["a"].apply(broken))
    assert type(caught.value) is KeyError
    # The same name as a column that is missing indeed, but that nothing was read from.
    with pytest.raises(KeyError) as caught:
        value_of(sdf["a"].apply(broken) + sdf["inner"])
    assert type(caught.value) is KeyError
    with pytest.raises(TypeError) as error:
        value_of(StreamingSeries.from_apply_callback(lambda value, *_: wrong(value), sdf))
    assert type(error.value) is TypeError


def test_other_errors_pass_as_they_are(sdf: StreamingDataFrame) -> None:
    with pytest.raises(ZeroDivisionError):
        value_of(sdf["a"] / sdf["zero"])
    with pytest.raises(OverflowError):
        value_of(2.0 ** (sdf["a"] * 1_000))


def test_a_series_of_another_frame_cannot_be_combined(sdf: StreamingDataFrame) -> None:
    other = sdf.apply(lambda value: value)
    combinations: list[Callable[[], Any]] = [
        lambda: sdf["a"] + other["a"],
        lambda: sdf["a"] & other["a"],
        lambda: sdf["a"] == other["a"],
        lambda: sdf["a"].isin(other["a"]),
        lambda: sdf["a"].contains(other["a"]),
        lambda: sdf["a"].is_(other["a"]),
    ]
    for combine in combinations:
        with pytest.raises(InvalidOperationError, match="only if they come from the same dataframe"):
            combine()


def test_a_dataframe_is_no_operand(sdf: StreamingDataFrame) -> None:
    frame = sdf.apply(lambda value: True)
    combinations: list[Callable[[], Any]] = [
        lambda: sdf["a"] & frame,
        lambda: sdf["a"] + frame,
        lambda: frame | sdf["a"],
    ]
    for combine in combinations:
        with pytest.raises(InvalidOperationError, match="a dataframe cannot be combined with a series"):
            combine()


def test_a_series_has_no_truth_value_no_items_and_no_hash(sdf: StreamingDataFrame) -> None:
    series = sdf["a"]
    with pytest.raises(InvalidOperationError, match="a series has no truth value"):
        bool(series)
    with pytest.raises(InvalidOperationError, match="a series has no truth value"):
        0 < series < 5  # noqa: B015 - the expression itself must fail
    with pytest.raises(InvalidOperationError, match="cannot be iterated over"):
        list(cast("Any", series))
    with pytest.raises(InvalidOperationError, match="instead of 'in'"):
        5 in series  # noqa: B015 - the expression itself must fail
    with pytest.raises(TypeError):
        hash(series)


@pytest.mark.parametrize("item", [None, 1.5, ("a",), slice(0, 1)])
def test_items_are_named_by_str_or_int(sdf: StreamingDataFrame, item: Any) -> None:
    with pytest.raises(InvalidOperationError, match="an item of a series is named by str or int"):
        sdf["a"][item]


@pytest.mark.parametrize("function", [None, 5, "text"])
def test_functions_must_be_callable(sdf: StreamingDataFrame, function: Any) -> None:
    with pytest.raises(InvalidOperationError, match=r"StreamingSeries.apply\(\) needs a function"):
        sdf["a"].apply(function)
    with pytest.raises(InvalidOperationError, match=r"from_apply_callback\(\) needs a function"):
        StreamingSeries.from_apply_callback(function, sdf)


# -- Any tree of operators is what Python makes of it ----------------------------------------------------------------

Plain = Callable[[dict[str, Any]], Any]
Tree = tuple[Callable[[StreamingDataFrame], Any], Plain]
LOGIC: list[tuple[Callable[[Any, Any], Any], Callable[[Plain, Plain], Plain]]] = [
    (operator.and_, lambda left, right: lambda record: left(record) and right(record)),
    (operator.or_, lambda left, right: lambda record: left(record) or right(record)),
]


def column(name: str) -> Tree:
    return lambda sdf: sdf[name], lambda record: record[name]


def binary(operation: Callable[[Any, Any], Any], left: Tree, right: Tree) -> Tree:
    return (
        lambda sdf: operation(left[0](sdf), right[0](sdf)),
        lambda record: operation(left[1](record), right[1](record)),
    )


def with_constant(operation: Callable[[Any, Any], Any], tree: Tree, constant: Any, reflected: bool) -> Tree:
    # A string on the left of % formats whatever is on the right; a series is never asked.
    if reflected and not (operation is operator.mod and isinstance(constant, str)):
        return lambda sdf: operation(constant, tree[0](sdf)), lambda record: operation(constant, tree[1](record))
    return lambda sdf: operation(tree[0](sdf), constant), lambda record: operation(tree[1](record), constant)


def logic(pair: tuple[Callable[[Any, Any], Any], Callable[[Plain, Plain], Plain]], left: Tree, right: Tree) -> Tree:
    return lambda sdf: pair[0](left[0](sdf), right[0](sdf)), pair[1](left[1], right[1])


def unary(pair: tuple[Callable[[Any], Any], Callable[[Any], Any]], tree: Tree) -> Tree:
    return lambda sdf: pair[0](tree[0](sdf)), lambda record: pair[1](tree[1](record))


SCALARS = st.one_of(
    st.integers(-3, 3), st.sampled_from([0.5, -2.0, 1e300]), st.booleans(), st.none(), st.sampled_from(["", "ab"])
)
# Without powers: those of large numbers take longer than the universe has.
SAFE = [operation for operation in ARITHMETIC + COMPARISONS if operation is not operator.pow]
UNARY: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (operator.neg, operator.neg),
    (operator.invert, operator.not_),
    (abs, abs),
    (lambda series: series.isnull(), lambda item: item is None),
    (lambda series: series.notnull(), lambda item: item is not None),
    (lambda series: series.apply(str), str),
    (lambda series: series.isin([0, 1, None]), lambda item: item in [0, 1, None]),
    (lambda series: series["k"], lambda item: item["k"]),
]
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.sampled_from(["a", "b", "c", "missing"]).map(column),
    lambda trees: st.one_of(
        st.builds(binary, st.sampled_from(SAFE), trees, trees),
        st.builds(with_constant, st.sampled_from(SAFE), trees, SCALARS, st.booleans()),
        st.builds(logic, st.sampled_from(LOGIC), trees, trees),
        st.builds(unary, st.sampled_from(UNARY), trees),
    ),
    max_leaves=12,
)


def outcome(function: Callable[[], Any]) -> tuple[str, Any]:
    """Return the kind and the representation of a result, or the kind of the exception.

    What a missing or unreadable column raises is more precise than what Python raises, and of the same family.
    """
    try:
        result = function()
    except KeyError:
        return "error", KeyError
    except TypeError:
        return "error", TypeError
    except Exception as error:
        return "error", type(error)
    return type(result).__name__, repr(result)


STAGE = Stage()


@pytest.mark.slow
@given(tree=TREES, a=SCALARS, b=SCALARS, c=st.one_of(SCALARS, st.fixed_dictionaries({"k": SCALARS})))
@settings(max_examples=150, deadline=None)
def test_any_tree_of_operators_gives_what_python_gives(tree: Tree, a: Any, b: Any, c: Any) -> None:
    record = {"a": a, "b": b, "c": c}
    build, plain = tree
    series = build(STAGE.sdf)
    assert outcome(lambda: series.test(record)[0][0]) == outcome(lambda: plain(record))
