"""The prompt of `streamrt sql`: history, completion, and statements of several lines."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from streamrt.cli.output import echo, note, print_table
from streamrt.cli.tables.sql_output import SQLFormat, run_statement
from streamrt.cli.tables.sql_targets import SQLTarget
from streamrt.errors import ConfigurationError, StreamRTError, TableNotFoundError, reference_of
from streamrt.extras import install_command
from streamrt.tables.catalogue.table_names import find_table_name

__all__ = ["SQLPrompt", "complete_words", "describe"]

_HELP = r"""Statements end with a semicolon, and may have several lines. Ctrl+C drops a line, or ends a query; Ctrl+D leaves.

\d           tables and their kinds
\d TABLE     the columns of a table
\q           leave; also quit and exit
help         this text

SELECT ...; INSERT INTO ...; UPDATE ...; DELETE FROM ...; CREATE TABLE ...; see docs/sql-queries.md
"""
_KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "ORDER", "LIMIT", "JOIN", "LEFT", "RIGHT", "FULL"),
    *("INNER", "CROSS", "SEMI", "ANTI", "ON", "USING", "AS", "AND", "OR", "NOT", "IN", "EXISTS", "BETWEEN"),
    *("LIKE", "IS", "NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "DISTINCT", "UNION", "ALL", "INTERSECT"),
    *("EXCEPT", "WITH", "OVER", "PARTITION", "QUALIFY", "VALUES", "INSERT", "INTO", "UPDATE", "SET", "DELETE"),
    *("CREATE", "TABLE", "DROP", "ALTER", "count", "sum", "avg", "min", "max"),
)
_HISTORY = Path("~/.streamrt_sql_history")


class SQLPrompt:
    """Asks for statements and runs them, until the end of the input.

    Args:
        target: what runs statements, and knows tables.
        sql_format: the format of rows.
        session: what reads lines; by default that of prompt-toolkit.

    Raises:
        ConfigurationError: if prompt-toolkit is not installed.
    """

    def __init__(
        self,
        target: SQLTarget,
        sql_format: SQLFormat,
        session: Any = None,
    ) -> None:
        self._target = target
        self._format = sql_format
        self._session = session or _open_session(target)

    def run(self) -> None:
        """Ask and answer."""
        note("statements end with a semicolon; help for help, \\q to leave")
        held = ""
        while True:
            try:
                line = self._session.prompt("...> " if held else "sql> ")
            except KeyboardInterrupt:
                held = ""
                continue
            except EOFError:
                return
            if not held and _is_end(line):
                return
            if not held and self._describes(line):
                continue
            held = self._run_complete(f"{held}{line}\n")

    def _describes(self, line: str) -> bool:
        """Answer a line that asks for help, or for tables, and return whether the line was that."""
        words = line.strip().rstrip(";").split()
        if words[:1] == ["\\d"]:
            self._guard(lambda: describe(self._target, words[1] if len(words) > 1 else None))
            return True
        if words and words[0].lower() in ("help", "\\?", "\\h"):
            echo(_HELP)
            return True
        return not words

    def _run_complete(self, text: str) -> str:
        """Run the statements that end with a semicolon, and return what is left."""
        from streamrt.sql.queries.splitting import split_statements

        split = split_statements(text)
        for statement, _ in split.statements:
            self._guard(lambda: run_statement(self._target, statement, self._format))  # noqa: B023 - called at once
        return f"{split.rest}\n" if split.rest else ""

    def _guard(self, work: Callable[[], None]) -> None:
        """Do something that an error, or Ctrl+C, ends; the prompt goes on."""
        try:
            work()
        except StreamRTError as error:
            note(f"{error}{reference_of(error, chr(10))}")
        except KeyboardInterrupt:
            note("interrupted")


def describe(target: SQLTarget, name: str | None) -> None:
    """Print the tables, or the columns of one.

    Args:
        target: knows the tables.
        name: the table; None for all.

    Raises:
        TableNotFoundError: if there is no such table.
    """
    tables = target.tables()
    if name is None:
        rows = [(each.name, each.kind, each.comment) for each in tables]
        print_table(("table", "kind", "comment"), [*rows, *((each, "system", "") for each in target.system)])
        return
    found = find_table_name(name, [each.name for each in tables])
    if found is None:
        raise TableNotFoundError(f"there is no table {name!r}: \\d lists the tables")
    (schema,) = (each.schema for each in tables if each.name == found)
    if schema is None:
        note(f"table {found} has no schema")
        return
    columns = [
        (
            each.name,
            each.word,
            "" if each.nullable else "not null",
            "key" if each.name in schema.primary_key else "",
        )
        for each in schema.fields
    ]
    print_table(("column", "type", "", ""), columns)


def complete_words(target: SQLTarget, text: str) -> Iterator[tuple[str, str]]:
    """Yield what the last word of a text may become, and what that is.

    Tables, columns of tables that the text names, and keywords.

    Args:
        target: knows the tables.
        text: the text before the cursor.
    """
    word = text.split()[-1] if text and not text[-1].isspace() else ""
    start = word.rpartition("(")[2].rpartition(",")[2]
    beginning = start.lower()
    if not beginning:
        return
    columns: list[str] = []
    for table in target.tables():
        if table.name.lower() in text.lower() and table.schema is not None:
            columns += table.schema.names
        if table.name.lower().startswith(beginning):
            yield table.name, "table"
    yield from ((each, "table") for each in target.system if each.startswith(beginning))
    _, dot, last = beginning.rpartition(".")
    for name in dict.fromkeys(columns):
        if name.lower().startswith(last):
            yield f"{start[: len(start) - len(last)]}{name}", "column"
    if not dot:
        yield from ((each, "keyword") for each in _KEYWORDS if each.lower().startswith(beginning))


def _is_end(line: str) -> bool:
    return line.strip().rstrip(";").lower() in ("\\q", "quit", "exit")


def _open_session(target: SQLTarget) -> Any:
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.history import FileHistory, InMemoryHistory
    except ModuleNotFoundError:
        raise ConfigurationError(
            f"the prompt of streamrt sql needs prompt-toolkit: run {install_command('sql')}, or pass --command or --file"
        ) from None

    class Words(Completer):  # type: ignore[misc, unused-ignore]
        """Completes by the tables; in a thread, since it may ask brokers, or an application."""

        def get_completions(self, document: Any, complete_event: Any) -> Iterable[Any]:
            text = document.text_before_cursor
            word = text.split()[-1] if text and not text[-1].isspace() else ""
            start = word.rpartition("(")[2].rpartition(",")[2]
            with contextlib.suppress(StreamRTError):
                for completion, kind in complete_words(target, text):
                    yield Completion(completion, start_position=-len(start), display_meta=kind)

    history: Any = InMemoryHistory()
    with contextlib.suppress(OSError):
        path = _HISTORY.expanduser()
        # Statements may have values that only their author may read.
        path.touch(mode=0o600)
        history = FileHistory(str(path))
    return PromptSession(history=history, completer=Words(), complete_in_thread=True, enable_history_search=True)
