"""The page docs/sql-functions.md, written from the functions themselves: `python -m tests.sql_functions`."""

from pathlib import Path

from streamrt.sql.expressions.aggregates import AGGREGATES
from streamrt.sql.expressions.calls import describe_function
from streamrt.sql.expressions.functions.registry import GROUPS

__all__ = ["PAGE", "write_page"]

PAGE = Path(__file__).parents[1] / "docs" / "sql-functions.md"

_HEAD = """# Functions of SQL

This page is generated: `python -m tests.sql_functions`.

Names, types and results are those of Spark SQL in ANSI mode and in UTC. Each function is compared with Spark's, over random
rows with NULL, extremes, NaN and dates before 1970. A value for which a function has no result, such as a text that is not a
number in a CAST, is the error of its record: dead letters and error callbacks decide about it. `try_cast`, `try_divide` and
others that begin with `try_` give NULL.

- `TIMESTAMP` has no time zone, as in tables. Where Spark changes it to one with a time zone, in `date_trunc`, `timestamp()`
  and in a date plus hours, it stays as it is.
- NaN is equal to itself, and above all other numbers. 0.0 and -0.0 are equal.
- Regular expressions are those of Python, with Java's classes of ASCII: `\\d` is `[0-9]`. Dates are in the years 1 to 9999.
- If an operand is NULL, an operator may be NULL before its other operand fails: `1 / 0 + NULL` is NULL.
- Functions of time now, of chance, and of the session are refused, because a view must have the same rows when records are
  processed again: `now()`, `rand()`, `uuid()`, `current_user()`.
- Python functions join in by `app.register_function`.

Operators are `+ - * / % div`, `||`, `= <> < <= > >= <=>`, `AND OR NOT`, `BETWEEN`, `IN`, `LIKE ILIKE RLIKE`,
`IS NULL TRUE FALSE`, `IS DISTINCT FROM`, `CASE`, `CAST`, `.field`, `[index]`, and `INTERVAL` with dates and timestamps.
`COALESCE`, `NVL`, `NVL2`, `NULLIF`, `IF`, `EXTRACT`, `ARRAY`, `MAP`, `STRUCT` and `NAMED_STRUCT` are as in Spark.
"""


def write_page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for title, functions in GROUPS.items():
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n| function | result | |\n|---|---|---|")
        for function in functions:
            others = f"; also {', '.join(f'`{name}`' for name in function.aliases)}" if function.aliases else ""
            parts.append(f"| `{describe_function(function)}` | {function.result} | {function.summary}{others} |")
        parts.append("")
    parts.append(
        "## Aggregates\n\nThey skip NULL, and take `FILTER (WHERE condition)`. All work over tables whose rows change.\n"
        "Percentiles and `mode` read all values of their group for each result.\n\n"
        "| aggregate | result | |\n|---|---|---|"
    )
    parts += [f"| `{each.usage}` | {each.result} | {each.summary} |" for each in AGGREGATES.values()]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
