"""Parts of the verification of a view: when it is at rest, which rows differ, and what is said of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from streamrt import Application
from streamrt.errors import ApplicationTimeoutError
from streamrt.kafka.completion_token import Offsets
from streamrt.records import TopicPartition
from streamrt.sql.verify import DifferingRow, InputRecord, Verification
from streamrt.sql.verify.comparison import Comparison, compare_rows, pair_close_rows
from streamrt.sql.verify.processed import find_processed
from streamrt.windows import Count

IN, GROUPED = TopicPartition("in", 0), TopicPartition("repartition__views--in--g", 0)


@dataclass
class View:
    """Offsets of a group that moves with each look."""

    committed_offsets: Sequence[Mapping[TopicPartition, int | None]]
    ends: dict[TopicPartition, int]
    looks: int = 0

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        return [each for each in (IN, GROUPED) if each.topic in topics]

    def committed(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        now = self.committed_offsets[min(self.looks, len(self.committed_offsets) - 1)]
        self.looks += 1
        return {each: now.get(each) for each in partitions}

    def bounds(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        return {each: (0, self.ends[each]) for each in partitions}

    def stable_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {each: self.ends[each] for each in partitions}

    def has_records(self, partition: TopicPartition, start: int, end: int) -> bool:
        return start < end

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {}


@dataclass
class Output:
    """A table of a view."""

    name: str = "totals"
    asked: list[str] = field(default_factory=list)

    def offsets(self, spec: str) -> Offsets:
        self.asked.append(spec)
        return Offsets({("totals", 0): 9})


def look(view: View, *, transactional: bool = True) -> Any:
    app = Application("unused:9092", consumer_group="views")
    app.dataframe(app.topic("in")).group_by("g").agg(n=Count())
    topology = app.topology.resolve({"in": 2})
    output: Any = Output()
    return find_processed(topology, ["in"], output, view, transactional=transactional, timeout=0.0)


def test_a_view_at_rest_has_processed_what_its_group_has_committed() -> None:
    found = look(View([{IN: 5, GROUPED: 3}], {IN: 7, GROUPED: 3}))
    assert (found.inputs, found.output) == ({IN: 5}, Offsets({("totals", 0): 9}))
    assert look(View([{}], {IN: 7, GROUPED: 0})).inputs == {IN: 0}


@pytest.mark.parametrize(
    ("view", "transactional", "text"),
    [
        (
            View([{IN: 5, GROUPED: 2}], {IN: 5, GROUPED: 3}),
            True,
            "repartition__views--in--g[0] is processed to offset 2 of 3",
        ),
        (
            View([*[{IN: 5, GROUPED: 3}] * 3, {IN: 6, GROUPED: 3}], {IN: 7, GROUPED: 3}),
            True,
            "its inputs were processed further while it was looked at",
        ),
        (
            View([{IN: 5, GROUPED: 3}], {IN: 7, GROUPED: 3}),
            False,
            "in[0] is committed to offset 5 of 7, and rows of others may be written",
        ),
    ],
)
def test_what_is_in_flight_is_told(view: View, transactional: bool, text: str) -> None:
    with pytest.raises(ApplicationTimeoutError) as raised:
        look(view, transactional=transactional)
    assert text in str(raised.value)


def test_rows_are_compared_as_bags_with_types_of_the_view() -> None:
    connection = duckdb.connect()
    rows = pa.table(
        {
            "name": ["a", "a", None],
            "sum": pa.array([Decimal("1.50"), Decimal("1.50"), None], pa.decimal128(10, 2)),
            "mean": [0.1 + 0.2, float("nan"), -0.0],
            "list": [["x"], None, []],
        }
    )
    connection.register("t", rows)
    query = "SELECT name, sum::DOUBLE, CASE WHEN mean < 0.4 AND mean > 0 THEN 0.3::DOUBLE ELSE mean END, list FROM t"
    assert compare_rows(connection, query, rows) == Comparison([], [])
    without_null = f"{query} WHERE name = 'a'"
    assert compare_rows(connection, without_null, rows) == Comparison([], [(None, None, 0.0, [])])
    twice = compare_rows(connection, f"{query} UNION ALL {query} WHERE mean < 1", rows)
    assert (len(twice.missing), twice.surplus) == (2, [])


def test_floats_that_differ_by_rounding_are_equal_and_decimals_are_not() -> None:
    assert pair_close_rows([("a", 1.0)], [("a", 1.0 + 1e-12)]) == Comparison([], [])
    far = [("a", 1.0)], [("a", 1.0001)]
    assert pair_close_rows(*far) == Comparison(*far)
    exact = [("a", Decimal("1.00"))], [("a", Decimal("1.01"))]
    assert pair_close_rows(*exact) == Comparison(*exact)


def test_a_verification_says_what_differs_and_hides_what_is_secret() -> None:
    rows = (
        DifferingRow("missing", {"customer": "ann", "total": 7}, (InputRecord("orders", 0, 12, '"ann"'),)),
        DifferingRow("surplus", {"customer": "bob\x1b", "total": "x" * 200}),
    )
    found = Verification("totals", Offsets({("orders", 0): 13}), 5, rows, 3, ("2 records came too late",))
    assert not found.equal
    assert str(found) == (
        "totals: 5 rows, 3 rows differ from its query over orders[0] to 13\n"
        "  missing: customer='ann', total=7; of orders[0] at offset 12 (key \"ann\")\n"
        f"  surplus: customer='bob\\x1b', total='{'x' * 99}...\n"
        "  and 1 more\n"
        "  note: 2 records came too late"
    )
    hidden = str(found.hide(["customer"]))
    assert "ann" not in hidden
    assert "missing: customer=***, total=7; of orders[0] at offset 12\n" in hidden
    assert "total=***" in str(found.hide())
