"""`print` and `print_table`: show values."""

import pprint
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from streamrt.records import Headers
from streamrt.topology import Node, Operator, OperatorContext, RecordHandler


@dataclass(frozen=True)
class Print(Operator):
    """Shows each value as the text of a dict.

    Attributes:
        pretty: show large values on several lines.
        metadata: show key, timestamp and headers too.
    """

    name: ClassVar[str] = "print"
    in_place: ClassVar[bool] = True
    passes_on_last: ClassVar[bool] = True
    pretty: bool = True
    metadata: bool = False

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        show, node_id, metadata = context.show, node.id, self.metadata
        render = partial(pprint.pformat, indent=2, sort_dicts=False) if self.pretty else str

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            shown = {"value": value}
            if metadata:
                shown.update(key=key, timestamp=timestamp, headers=headers)
            show(node_id, render(shown))
            child(value, key, timestamp, headers)

        return run


@dataclass(frozen=True)
class PrintTable(Operator):
    """Shows the latest values as rows of a table.

    Attributes:
        size: number of rows.
        title: title of the table; None for no title.
        metadata: show `_key` and `_timestamp` as columns.
        timeout: seconds after which a partly filled table is printed if the output is not a terminal.
        live: redraw the table in place if the output is a terminal.
        live_slowdown: seconds between two drawings of a live table; 0 for the highest useful rate.
        columns: the columns to show; None shows all.
        column_widths: width of columns in characters, by column name.
    """

    name: ClassVar[str] = "print_table"
    in_place: ClassVar[bool] = True
    size: int = 5
    title: str | None = None
    metadata: bool = True
    timeout: float = 5.0
    live: bool = True
    live_slowdown: float = 0.5
    columns: tuple[str, ...] | None = None
    column_widths: tuple[tuple[str, int], ...] = ()

    def build(self, child: RecordHandler, node: Node, context: OperatorContext) -> RecordHandler:  # noqa: D102
        show, node_id, metadata, columns = context.show, node.id, self.metadata, self.columns

        def run(value: Any, key: Any, timestamp: int, headers: Headers | None, *, _node: Node = node) -> None:
            row = {"_key": str(key), "_timestamp": str(timestamp)} if metadata else {}
            cells = value if isinstance(value, dict) else {"value": value}
            row.update((str(name), str(cell)) for name, cell in cells.items() if columns is None or name in columns)
            show(node_id, row)
            child(value, key, timestamp, headers)

        return run
