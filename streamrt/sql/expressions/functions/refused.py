"""Functions of Spark that are not here on purpose, and why."""

from typing import Final

__all__ = ["reason_of"]

_AGAIN: Final = "gives another answer each time a record is processed again: use a column, or app.query"
_SESSION: Final = (
    "depends on who asks, and a view gives the same rows to all: write the value into the text, or use args"
)
_OUTSIDE: Final = "reaches outside of the query, and is not allowed"
_ORDER: Final = (
    "depends on the order of records, which is not the same each time they are processed: use max_by or min_by"
)

_NAMES: Final = {
    _AGAIN: """
        now current_timestamp current_date current_time curdate localtimestamp localtime getdate rand random randn randstr
        uniform uuid shuffle monotonically_increasing_id spark_partition_id
    """,
    _SESSION: "current_user user session_user current_database current_schema current_catalog current_timezone version",
    _OUTSIDE: """
        java_method reflect try_reflect input_file_name input_file_block_start input_file_block_length read_files read_csv
        read_parquet read_json read_text glob getenv
    """,
    _ORDER: "first last first_value last_value nth_value",
}
_REASONS: Final = {name: reason for reason, names in _NAMES.items() for name in names.split()}


def reason_of(name: str) -> str | None:
    """Return the sentence about a function that is refused, or None if it is not known.

    Example:
        >>> reason_of("NOW")
        'now() gives another answer each time a record is processed again: use a column, or app.query'
    """
    reason = _REASONS.get(name.lower())
    return None if reason is None else f"{name.lower()}() {reason}"
