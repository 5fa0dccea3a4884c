"""Record headers: ordered pairs of a name and an optional value; names may repeat."""

from collections.abc import Mapping

HeaderValue = str | bytes | None
"""Value of a header; a str is sent as UTF-8."""

Headers = list[tuple[str, HeaderValue]]
"""Headers of a record: pairs of name and value, in order. A name may occur several times."""

HeadersMapping = Mapping[str, HeaderValue]
"""Headers by name; each name occurs once."""

EPOCH_HEADER = "e"
"""Name of the header with the epoch of a changelog record's writer; see `streamrt.state.changelog`."""


def merge_headers(original: Headers | None, other: HeadersMapping) -> Headers:
    """Return `original` with the headers of `other` appended; those of the same name are replaced.

    Args:
        original: the record's headers, or None if it has none.
        other: headers to add.

    Example:
        >>> merge_headers([("a", b"1"), ("b", b"2")], {"a": b"3"})
        [('b', b'2'), ('a', b'3')]
    """
    kept = [(name, value) for name, value in original or () if name not in other]
    return [*kept, *other.items()]
