"""The side of StreamRT: runs cases in the test driver."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

from streamrt import Application, StreamingDataFrame, StreamingTable, Topic
from streamrt.joins import AsOfHow
from streamrt.relations import TableHow
from streamrt.testing import TopologyTestDriver
from streamrt.windows import Aggregator, Count, Last, Max, Min, Sum
from tests.oracle.kafka_streams.generate import list_inputs
from tests.unit.apps import application

__all__ = ["run"]

Case = dict[str, Any]
Plan = list[Any]
Table = StreamingTable[StreamingDataFrame]

_TEXT: dict[str, Any] = {"key_serializer": "str", "key_deserializer": "str"}
_AGGREGATORS: dict[str, type[Aggregator]] = {"count": Count, "sum": Sum, "min": Min, "max": Max, "last": Last}


def run(case: Case, **settings: Any) -> list[Any]:
    """Return what StreamRT puts out at each step of a case."""
    app = application(**settings)
    topics = {name: app.topic(name, **_TEXT) for name in list_inputs(case["plan"])}
    found: list[Any] = []

    def note(value: Any, key: Any, timestamp: int, headers: Any) -> None:
        found.append([key, value, timestamp])

    frame = _Plans(app, topics).build(case["plan"])
    (frame.to_stream() if isinstance(frame, StreamingTable) else frame).update(note, metadata=True)
    answers = []
    with TopologyTestDriver(app) as driver:
        for topic, key, row, timestamp in case["steps"]:
            driver.pipe(topics[topic], row, key=key, timestamp=timestamp)
            answers.append(found[:])
            found.clear()
    return answers


class _Plans:
    """Builds the dataframes and tables of plans."""

    def __init__(self, app: Application, topics: dict[str, Topic]) -> None:
        self._app = app
        self._topics = topics
        self._names = map("n{}".format, itertools.count())

    def build(self, plan: Plan) -> Any:
        """Return the table or the dataframe of a plan."""
        word, *arguments = plan
        return getattr(self, f"_{word}")(*arguments)

    def _build_table(self, plan: Plan) -> Table:
        return cast("Table", self.build(plan))

    def _build_stream(self, plan: Plan) -> StreamingDataFrame:
        return cast("StreamingDataFrame", self.build(plan))

    def _table(self, topic: str) -> Table:
        return self._app.table(self._topics[topic])

    def _stream(self, topic: str) -> StreamingDataFrame:
        return self._app.dataframe(self._topics[topic])

    _versioned = _stream

    def _filter(self, plan: Plan, column: str, least: int) -> Table:
        return self._build_table(plan).filter(lambda row: row.get(column) is not None and row[column] >= least)

    def _map(self, plan: Plan, column: str, addend: int, name: str) -> Table:
        def add(row: Any) -> Any:
            # Columns of a side that is missing are left out.
            return {**row, name: None if row.get(column) is None else row[column] + addend}

        return self._build_table(plan).apply(add)

    def _join(self, left: Plan, right: Plan, how: TableHow) -> Table:
        return self._build_table(left).join(self._build_table(right), how=how, name=next(self._names))

    def _foreign(self, left: Plan, right: Plan, column: str, how: TableHow) -> Table:
        # The rows of a group have the column of their key.
        return self._build_table(left).join(
            self._build_table(right),
            how=how,
            on=_key_of(left, column),
            on_merge="keep-left",
            name=next(self._names),
        )

    def _aggregate(self, plan: Plan, column: str | None, aggregates: Plan) -> Table:
        frame = self._build_stream(plan)
        if column is not None:
            frame = frame.group_by(column, **_TEXT)
        return frame.agg(**_aggregators(aggregates))

    def _reduce(self, plan: Plan, function: str, column: str, name: str) -> Table:
        frame = self._build_stream(plan).filter(lambda row: row[column] is not None)
        return frame.agg(**_aggregators([[name, function, column]]))

    def _group(self, plan: Plan, column: str, aggregates: Plan) -> Table:
        # A second grouping of the same tables needs a name. Kafka Streams leaves rows out whose group is null.
        groups = self._build_table(plan).group_by(_key_of(plan, column), name=next(self._names), nulls="skip")
        return groups.agg(**_aggregators(aggregates))

    def _lookup(self, plan: Plan, table: Plan, how: AsOfHow) -> StreamingDataFrame:
        stream, other = self._build_stream(plan), self.build(table)
        return stream.join(other, how=how) if table[0] == "table" else stream.join_asof(other, how=how)


def _key_of(plan: Plan, column: str) -> str | Callable[[Any], Any]:
    # Columns of a side that is missing are left out.
    return (lambda row: row.get(column)) if plan[0] in ("join", "foreign") else column


def _aggregators(aggregates: Plan) -> dict[str, Aggregator]:
    return {
        name: Count() if function == "rows" else _AGGREGATORS[function](column, missing="ignore")
        for name, function, column in aggregates
    }
