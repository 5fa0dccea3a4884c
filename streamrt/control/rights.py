"""Tokens that may read and write some tables over HTTP, and do nothing else."""

import re
from collections.abc import Iterable, Sequence

from streamrt.connectors.credentials import Credential
from streamrt.control.token import ControlToken, bearer
from streamrt.errors import ArgumentTypeError, ArgumentValueError, ConfigurationError
from streamrt.secret import Secret

__all__ = ["TokenRights", "check_rights"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class TokenRights:
    """A token of the control server that is for single tables: for queries of some, and for changes of rows of some.

    It may send nothing but statements: no pause, no state, no metrics, no CREATE, ALTER or DROP.

    Args:
        name: who has the token; the log of requests names it.
        token: the token, as text, `Secret`, or a function that returns it; other than that of every other caller.
        read: names of the tables that queries may read, such as `shop.orders`; `shop.*` is all tables of a database, also
            of those to come.
        write: names of the tables whose rows INSERT, UPDATE and DELETE may change. What these read needs the right to read.

    Raises:
        ArgumentValueError: if there is no name, or no table. Types are checked as well.
        ConfigurationError: if the token cannot be sent.

    Attributes:
        name: who has the token.
        token: the token, masked.

    Example:
        >>> rights = TokenRights("reports", "sesame", read=["shop.*"], write=["notes.seen"])
        >>> rights
        TokenRights('reports', read=['shop.*'], write=['notes.seen'])
        >>> rights.may_read("shop.orders"), rights.may_write("shop.orders"), rights.may_read("notes.seen")
        (True, False, False)
    """

    def __init__(self, name: str, token: ControlToken, *, read: Iterable[str] = (), write: Iterable[str] = ()) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"TokenRights(name=...) must be a string, got {type(name).__name__}")
        if not _NAME.fullmatch(name):
            raise ArgumentValueError(
                f"TokenRights(name=...) must have 1 to 64 letters, digits, hyphens and underscores, got {name!r}"
            )
        self.name = name
        given = token.reveal() if isinstance(token, Secret) else token
        self.token = Credential(given, f"TokenRights({name!r}, token=...)")
        if not self.token.changes:
            bearer(self.token, f"the token of TokenRights({name!r})")
        self._read = _checked_names("read", read)
        self._write = _checked_names("write", write)
        if not self._read and not self._write:
            raise ArgumentValueError(f"TokenRights({name!r}) allows nothing: name tables in read or write")

    @property
    def writes(self) -> bool:
        """Whether it may change rows of any table."""
        return bool(self._write)

    def may_read(self, name: str) -> bool:
        """Return whether queries may read a table.

        Args:
            name: its name, with the database.
        """
        return _has(self._read, name)

    def may_write(self, name: str) -> bool:
        """Return whether statements may change rows of a table.

        Args:
            name: its name, with the database.
        """
        return _has(self._write, name)

    def __repr__(self) -> str:
        """Return it without the token."""
        return f"TokenRights({self.name!r}, read={list(self._read)}, write={list(self._write)})"


def check_rights(
    given: Sequence[TokenRights] | None, token: Credential | None, control_sql: str | None
) -> tuple[TokenRights, ...]:
    """Return the tokens with rights of an application.

    Args:
        given: what the program has given.
        token: the token that may do everything.
        control_sql: what callers may do by SQL at all.

    Raises:
        ConfigurationError: if they do not fit the application, or each other.
    """
    rights = tuple(given or ())
    for each in rights:
        if not isinstance(each, TokenRights):
            raise ArgumentTypeError(f"control_rights must be a list of TokenRights, got a {type(each).__name__}")
        if each.writes and control_sql == "read":
            raise ConfigurationError(
                f'{each.name!r} in control_rights may write tables, and control_sql="read" lets no one: set "write"'
            )
    if rights and control_sql is None:
        raise ConfigurationError("control_rights has no effect without control_sql: set control_sql, or remove it")
    names = [each.name for each in rights]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"control_rights has {twice!r} twice: give each token a name of its own")
    texts = [each.reveal() for each in (token, *(each.token for each in rights)) if each and not each.changes]
    if len(set(texts)) < len(texts):
        raise ConfigurationError(
            "two of control_token and the tokens of control_rights are the same: give each caller another token"
        )
    return rights


def _has(names: Iterable[str], name: str) -> bool:
    database = name.rpartition(".")[0]
    return any(each in (name, f"{database}.*") for each in names)


def _checked_names(word: str, names: Iterable[str]) -> tuple[str, ...]:
    found = tuple(names)
    if isinstance(names, str) or not all(isinstance(each, str) for each in found):
        raise ArgumentTypeError(f"TokenRights({word}=...) must be a list of names of tables")
    for each in found:
        database, dot, table = each.partition(".")
        if not (database and dot and table) or "." in table or "*" in database or ("*" in table and table != "*"):
            raise ArgumentValueError(
                f"TokenRights({word}=...) takes names such as 'shop.orders', and 'shop.*' for a database, got {each!r}"
            )
    return found
