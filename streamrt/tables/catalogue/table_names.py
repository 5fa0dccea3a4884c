"""Names of tables in SQL, which have no case, among those of the catalogue, which have."""

from collections.abc import Iterable

from streamrt.errors import ArgumentValueError

__all__ = ["find_table_name"]


def find_table_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name of the table that a text means; None if there is none.

    Args:
        name: the name in the text, with or without the database.
        names: the names in the catalogue, with their databases.

    Raises:
        ArgumentValueError: if it means several tables, and is not exactly the name of one.

    Example:
        >>> find_table_name("SHOP.orders", ["shop.Orders", "shop.parts"])
        'shop.Orders'
    """
    wanted = name if "." in name else f"default.{name}"
    found = sorted(each for each in names if each.lower() == wanted.lower())
    if wanted in found:
        return wanted
    if len(found) > 1:
        raise ArgumentValueError(f"{name!r} may be {' or '.join(found)}: write one of these names, in its case")
    return found[0] if found else None
