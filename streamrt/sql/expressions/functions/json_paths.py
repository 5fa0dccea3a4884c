"""`get_json_object`: a part of a JSON text, found by a path such as `$.order.items[0]['name']`."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from streamrt.sql.expressions.conversions import text_of_float

__all__ = ["find_json", "parse_path"]

Step = str | int | None
"""The name of a field, the index of an item, or None for all items."""

_STEP: Final = re.compile(r"\.\s*([^.\[\]]+)|\.?\['([^']*)'\]|\[(\d+)\]|(\[\*\]|\.\*)")


class _Number(str):
    """A number, as it is written."""

    __slots__ = ()


@lru_cache(maxsize=500)
def parse_path(path: str) -> tuple[Step, ...] | None:
    """Return the steps of a path; None if it is none."""
    if not path.startswith("$"):
        return None
    steps: list[Step] = []
    place = 1
    while place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            return None
        place = found.end()
        name, quoted, index, _ = found.groups()
        steps.append(int(index) if index is not None else name if name is not None else quoted)
    return tuple(steps)


def find_json(text: str, path: str) -> str | None:
    """Return the part of a JSON text at a path: the text of a string, and JSON of all else; None if there is none.

    Example:
        >>> find_json('{"a": [1, {"b": "x"}]}', "$.a[1].b"), find_json('{"a": [1, 2]}', "$.a")
        ('x', '[1,2]')
    """
    steps = parse_path(path)
    if steps is None:
        return None
    try:
        value = json.loads(text, parse_int=_Number, parse_float=_read_float)
    except (ValueError, RecursionError):
        return None
    found = list(_follow(value, steps))
    if not found or (len(found) == 1 and found[0] is None):
        return None
    if len(found) == 1:
        return found[0] if isinstance(found[0], str) else _write(found[0])
    return _write(found)


def _read_float(text: str) -> _Number:
    return _Number(text_of_float(float(text)))


def _follow(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        if isinstance(value, dict) and step in value:
            yield from _follow(value[step], rest)
    elif isinstance(value, list):
        items = value if step is None else value[step : step + 1]
        for item in items:
            yield from _follow(item, rest)


def _write(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(_write, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_write(name)}:{_write(item)}" for name, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
