"""Names of tables that belong to sinks for SQL databases."""

import unicodedata

__all__ = ["is_internal"]

# Of the positions, by default; of rows on their way.
_OWN = ("streamrt_positions", "streamrt_rows", "streamrt_staged")


def is_internal(table: str, position_table: str | None) -> bool:
    """Return whether a table is one in which a sink keeps something of its own, however its name is written.

    A record that names the table of positions would be able to change the position of another group.

    Args:
        table: the name, perhaps in other case, in quotes, or with a schema.
        position_table: the table of positions.

    Example:
        >>> is_internal('public."Streamrt_Positions"', None), is_internal("orders", None)
        (True, False)
    """
    own = {_fold_name(name) for name in (*_OWN, position_table or "") if name}
    return _fold_name(table) in own or _fold_name(table.rpartition(".")[2]) in own


def _fold_name(name: str) -> str:
    # Some databases take more letters for equal than those of ASCII.
    return unicodedata.normalize("NFKC", name).casefold().strip(" \t\n\r\"'`[]")
