"""Shows the output of `print` and `print_table` in the process that called `run()`."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from streamrt.common.texts import readable, readable_lines
from streamrt.operators import PrintTable
from streamrt.topology import Topology

_REDRAWS = 20.0
"""Maximum redraws of a live table per second; more would be unreadable."""


class Display:
    """Prints lines and draws tables: in place on a terminal, one after the other elsewhere.

    Args:
        topology: contains the operators that define the tables.
        stream: the output stream; standard output by default.
        clock: returns seconds; only differences count.
    """

    def __init__(
        self, topology: Topology, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = Console(file=stream, soft_wrap=True, highlight=False, markup=False)
        self._stream = stream
        self._clock = clock
        self._tables = {
            node.id: _TableState(node.operator, clock())
            for node in topology.nodes
            if isinstance(node.operator, PrintTable)
        }
        self.live = self._console.is_terminal and any(state.operator.live for state in self._tables.values())
        self._live: Live | None = None

    def show(self, items: Iterable[tuple[int, Any]]) -> None:
        """Show items in order: rows in the tables of their nodes, other items as lines."""
        changed = False
        for node_id, item in items:
            state = self._tables.get(node_id)
            if state is None:
                self._print_line(item)
                continue
            changed = True
            state.rows.append(item)
            if not self._should_redraw(state) and len(state.rows) == state.operator.size:
                self._print_table(state)
        if changed and self.live:
            self._draw_table()

    def tick(self) -> None:
        """Print tables whose timeout is over; call this regularly."""
        for state in self._tables.values():
            waited = self._clock() - state.since
            if not self._should_redraw(state) and state.rows and waited >= state.operator.timeout:
                self._print_table(state)

    def close(self) -> None:
        """Print the remaining rows, and release the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        for state in self._tables.values():
            if state.rows and not self._should_redraw(state):
                self._print_table(state)

    def _should_redraw(self, state: "_TableState") -> bool:
        return self.live and state.operator.live

    def _print_line(self, line: Any) -> None:
        if self._console.is_terminal:
            line = readable_lines(str(line))
        if self._live is not None:
            self._live.console.print(line)
        else:
            print(line, file=self._stream or sys.stdout, flush=True)

    def _print_table(self, state: "_TableState") -> None:
        self._console.print(state.render())
        state.rows.clear()
        state.since = self._clock()

    def _draw_table(self) -> None:
        drawn = [state for state in self._tables.values() if self._should_redraw(state)]
        if self._live is None:
            pause = max(state.operator.live_slowdown for state in drawn)
            self._live = Live(console=self._console, refresh_per_second=min(_REDRAWS, 1 / pause if pause else _REDRAWS))
            self._live.start()
        self._live.update(Group(*(state.render() for state in drawn)))


class _TableState:
    """The collected rows of one table, and the time of its last output."""

    def __init__(self, operator: PrintTable, now: float) -> None:
        self.operator = operator
        self.rows: deque[dict[str, str]] = deque(maxlen=operator.size)
        self.since = now

    def render(self) -> Table:
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        widths = dict(self.operator.column_widths)
        table = Table(title=self.operator.title)
        for name in names:
            table.add_column(readable(name), width=widths.get(name), overflow="ellipsis")
        for row in self.rows:
            table.add_row(*(readable_lines(row.get(name, "")) for name in names))
        return table
