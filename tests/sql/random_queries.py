"""Random queries of the grammar that views support, over random tables: what text they have is fixed by a seed.

Values are such that each query has one answer: integers are small, doubles are quarters, whose sums are exact, and what is
numbered is ordered by all of its columns.
"""

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple

__all__ = ["LITERALS", "TYPES", "Column", "QueryMaker", "Relation"]

TYPES = ("BIGINT", "INT", "STRING", "DOUBLE", "DECIMAL(10, 2)", "BOOLEAN", "DATE", "TIMESTAMP")
LITERALS = {
    "BIGINT": ("0", "1", "2", "-1", "7"),
    "INT": ("0", "1", "2", "3", "-2"),
    "STRING": ("'a'", "'b'", "''", "'abc'", "'A'"),
    "DOUBLE": ("CAST(0 AS DOUBLE)", "CAST(0.25 AS DOUBLE)", "CAST(-1.5 AS DOUBLE)", "CAST(2 AS DOUBLE)"),
    "DECIMAL(10, 2)": ("CAST(0 AS DECIMAL(10, 2))", "CAST(1.25 AS DECIMAL(10, 2))", "CAST(-3.5 AS DECIMAL(10, 2))"),
    "BOOLEAN": ("TRUE", "FALSE"),
    "DATE": ("DATE '2024-02-28'", "DATE '2024-03-01'"),
    "TIMESTAMP": ("TIMESTAMP '2024-02-28 23:59:50'", "TIMESTAMP '2024-02-29 00:00:05'"),
}
_NUMBERS = ("BIGINT", "INT", "DOUBLE", "DECIMAL(10, 2)")
_KEYS = ("BIGINT", "INT", "STRING", "DATE", "BOOLEAN")
"""Types whose values are equal often enough to group and join by."""


class Column(NamedTuple):
    """A column of a relation."""

    name: str
    type: str


class Relation(NamedTuple):
    """A relation: what stands behind FROM, and its columns."""

    text: str
    columns: tuple[Column, ...]


class QueryMaker:
    """Makes queries.

    Args:
        source: chooses.
        tables: columns by the names of tables.
        windows: how often queries group by windows of times.
    """

    def __init__(
        self,
        source: random.Random,
        tables: dict[str, tuple[Column, ...]],
        windows: Literal["never", "seldom", "often"] = "seldom",
    ) -> None:
        self._random = source
        self._tables = tables
        self._windows_come = windows
        self._names = 0
        # Chooses queries that came later, so that seeds that choose other ones still do.
        self._later = random.Random(repr(tables))

    def make_query(self) -> tuple[str, tuple[str, ...]]:
        """Return the text of a query, and the names of its columns."""
        text, columns = self._query(self._random.choice((1, 2, 2, 3)), is_last=True)
        return text, tuple(column.name for column in columns)

    # -- Relations -------------------------------------------------------------------------------------------------

    def _query(self, depth: int, *, is_last: bool = False) -> tuple[str, tuple[Column, ...]]:
        if self._windows_come == "often" and self._random.random() < 0.5:
            return self._windows(depth, is_last)
        if depth > 1 and self._later.random() < 0.2:
            return self._unequal(depth, is_last)
        kinds = [self._select, self._select, self._group, self._group, self._distinct]
        if depth > 1:
            kinds += [
                self._join,
                self._join,
                self._set_operation,
                self._top,
                self._semi,
                self._windows,
            ]
        if is_last:
            # Elsewhere it would show that the row of such an aggregate appears with the first row that it counts.
            kinds += [self._group_all]
        if depth > 1:
            # Last, so that seeds that choose other ones still do.
            kinds += [self._over, self._sets]
        return self._random.choice(kinds)(depth, is_last)

    def _relation(self, depth: int) -> Relation:
        """Return a table or a subquery, under a name that nothing else has."""
        name = self._name("t")
        if depth <= 1 or self._random.random() < 0.4:
            table = self._random.choice(sorted(self._tables))
            text, columns = table, self._tables[table]
        else:
            query, columns = self._query(depth - 1)
            text = f"({query})"
        return Relation(f"{text} AS {name}", tuple(Column(f"{name}.{name_}", type_) for name_, type_ in columns))

    def _select(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        relation = self._relation(depth)
        items, columns = self._project(relation.columns)
        return f"SELECT {items} FROM {relation.text}{self._where(relation.columns)}", columns

    def _distinct(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        relation = self._relation(depth)
        items, columns = self._project(relation.columns)
        return f"SELECT DISTINCT {items} FROM {relation.text}{self._where(relation.columns)}", columns

    def _join(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        left, right = self._relation(depth - 1), self._relation(depth - 1)
        both = left.columns + right.columns
        word = self._random.choice(
            ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
        )
        condition = self._join_condition(left.columns, right.columns)
        if condition is None:
            return self._select(depth, is_last)
        if self._random.random() < 0.3:
            condition += f" AND {self._condition(both, 1)}"
        kept = left.columns if word in ("LEFT SEMI JOIN", "LEFT ANTI JOIN") else both
        items, columns = self._project(kept)
        return f"SELECT {items} FROM {left.text} {word} {right.text} ON {condition}{self._where(kept, 0.3)}", columns

    def _join_condition(self, left: Sequence[Column], right: Sequence[Column]) -> str | None:
        pairs = [
            f"{one.name} = {other.name}"
            for one in left
            for other in right
            if one.type == other.type and one.type in _KEYS
        ]
        if not pairs:
            return None
        return " AND ".join(self._random.sample(pairs, min(len(pairs), self._random.choice((1, 1, 2)))))

    def _group(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        relation = self._relation(depth)
        keys = [column for column in relation.columns if column.type in _KEYS]
        if not keys:
            return self._select(depth, is_last)
        chosen = self._random.sample(keys, min(len(keys), self._random.choice((1, 1, 2))))
        aggregates = self._aggregates(relation.columns, is_last)
        names = [self._name("c") for _ in chosen + aggregates]
        items = [
            f"{text} AS {name}"
            for (text, _), name in zip([(key.name, key.type) for key in chosen] + aggregates, names, strict=True)
        ]
        types = [key.type for key in chosen] + [type_ for _, type_ in aggregates]
        having = f" HAVING count(*) {self._random.choice(('>', '<', '<>'))} {self._random.choice('123')}"
        text = (
            f"SELECT {', '.join(items)} FROM {relation.text}{self._where(relation.columns)} "
            f"GROUP BY {', '.join(key.name for key in chosen)}{having if self._random.random() < 0.3 else ''}"
        )
        return text, tuple(map(Column, names, types))

    def _sets(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        relation = self._relation(depth)
        keys = [column for column in relation.columns if column.type in _KEYS]
        if not keys:
            return self._select(depth, is_last)
        chosen = self._random.sample(keys, min(len(keys), self._random.choice((1, 2, 2))))
        aggregates = [*self._aggregates(relation.columns, is_last), (f"grouping({chosen[0].name})", "TINYINT")]
        columns = tuple(
            Column(self._name("c"), type_)
            for type_ in [key.type for key in chosen] + [type_ for _, type_ in aggregates]
        )
        texts = [key.name for key in chosen] + [text for text, _ in aggregates]
        items = ", ".join(f"{text} AS {column.name}" for text, column in zip(texts, columns, strict=True))
        names = ", ".join(key.name for key in chosen)
        sets = self._random.choice(
            (f"ROLLUP ({names})", f"CUBE ({names})", f"GROUPING SETS (({names}), ({chosen[-1].name}), ())")
        )
        return f"SELECT {items} FROM {relation.text}{self._where(relation.columns)} GROUP BY {sets}", columns

    def _group_all(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        relation = self._relation(depth)
        aggregates = self._aggregates(relation.columns, is_last)
        names = [self._name("c") for _ in aggregates]
        items = ", ".join(f"{text} AS {name}" for (text, _), name in zip(aggregates, names, strict=True))
        types = [type_ for _, type_ in aggregates]
        return f"SELECT {items} FROM {relation.text}{self._where(relation.columns)}", tuple(map(Column, names, types))

    def _aggregates(self, columns: Sequence[Column], is_last: bool) -> list[tuple[str, str]]:
        made = [self._aggregate(columns, is_last) for _ in range(self._random.choice((1, 1, 2, 3)))]
        return [(f"{text}{self._filter(columns)}", type_) for text, type_ in made]

    def _aggregate(self, columns: Sequence[Column], is_last: bool) -> tuple[str, str]:
        column = self._random.choice(columns)
        choices = [("count(*)", "BIGINT"), (f"count({column.name})", "BIGINT")]
        choices += [(f"count(DISTINCT {column.name})", "BIGINT")]
        if column.type != "BOOLEAN":
            choices += [(f"min({column.name})", column.type), (f"max({column.name})", column.type)] * 2
        if column.type in ("BIGINT", "INT"):
            choices += [(f"sum({column.name})", "BIGINT"), (f"sum(DISTINCT {column.name})", "BIGINT")]
        if column.type == "DOUBLE":
            choices += [(f"sum({column.name})", "DOUBLE")] * 2
        if column.type in _NUMBERS and is_last:
            # Others have not one exact answer, on which no further operator may depend.
            choices += [(f"avg({column.name})", "DOUBLE"), (f"sum({column.name})", "NUMBER")]
            choices += [(f"stddev_samp(CAST({column.name} AS DOUBLE))", "DOUBLE")]
        if column.type == "BOOLEAN":
            choices += [(f"bool_and({column.name})", "BOOLEAN"), (f"bool_or({column.name})", "BOOLEAN")] * 2
        return self._random.choice(choices)

    def _filter(self, columns: Sequence[Column]) -> str:
        return f" FILTER (WHERE {self._condition(columns, 1)})" if self._random.random() < 0.15 else ""

    def _set_operation(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        left, right = self._relation(depth - 1), self._relation(depth - 1)
        types = [type_ for type_ in TYPES if all(any(c.type == type_ for c in side.columns) for side in (left, right))]
        if not types:
            return self._select(depth, is_last)
        chosen = self._random.sample(types, min(len(types), self._random.choice((1, 2))))
        columns = tuple(Column(self._name("c"), type_) for type_ in chosen)
        word = self._random.choice(("UNION ALL", "UNION", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL"))
        sides = [
            f"SELECT {', '.join(f'{self._pick(side.columns, c.type)} AS {c.name}' for c in columns)} FROM {side.text}"
            f"{self._where(side.columns, 0.3)}"
            for side in (left, right)
        ]
        return f"{sides[0]} {word} {sides[1]}", columns

    def _top(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        relation = self._relation(depth - 1)
        keys = [column for column in relation.columns if column.type in _KEYS]
        if not keys:
            return self._select(depth, is_last)
        key = self._random.choice(keys).name
        columns = tuple(Column(self._name("c"), column.type) for column in relation.columns)
        items = [f"{c.name} AS {made.name}" for c, made in zip(relation.columns, columns, strict=True)]
        order = [c.name + self._random.choice(("", " DESC", " NULLS LAST")) for c in relation.columns]
        self._random.shuffle(order)
        number, name = self._name("n"), self._name("t")
        inner = (
            f"SELECT {', '.join(items)}, row_number() OVER (PARTITION BY {key} ORDER BY {', '.join(order)}) AS {number} "
            f"FROM {relation.text}"
        )
        kept = ", ".join(column.name for column in columns)
        return f"SELECT {kept} FROM ({inner}) AS {name} WHERE {number} <= {self._random.choice('123')}", columns

    def _over(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        relation = self._relation(depth - 1)
        key, kept = self._random.choice(relation.columns), relation.columns[:3]
        group = f"PARTITION BY {key.name} " if self._random.random() < 0.8 else ""
        order = [c.name + self._random.choice(("", " DESC", " NULLS LAST")) for c in relation.columns]
        self._random.shuffle(order)
        # Rows that are equal in all columns are the only ones whose order is open.
        total = f"{group}ORDER BY {', '.join(order)}"
        made = [
            self._over_total_order(relation.columns, total),
            self._over_some_order(relation.columns, group, is_last=is_last),
        ]
        columns = tuple(Column(self._name("c"), type_) for type_ in [c.type for c in kept] + [t for _, t in made])
        texts = [c.name for c in kept] + [text for text, _ in made]
        items = ", ".join(f"{text} AS {column.name}" for text, column in zip(texts, columns, strict=True))
        return f"SELECT {items} FROM {relation.text}", columns

    def _over_total_order(self, columns: Sequence[Column], total: str) -> tuple[str, str]:
        """Return a function of rows whose order is that of all columns."""
        column = self._random.choice(columns)
        frame = self._random.choice(
            (
                "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
                "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
                "ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
                "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            )
        )
        choices = [
            (f"{name}({column.name}) OVER ({total} {frame})", column.type) for name in ("first_value", "last_value")
        ]
        choices += [(f"{name}({column.name}) OVER ({total})", column.type) for name in ("lag", "lead")]
        choices += [(f"count({column.name}) OVER ({total} {frame})", "BIGINT"), (f"row_number() OVER ({total})", "INT")]
        if column.type != "BOOLEAN":
            choices += [(f"max({column.name}) OVER ({total} {frame})", column.type)]
        if column.type in ("BIGINT", "INT"):
            choices += [(f"sum({column.name}) OVER ({total} {frame})", "BIGINT")] * 3
        return self._random.choice(choices)

    def _over_some_order(self, columns: Sequence[Column], group: str, *, is_last: bool) -> tuple[str, str]:
        """Return a function that is the same for rows with equal values of a column."""
        column, by = self._random.choice(columns), self._random.choice(columns)
        order = f"ORDER BY {by.name}{self._random.choice(('', ' DESC', ' NULLS LAST'))}"
        ranges = ["", " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"]
        if by.type in ("BIGINT", "INT"):
            ranges += [" RANGE BETWEEN 1 PRECEDING AND CURRENT ROW", " RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING"] * 2
        if by.type == "TIMESTAMP":
            ranges += [" RANGE BETWEEN INTERVAL '3' SECONDS PRECEDING AND CURRENT ROW"] * 4
        over = self._random.choice((f"{group}", f"{group}{order}{self._random.choice(ranges)}"))
        choices = [(f"count({column.name}) OVER ({over})", "BIGINT"), (f"count(*) OVER ({over})", "BIGINT")]
        choices += [(f"{name}() OVER ({group}{order})", "INT") for name in ("rank", "dense_rank")]
        if column.type != "BOOLEAN":
            choices += [(f"min({column.name}) OVER ({over})", column.type)]
        if column.type in ("BIGINT", "INT"):
            choices += [(f"sum({column.name}) OVER ({over})", "BIGINT")] * 2
        if is_last and column.type in _NUMBERS:
            choices += [(f"avg({column.name}) OVER ({over})", "DOUBLE")]
            choices += [(f"{name}() OVER ({group}{order})", "DOUBLE") for name in ("percent_rank", "cume_dist")]
        return self._random.choice(choices)

    def _semi(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        outer, inner = self._relation(depth - 1), self._relation(1)
        condition = self._join_condition(outer.columns, inner.columns)
        pairs = [
            (one.name, other.name)
            for one in outer.columns
            for other in inner.columns
            if one.type == other.type and one.type in _KEYS
        ]
        if condition is None or not pairs:
            return self._select(depth, is_last)
        items, columns = self._project(outer.columns)
        word = self._random.choice(("", "NOT "))
        one, other = self._random.choice(pairs)
        test = self._random.choice(
            (
                f"{word}EXISTS (SELECT 1 FROM {inner.text} WHERE {condition})",
                f"{one} {word}IN (SELECT {other} FROM {inner.text}{self._where(inner.columns, 0.3)})",
                f"{one} = (SELECT max({other}) FROM {inner.text}{self._where(inner.columns, 0.5)})"
                if "BOOLEAN" not in {c.type for c in outer.columns if c.name == one}
                else f"{one} IN (SELECT {other} FROM {inner.text})",
            )
        )
        return f"SELECT {items} FROM {outer.text} WHERE {test}", columns

    def _unequal(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        """Return a join without an equality, or a subquery that others than equalities bind to the query around it."""
        outer, inner = self._relation(depth - 1), self._relation(1)
        pairs = [
            (one, other)
            for one in outer.columns
            for other in inner.columns
            if one.type == other.type and one.type in LITERALS and one.type != "BOOLEAN"
        ]
        if not pairs:
            return self._select(depth, is_last)
        one, other = self._random.choice(pairs)
        condition = f"{other.name} {self._random.choice(('<', '<=', '>', '<>', '<=>'))} {one.name}"
        if self._random.random() < 0.3:
            condition += f" AND {self._condition(outer.columns + inner.columns, 1)}"
        items, columns = self._project(outer.columns)
        rows = f"FROM {inner.text} WHERE {condition}"
        word = self._random.choice(("", "NOT "))
        form = self._random.choice(("join", "exists", "value", "in"))
        if form == "join":
            kind = self._random.choice(("JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"))
            return f"SELECT {items} FROM {outer.text} {kind} {inner.text} ON {condition}", columns
        if form == "exists":
            test = f"{word}EXISTS (SELECT 1 {rows}){self._random.choice(('', f' OR {one.name} IS NULL'))}"
            return f"SELECT {items} FROM {outer.text} WHERE {test}", columns
        if form == "in":
            more = (f"{one.name} {word}IN (SELECT {other.name} {rows})", "BOOLEAN")
        else:
            more = self._random.choice(
                ((f"(SELECT count(*) {rows})", "BIGINT"), (f"(SELECT max({other.name}) {rows})", other.type))
            )
        columns = (*columns, Column(self._name("c"), more[1]))
        return f"SELECT {items}, {more[0]} AS {columns[-1].name} FROM {outer.text}", columns

    def _windows(self, depth: int, is_last: bool) -> tuple[str, tuple[Column, ...]]:
        tables = [name for name, columns in self._tables.items() if any(c.type == "TIMESTAMP" for c in columns)]
        if not tables or self._windows_come == "never":
            return self._group(depth, is_last)
        table = self._random.choice(tables)
        columns = self._tables[table]
        time = self._random.choice([column.name for column in columns if column.type == "TIMESTAMP"])
        size = self._random.choice(("5", "10", "10", "7")) + " seconds"
        step = self._random.choice(
            ("", "", ", '5 seconds'", ", '3 seconds', '1 second'", ", '5 seconds', '-2 seconds'")
        )
        if self._random.random() < 0.7:
            return self._window_query(columns, f"window({time}, '{size}'{step})", table)[::2]
        length = f"INTERVAL '{size.partition(' ')[0]}' SECONDS"
        call = (
            f"TUMBLE(TABLE {table}, DESCRIPTOR({time}), {length})"
            if not step
            else f"HOP(TABLE {table}, DESCRIPTOR({time}), INTERVAL '3' SECONDS, {length})"
        )
        items, made = self._project((*columns, Column("window_start", "TIMESTAMP"), Column("window_end", "TIMESTAMP")))
        return f"SELECT {items} FROM {call}{self._where(columns)}", made

    def make_window_results(self, call: str, oracle: str) -> tuple[str, str, tuple[Column, ...]]:
        """Return a query with results of windows, the same over rows of which each has its window, and the columns.

        Args:
            call: the windows of the only table.
            oracle: name of the table with the columns `ws` and `we`; for sessions, without them.
        """
        ((table, columns),) = self._tables.items()
        text, expected, made = self._window_query(columns, call, table)
        expected = expected.replace(f" FROM {table}", f" FROM {oracle}")
        if not call.startswith("session"):
            expected = expected.replace("window.start", "ws").replace("window.end", "we").replace(call, "ws, we")
        return text, expected, made

    def _window_query(self, columns: tuple[Column, ...], call: str, table: str) -> tuple[str, str, tuple[Column, ...]]:
        keys = [column for column in columns if column.type in _KEYS]
        chosen = self._random.sample(keys, min(len(keys), self._random.choice((0, 0, 1, 2))))
        aggregates = self._aggregates(columns, is_last=False)
        # Spark has sessions under the name of their function only.
        name = call.partition("(")[0]
        bounds = [(f"{name}.start", "TIMESTAMP"), (f"{name}.end", "TIMESTAMP")]
        items = [*bounds, *((key.name, key.type) for key in chosen), *aggregates]
        made = tuple(Column(self._name("c"), type_) for _, type_ in items)
        listed = ", ".join(f"{text} AS {column.name}" for (text, _), column in zip(items, made, strict=True))
        having = f" HAVING count(*) {self._random.choice(('>', '<', '<>'))} {self._random.choice('123')}"
        text = (
            f"SELECT {listed} FROM {table}{self._where(columns, 0.3)} "
            f"GROUP BY {', '.join((call, *(key.name for key in chosen)))}{having if self._random.random() < 0.3 else ''}"
        )
        return text, text, made

    def _project(self, columns: Sequence[Column]) -> tuple[str, tuple[Column, ...]]:
        count = self._random.randint(1, min(3, len(columns)))
        items = [self._expression(columns, 2) for _ in range(count)]
        made = tuple(Column(self._name("c"), type_) for _, type_ in items)
        return ", ".join(f"{text} AS {c.name}" for (text, _), c in zip(items, made, strict=True)), made

    def _where(self, columns: Sequence[Column], share: float = 0.5) -> str:
        return f" WHERE {self._condition(columns, 2)}" if self._random.random() < share else ""

    # -- Expressions -----------------------------------------------------------------------------------------------

    def _expression(self, columns: Sequence[Column], depth: int) -> tuple[str, str]:
        column = self._random.choice(columns)
        if depth == 0 or self._random.random() < 0.55:
            return column.name, column.type
        return self._of_type(columns, column.type, depth), column.type

    def _of_type(self, columns: Sequence[Column], type_: str, depth: int) -> str:
        if type_ not in LITERALS:
            return self._pick(columns, type_)
        if depth == 0 or self._random.random() < 0.35:
            return self._pick(columns, type_)

        def inner(of: str) -> str:
            return self._of_type(columns, of, depth - 1)

        choices = [
            lambda: f"CASE WHEN {self._condition(columns, depth - 1)} THEN {inner(type_)} ELSE {inner(type_)} END",
            lambda: f"CASE WHEN {self._condition(columns, depth - 1)} THEN {inner(type_)} END",
            lambda: f"coalesce({inner(type_)}, {inner(type_)})",
            lambda: f"nullif({inner(type_)}, {inner(type_)})",
        ]
        if type_ == "BIGINT":
            choices += [
                lambda: f"({inner('BIGINT')} {self._random.choice('+-')} {inner('BIGINT')})",
                lambda: f"({inner('BIGINT')} % 3)",
                lambda: f"({inner('BIGINT')} DIV 2)",
                lambda: f"abs({inner('BIGINT')})",
            ]
        elif type_ == "INT":
            choices += [
                lambda: f"({inner('INT')} + {inner('INT')})",
                lambda: f"length({inner('STRING')})",
                lambda: f"year({inner('DATE')})",
            ]
        elif type_ == "STRING":
            choices += [
                lambda: f"upper({inner('STRING')})",
                lambda: f"concat({inner('STRING')}, {inner('STRING')})",
                lambda: f"substring({inner('STRING')}, {self._random.choice(('1', '2', '-1'))}, 1)",
            ]
        elif type_ == "BOOLEAN":
            return f"({self._condition(columns, depth - 1)})"
        elif type_ == "DOUBLE":
            choices += [lambda: f"({inner('DOUBLE')} + {inner('DOUBLE')})", lambda: f"(-{inner('DOUBLE')})"]
        elif type_ == "DATE":
            choices += [lambda: f"date_add({inner('DATE')}, 1)"]
        return self._random.choice(choices)()

    def _condition(self, columns: Sequence[Column], depth: int) -> str:
        column = self._random.choice(columns)
        type_, name = column.type, column.name
        if depth > 0 and self._random.random() < 0.3:
            one, other = self._condition(columns, depth - 1), self._condition(columns, depth - 1)
            return self._random.choice((f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})"))
        tests = [f"{name} IS NULL", f"{name} IS NOT NULL"]
        if type_ == "BOOLEAN":
            tests += [name, f"{name} IS TRUE", f"{name} = {self._pick(columns, type_)}"]
        elif type_ in LITERALS:
            other = self._of_type(columns, type_, max(0, depth - 1))
            tests += [f"{name} {self._random.choice(('=', '<>', '<', '<=', '>', '>=', '<=>'))} {other}"] * 4
            literals = self._random.sample(LITERALS[type_], 2)
            tests += [f"{name} IN ({', '.join(literals)})", f"{name} BETWEEN {literals[0]} AND {literals[1]}"]
        if type_ == "STRING":
            tests += [f"{name} LIKE {self._random.choice(('%b%', 'a%', '_')).__repr__()}"]
        return self._random.choice(tests)

    def _pick(self, columns: Sequence[Column], type_: str) -> str:
        """Return a column of a type, or a literal of it."""
        fitting = [column.name for column in columns if column.type == type_]
        if type_ not in LITERALS or (fitting and self._random.random() < 0.7):
            return self._random.choice(fitting)
        return self._random.choice(LITERALS[type_])

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"
