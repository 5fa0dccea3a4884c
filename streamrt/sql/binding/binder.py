"""`bind_statement`: from the tree of a query to its plan."""

from sqlglot import exp

from streamrt.errors import SQLSyntaxError
from streamrt.sql.binding.blocks import bind_query
from streamrt.sql.binding.ranking import close_ranks
from streamrt.sql.binding.scopes import Bound
from streamrt.sql.binding.session import Session, fill_parameters
from streamrt.sql.binding.values import require_input
from streamrt.sql.expressions.positions import position_of

__all__ = ["bind_statement"]


def bind_statement(tree: exp.Expr, session: Session) -> Bound:
    """Return the plan of a query, and its columns.

    Args:
        tree: the query, which stays as it is.
        session: what it is bound with.

    Raises:
        SQLError: if it names what does not exist, has types that do not fit, or asks for what is refused; with its place.
    """
    tree = fill_parameters(tree.copy(), session)
    try:
        bound = bind_query(tree, session, {})
    except RecursionError:
        raise SQLSyntaxError("expressions are nested too deeply", *position_of(tree)) from None
    require_input(bound.plan, tree)
    return Bound(close_ranks(bound.plan, session.emit.grace_ms or 0), bound.columns)
