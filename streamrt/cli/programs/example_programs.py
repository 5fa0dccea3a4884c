"""`streamrt examples`: lists the example programs, and copies one."""

import ast
import importlib.resources
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from streamrt.cli.output import JsonOption, echo, examples, print_json, print_table
from streamrt.errors import ConfigurationError

__all__ = ["ExampleProgram", "app", "find_examples"]

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True)
class ExampleProgram:
    """An example program.

    Attributes:
        name: its name, without `.py`.
        description: the first line of its docstring.
        command: how to run it where its file is.
        files: the contents of its file, and of the data files that it names, by name.
    """

    name: str
    description: str
    command: str
    files: dict[str, bytes]


def find_examples() -> Iterator[ExampleProgram]:
    """Yield the example programs of this StreamRT, sorted by name."""
    directory = importlib.resources.files("streamrt") / "examples"
    contents = {each.name: each.read_bytes() for each in directory.iterdir() if each.is_file()}
    for name in sorted(contents):
        if not name.endswith(".py"):
            continue
        text = contents[name].decode()
        docstring = ast.get_docstring(ast.parse(text)) or ""
        [command] = re.findall(rf"^ *(.*\bpython )examples/({re.escape(name)})", docstring, re.MULTILINE)
        data = {each: data for each, data in contents.items() if not each.endswith(".py") and f'"{each}"' in text}
        yield ExampleProgram(
            name.removesuffix(".py"), docstring.partition("\n")[0], "".join(command), {name: contents[name], **data}
        )


@app.callback()
def _group() -> None:
    """List the example programs, and copy one."""


@app.command("list", epilog=examples("streamrt examples list", "streamrt examples list --json | jq '.examples[].name'"))
def list_examples(as_json: JsonOption = False) -> None:
    """List the example programs, with what each shows."""
    found = [{"name": example.name, "description": example.description} for example in find_examples()]
    if as_json:
        print_json({"examples": found})
    else:
        print_table(["NAME", "DESCRIPTION"], [list(example.values()) for example in found])


@app.command("copy", epilog=examples("streamrt examples copy words", "streamrt examples copy frost weather --force"))
def copy_example(
    name: Annotated[str, typer.Argument(help="Name of the example.")],
    directory: Annotated[Path, typer.Argument(help="Where to copy it; the directory is created.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy an example program, with the data files that it reads."""
    example = next((each for each in find_examples() if each.name == name.removesuffix(".py")), None)
    if example is None:
        raise ConfigurationError(f"there is no example {name!r}: `streamrt examples list` shows their names")
    paths = [directory / file for file in example.files]
    there = next((path for path in paths if path.exists()), None)
    if there is not None and not force:
        raise ConfigurationError(
            f"{there} exists already, and nothing was copied: choose another directory, or pass --force"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path in paths:
            path.write_bytes(example.files[path.name])
    except OSError as error:
        raise ConfigurationError(
            f"the example cannot be copied: {error.filename or directory}: {error.strerror}; choose another directory"
        ) from error
    if as_json:
        print_json({"name": example.name, "directory": str(directory), "files": list(example.files)})
        return
    for path in paths:
        echo(f"copied {path}")
    echo("next:")
    for line in ([] if directory == Path() else [f"cd {shlex.quote(str(directory))}"]) + [example.command]:
        echo(f"  {line}")
