"""Rules of maintained tables as strings, in statements and on the command line."""

import re
from datetime import timedelta
from typing import Any

from streamrt.errors import ConfigurationError
from streamrt.tables.descriptions.maintenance import Aggregate, Function, ListAgg, Merge, SequenceGroups, Versioned

__all__ = ["parse_merge", "parse_switch", "parse_ttl", "show_ttl"]

_RULE = re.compile(r"(last|first)|(versioned|sequence_groups|aggregate)\s*\((.*)\)", re.DOTALL)
_FORMS = (
    "last, first, versioned(column), sequence_groups(sequence: column, ...; ...) or aggregate(column=function, ...)"
)
_PAIR = re.compile(
    r"""
    \s* ([^=,]*[^=,\s]) \s* = \s*                       # the column
    (?: listagg \s* \( \s* "((?:[^"]|"")*)" \s* \)      # with a delimiter
      | ([^,"()]*[^,"()\s]) )
    \s* (?: , | $ )
    """,
    re.VERBOSE,
)
"""A column and its function in `aggregate`."""
_TTL = re.compile(r"([1-9][0-9]{0,16})\s*(ms|s|m|h|d)")
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_merge(text: str) -> Merge:
    """Return the rule of a text, as `describe_merge` writes it.

    Raises:
        ConfigurationError: if it has another form.

    Example:
        >>> parse_merge("versioned(at)"), parse_merge('aggregate(total=sum, names=listagg("; "))').functions
        (Versioned(column='at'), {'total': 'sum', 'names': ListAgg(delimiter='; ')})
    """
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise _make_error(text)
    if found[1] is not None:
        return "first" if found[1] == "first" else "last"
    inside = found[3].strip()
    if found[2] == "versioned":
        return Versioned(inside)
    if found[2] == "aggregate":
        return Aggregate(**_parse_functions(text, inside))
    groups = dict(_split_pair(text, part, ":") for part in inside.split(";"))
    return SequenceGroups({sequence: [name.strip() for name in names.split(",")] for sequence, names in groups.items()})


def parse_ttl(text: str) -> timedelta:
    """Return the time of a text, such as "30d", "12h", "90m", "10s" or "500ms".

    Raises:
        ConfigurationError: if it has another form, or is too long.

    Example:
        >>> parse_ttl("36h")
        datetime.timedelta(days=1, seconds=43200)
    """
    found = _TTL.fullmatch(text.strip())
    try:
        if found is not None:
            return timedelta(milliseconds=int(found[1]) * _UNITS[found[2]])
    except OverflowError:
        pass
    raise ConfigurationError(f"a ttl must be a number with ms, s, m, h or d behind it, such as 30d, got {text[:40]!r}")


def show_ttl(milliseconds: int) -> str:
    """Return a time as `parse_ttl` takes it.

    Example:
        >>> show_ttl(86_400_000), show_ttl(1_500)
        ('1d', '1500ms')
    """
    unit = max((each for each in _UNITS if milliseconds % _UNITS[each] == 0), key=_UNITS.__getitem__)
    return f"{milliseconds // _UNITS[unit]}{unit}"


def parse_switch(what: str, text: str) -> bool:
    """Return whether a text says true or false.

    Raises:
        ConfigurationError: if it says neither.
    """
    if text.lower() not in ("true", "false"):
        raise ConfigurationError(f"{what} must be true or false, got {text[:40]!r}")
    return text.lower() == "true"


def _parse_functions(text: str, inside: str) -> dict[str, Function]:
    functions: dict[str, Function] = {}
    at = 0
    while at < len(inside) or not functions:
        pair = _PAIR.match(inside, at)
        if pair is None:
            raise _make_error(text)
        functions[pair[1]] = pair[3] if pair[2] is None else ListAgg(pair[2].replace('""', '"'))
        at = pair.end()
    if inside.endswith(","):
        raise _make_error(text)
    return functions


def _split_pair(text: str, part: str, sign: str) -> tuple[str, Any]:
    name, found, value = part.partition(sign)
    if not found or not name.strip() or not value.strip():
        raise _make_error(text)
    return name.strip(), value.strip()


def _make_error(text: str) -> ConfigurationError:
    return ConfigurationError(f"a rule must be {_FORMS}, got {text[:80]!r}")
