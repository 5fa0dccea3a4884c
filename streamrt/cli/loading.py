"""Finds the application of a program for commands that take `module:app`."""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streamrt.errors import ConfigurationError, StreamRTError

if TYPE_CHECKING:
    from streamrt.app import Application

__all__ = ["load_application"]


def load_application(name: str) -> "Application":
    """Import a module, as Python does in the working directory, and return its application.

    Args:
        name: the module, and the name in it: of the application, or of a function without parameters that returns it.

    Raises:
        ConfigurationError: if there is none.
    """
    from streamrt.app import Application

    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigurationError(f"{name!r} names no application: give the module and the name in it, such as shop:app")
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        found = getattr(importlib.import_module(module), attribute, None)
        if callable(found) and not isinstance(found, Application):
            found = found()
    except StreamRTError:
        raise
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"module {error.name!r} was not found in {directory} or among the installed packages"
        ) from error
    except Exception as error:
        raise ConfigurationError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(found, Application):
        kind = "nothing" if found is None else f"a value of type {type(found).__name__}"
        raise ConfigurationError(f"{name} is {kind}, and not an Application or a function that returns one")
    return found
