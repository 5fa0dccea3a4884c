"""`streamrt init`: creates a project that runs and passes its tests."""

import importlib.resources
import re
import shlex
from enum import Enum
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from streamrt.cli.output import JsonOption, echo, examples, print_json
from streamrt.errors import ConfigurationError
from streamrt.extras import requirement

__all__ = ["EXAMPLES", "init"]

_TEMPLATE = "template"
"""Files of all kinds of projects, and a directory for each kind."""
_ABOUT = "about.md.tmpl"
"""The part of README.md that differs by kind."""
_SUFFIX = ".tmpl"
_DOT = "dot-"
"""Beginning of the name of a hidden file: build tools leave out hidden files."""
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
EXAMPLES = examples(
    "streamrt init word-counts", "streamrt init payments --kind table", "streamrt init . --name word-counts"
)


class Kind(str, Enum):
    """Kinds of projects: topic to topic, topic to table, topic to database."""

    stream = "stream"
    table = "table"
    sink = "sink"


def init(
    directory: Annotated[Path, typer.Argument(help="Directory of the project; it is created, or must be empty.")],
    name: Annotated[
        str | None,
        typer.Option(help="Name of the project and of its consumer group; by default that of the directory."),
    ] = None,
    kind: Annotated[
        Kind,
        typer.Option(
            help="The application: `stream` counts words of a topic, `table` makes rows of a table of records, `sink` writes "
            "records to a database."
        ),
    ] = Kind.stream,
    as_json: JsonOption = False,
) -> None:
    """Create a project: an application that runs, its test, and how to run both, here and in containers."""
    chosen = name or re.sub(r"[^a-z0-9]+", "-", directory.absolute().resolve().name.lower()).strip("-")
    if not _NAME.fullmatch(chosen):
        raise ConfigurationError(
            f"{chosen!r} is not a name for a project: pass --name with small letters, digits and '-', such as word-counts"
        )
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise ConfigurationError(
                f"{directory} is not an empty directory, and nothing was created: choose another one"
            )
        directory.mkdir(parents=True, exist_ok=True)
        written = _write_template(
            directory,
            kind,
            {
                "name": chosen,
                "requirement": requirement("local"),
                # In a container, StreamRT is not where it is here.
                "image_requirement": requirement("control").partition(" @ ")[0],
            },
        )
    except OSError as error:
        raise ConfigurationError(
            f"the project cannot be created: {error.filename or directory}: {error.strerror}; choose another directory"
        ) from error
    if as_json:
        print_json({"name": chosen, "kind": kind.value, "directory": str(directory), "files": written})
        return
    echo(f"created {directory}:")
    for path in written:
        echo(f"  {path}")
    echo("next:")
    for line in (f"cd {shlex.quote(str(directory))}", 'pip install -e ".[dev]"', "pytest", "streamrt dev app.py"):
        echo(f"  {line}")


def _write_template(directory: Path, kind: Kind, values: dict[str, str]) -> list[str]:
    """Write the files of the template; return their names."""
    template = importlib.resources.files("streamrt.cli") / _TEMPLATE
    about = Template((template / kind.value / _ABOUT).read_text(encoding="utf-8")).substitute(values)
    written = []
    for source in sorted([*template.iterdir(), *(template / kind.value).iterdir()], key=lambda each: each.name):
        if not source.name.endswith(_SUFFIX) or source.name == _ABOUT:
            continue
        target = source.name.removesuffix(_SUFFIX)
        if target.startswith(_DOT):
            target = f".{target.removeprefix(_DOT)}"
        text = Template(source.read_text(encoding="utf-8")).substitute(values, about=about)
        (directory / target).write_text(text, encoding="utf-8")
        written.append(target)
    return written
