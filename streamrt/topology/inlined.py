"""Operators as lines of Python: several of them become one function, without a call for each.

All that users give, including the names of columns, enters the code as variables, never as text.
"""

import functools
import textwrap
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from streamrt.state.access.keyed_state import KeyedState
    from streamrt.state.spec import StoreSpec

__all__ = ["GENERATED_FILE", "GivesState", "InlinedCode"]

GENERATED_FILE: Final = "<streamrt operators>"
"""The file of generated code in tracebacks."""
_INDENT: Final = "    "
_CLOSURE: Final = """
def make(child, node):
    def run(value, key, timestamp, headers, *, _node=node):
{lines}
    return run
"""
_CALL_CHILD: Final = "child(value, key, timestamp, headers)"


@functools.lru_cache(maxsize=1_024)
def _compile_text(text: str) -> CodeType:
    """Compile a text once in each process: tasks of one stream have the same, and operators of one kind often do."""
    return compile(text, GENERATED_FILE, "exec")


class GivesState(Protocol):
    """The part of an operator's context that inlined lines need."""

    def state(self, store: "StoreSpec") -> "Callable[[Any, int], KeyedState]":
        """Return the function that returns the state of a record's key in one of the task's stores."""


class InlinedCode:
    """Lines of Python that do the work of operators on a record, one operator after the other.

    They see the `value`, `key`, `timestamp` and `headers` of the record, and may bind others to all but the key.

    Args:
        context: gives state to functions with state; not needed without them.

    Attributes:
        names: the objects that the lines use, by name.
        is_plain: whether no line calls a function of users, so that each record takes microseconds.

    Example:
        >>> code = InlinedCode()
        >>> code.open_block(f"if value > {code.name_object(2)}:")
        >>> code.add_lines("found.append(value)")
        >>> print(code.indent_lines(0))
        if value > x0:
            found.append(value)
    """

    def __init__(self, context: GivesState | None = None) -> None:
        self.context = context
        self.names: dict[str, Any] = {}
        self.is_plain = True
        self._lines: list[str] = []
        self._depth = 0

    def name_object(self, item: Any) -> str:
        """Return a new name for an object."""
        name = f"x{len(self.names)}"
        self.names[name] = item
        return name

    def add_lines(self, text: str) -> None:
        """Add lines behind those that are there, or into their open block."""
        self._lines += textwrap.indent(textwrap.dedent(text).strip(), _INDENT * self._depth).splitlines()

    def open_block(self, line: str) -> None:
        """Add a line that opens a block, into which all later lines go."""
        self.add_lines(line)
        self._depth += 1

    def indent_lines(self, depth: int) -> str:
        """Return the lines, indented so many times."""
        return textwrap.indent("\n".join(self._lines), _INDENT * depth)

    def define(self, text: str) -> dict[str, Any]:
        """Run Python that defines functions with the lines; return these among the objects that the lines use."""
        exec(_compile_text(text), self.names)  # noqa: S102 - text of operators only
        return self.names

    def close_over(
        self, child: Callable[[Any, Any, int, Any], None], node: object
    ) -> Callable[[Any, Any, int, Any], None]:
        """Return the lines as the closure of one operator.

        Args:
            child: takes value, key, timestamp and headers of the results.
            node: the node of the operator.
        """
        self.add_lines(_CALL_CHILD)
        closure: Callable[[Any, Any, int, Any], None] = self.define(_CLOSURE.format(lines=self.indent_lines(2)))[
            "make"
        ](child, node)
        return closure
