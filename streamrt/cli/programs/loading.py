"""Finds objects of programs for commands: an application as `module:app`, a class of messages as `module:Class`."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamrt.errors import ConfigurationError, StreamRTError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from streamrt.app import Application

__all__ = ["ApplicationArgument", "load_application", "load_message_class"]

ApplicationArgument = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="The module, and the name of the application in it.")
]


def load_application(name: str) -> "Application":
    """Import a module, as Python does in the working directory, and return its application.

    Args:
        name: the module, and the name in it: of the application, or of a function without parameters that returns it.

    Raises:
        ConfigurationError: if there is none.
    """
    from streamrt.app import Application

    def application(found: Any) -> Any:
        return found() if callable(found) and not isinstance(found, Application) else found

    found = _load_object(name, "application", "shop:app", application)
    if not isinstance(found, Application):
        kind = "nothing" if found is None else f"a value of type {type(found).__name__}"
        raise ConfigurationError(f"{name} is {kind}, and not an Application or a function that returns one")
    return found


def load_message_class(name: str) -> "type[Message]":
    """Import a module that protoc has generated, as Python does in the working directory, and return a class of it.

    Args:
        name: the module, and the name of the class in it; for a nested one, with the outer ones and dots.

    Raises:
        ConfigurationError: if there is none.
    """
    found = _load_object(name, "message class", "orders_pb2:Order", lambda found: found)
    if not (isinstance(found, type) and hasattr(found, "DESCRIPTOR") and hasattr(found, "FromString")):
        kind = "nothing" if found is None else f"a value of type {type(found).__name__}"
        raise ConfigurationError(
            f"{name} is {kind}, and not a class of Protobuf messages: name one that protoc generated"
        )
    return found


def _load_object(name: str, what: str, example: str, use: Callable[[Any], Any]) -> Any:
    """Return what a function makes of an object in a module; None if the module has no such object."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigurationError(f"{name!r} names no {what}: give the module and the name in it, such as {example}")
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part, None)
        return use(found)
    except StreamRTError:
        raise
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"module {error.name!r} was not found in {directory} or among the installed packages"
        ) from error
    except Exception as error:
        raise ConfigurationError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
