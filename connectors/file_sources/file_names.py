"""Names of files: patterns, partition folders, and what is left out."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from streamrt.errors import SourceError

__all__ = ["is_hidden", "matcher", "partition_count", "partition_of", "split_pattern"]

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_MAGIC = re.compile(r"[*?\[]")


def split_pattern(path: str) -> tuple[str, str | None]:
    """Return the directory of a path with a pattern, and the pattern below it; None if it has none.

    Args:
        path: the path.

    Example:
        >>> split_pattern("/logs/*/app.log*"), split_pattern("s3/orders")
        (('/logs', '*/app.log*'), ('s3/orders', None))
    """
    scheme, colon, rest = path.rpartition("://")
    parts = rest.split("/")
    first = next((number for number, part in enumerate(parts) if _MAGIC.search(part)), None)
    if first is None:
        return path, None
    return scheme + colon + "/".join(parts[:first]) or ("/" if path.startswith("/") else ""), "/".join(parts[first:])


def matcher(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern.

    Args:
        pattern: `*` and `?` stand for characters of one part of a path, `[abc]` for one of some characters, and the part
            `**` for any number of parts.

    Example:
        >>> bool(matcher("**/app.log*").fullmatch("a/b/app.log.1")), bool(matcher("*.csv").fullmatch("a/b.csv"))
        (True, False)
    """
    parts = []
    for part in pattern.split("/"):
        if part == "**":
            parts.append("(?:[^/]+/)*")
            continue
        text = re.sub(
            r"\*+|\?|\[[^\]]+\]|.",
            lambda found: _translate_pattern(found.group()),
            part,
            flags=re.DOTALL,
        )
        parts.append(f"{text}/")
    expression = "".join(parts)
    # A pattern that ends with ** stands for all files below.
    return re.compile(f"{expression}[^/]+" if pattern.endswith("**") else expression.removesuffix("/"), re.DOTALL)


def _translate_pattern(text: str) -> str:
    if text.startswith("*"):
        return "[^/]*"
    if text == "?":
        return "[^/]"
    if len(text) > 2 and text.startswith("["):
        inner = text[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner.replace('^', chr(92) + '^')}]"
    return re.escape(text)


def partition_of(source: str, name: str, path: str) -> int:
    """Return the partition of a file: the name of the folder in which it lies.

    Args:
        source: name of the source.
        name: path of the file below that of the source.
        path: path of the file.

    Raises:
        SourceError: if the folder has no number as its name.
    """
    folder = PurePosixPath(path).parent.name
    if not _NUMBER.fullmatch(folder):
        raise SourceError(
            f"the source {source} cannot read {name}: with has_partition_folders=True, each file lies in a folder whose "
            "name is a partition number"
        )
    return int(folder)


def partition_count(source: str, folders: Iterable[str]) -> int:
    """Return the number of partitions for folders: the largest number, plus 1.

    Args:
        source: name of the source.
        folders: names of the folders.

    Raises:
        SourceError: if no folder has a number as its name.
    """
    numbers = [int(folder) for folder in folders if _NUMBER.fullmatch(folder)]
    if not numbers:
        raise SourceError(
            f"the source {source} has has_partition_folders=True, but none of its folders is named by a partition number"
        )
    return max(numbers) + 1


def is_hidden(path: str) -> bool:
    """Return whether a file or a directory is to be left out.

    Args:
        path: its path.
    """
    return PurePosixPath(path).name.startswith((".", "_"))
