"""Types that values of several types have in common in Spark SQL, in ANSI mode."""

__all__ = ["COMMON_TYPES", "cast_nulls"]

COMMON_TYPES: dict[str, str | None] = {
    "INT, STRING": "bigint",
    "DOUBLE, STRING": "double",
    "DECIMAL(10,2), STRING": "double",
    "BOOLEAN, STRING": "boolean",
    "STRING, DATE": "date",
    "STRING, BINARY": "binary",
    "INT, STRING, DECIMAL(10,2)": "decimal(22,2)",
    "INT, DECIMAL(10,2), STRING": "double",
    "DECIMAL(10,2), STRING, INT": "double",
    "INT, STRING, DATE": None,
    "STRING, DATE, TIMESTAMP_NTZ": "timestamp_ntz",
    "BIGINT, FLOAT": "double",
    "INT, DECIMAL(10,2)": "decimal(12,2)",
    "BIGINT, DECIMAL(38,10)": "decimal(38,10)",
    "DECIMAL(38,0), DECIMAL(38,10)": "decimal(38,0)",
    "DATE, TIMESTAMP_NTZ": "timestamp_ntz",
    "TIMESTAMP_NTZ, TIMESTAMP_LTZ": "timestamp",
    "DATE, INT": None,
    "BOOLEAN, INT": None,
    "ARRAY<INT>, ARRAY<STRING>": "array<bigint>",
    "ARRAY<INT>, ARRAY<DATE>": None,
    "ARRAY<INT>, INT": None,
    "STRUCT<a: INT, b: STRING>, STRUCT<A: BIGINT, b: DATE>": "struct<a:bigint,b:date>",
    "STRUCT<a: INT>, STRUCT<a: DATE>": None,
    "STRUCT<a: INT>, STRUCT<b: INT>": None,
    "MAP<INT, INT>, MAP<BIGINT, STRING>": "map<bigint,bigint>",
    "MAP<STRING, INT>, MAP<INT, INT>": None,
    "ARRAY<STRING>, STRING": None,
}
"""What `typeof(coalesce(...))` of values of these types is; None where Spark has none."""


def cast_nulls(types: str) -> str:
    """Return `coalesce(...)` of a NULL of each type.

    Args:
        types: the types, with commas between them.

    Example:
        >>> cast_nulls("INT, DECIMAL(10,2)")
        'coalesce(CAST(NULL AS INT), CAST(NULL AS DECIMAL(10,2)))'
    """
    words, depth = [""], 0
    for letter in types:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            words.append("")
        else:
            words[-1] += letter
    return f"coalesce({', '.join(f'CAST(NULL AS {word.strip()})' for word in words)})"
