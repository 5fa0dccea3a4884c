"""The settings that commands give an application: flags take precedence over the environment, and that over a file."""

import contextlib
import importlib
import inspect
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamrt.cli.control import TokenFileOption, read_token
from streamrt.cli.programs.loading import load_application
from streamrt.common.logs import JsonFormatter
from streamrt.common.suggestions import suggest_name
from streamrt.config import LOGGER_NAME, NONE_WORD, ApplicationConfig
from streamrt.errors import ConfigurationError
from streamrt.secret import names_secret

if TYPE_CHECKING:
    from streamrt.app import Application

__all__ = [
    "TOKEN_VARIABLE",
    "Setting",
    "SettingsOption",
    "TokenFileOption",
    "chosen_settings",
    "configured_application",
    "in_environment",
    "parse_flags",
    "read_settings",
    "require_effect",
]

TOKEN_VARIABLE = "STREAMRT_CONTROL_TOKEN"  # noqa: S105 - the name of a variable
_PAGE = "docs/configuration.md lists them"
SettingsOption = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        envvar="STREAMRT_SETTINGS_FILE",
        metavar="FILE",
        help="TOML file with settings, named as the parameters of Application.",
    ),
]


@dataclass(frozen=True)
class Setting:
    """A value for a field of `ApplicationConfig`.

    Args:
        name: the field.
        value: the value, as the application will have it.
        origin: where it was given: an option or a file.
    """

    name: str
    value: Any
    origin: str

    @classmethod
    def parse(cls, name: str, value: object, origin: str) -> "Setting":
        """Return a setting after a check.

        Args:
            name: the field.
            value: a text, or a value of a file.
            origin: where it was given.

        Raises:
            ConfigurationError: if there is no such setting, or the value is invalid. The message shows no value of what is
                not a setting: it may be a secret.
        """
        if name not in ApplicationConfig.model_fields:
            raise ConfigurationError(_describe_unknown(name))
        return cls(name, ApplicationConfig.parse(name, value), origin)

    @property
    def variable(self) -> str:
        """The environment variable by which the application gets it."""
        return ApplicationConfig.variable(self.name)

    @property
    def text(self) -> str:
        """The value as a text in the environment."""
        if self.value is None:
            return NONE_WORD
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)


@contextlib.contextmanager
def configured_application(
    context: typer.Context,
    name: str,
    settings: Path | None,
    token_file: Path | None,
    flags: Mapping[str, Setting] | None = None,
) -> Iterator["Application"]:
    """Load an application with settings, which are in the environment during the `with` block.

    Args:
        context: the context of the command, which has the option `--token-file`.
        name: the application, as `module:app`.
        settings: the option `--settings`.
        token_file: the option `--token-file`.
        flags: settings of options.

    Raises:
        ConfigurationError: if there is no such application, settings cannot be used, or one of a flag or of the file has no
            effect.
    """
    chosen = chosen_settings(flags or {}, {} if settings is None else read_settings(settings), os.environ)
    # Processes of tasks also get this environment.
    with in_environment({each.variable: each.text for each in chosen}):
        token = {} if token_file is None else {TOKEN_VARIABLE: read_token(token_file)}
        # Only the application needs the token, and reads it when it is made.
        with in_environment(token):
            app = load_application(name)
        require_effect(app, chosen)
        source = context.get_parameter_source("token_file")
        if token and source is not None and source.name == "COMMANDLINE":
            _require_token(app, token[TOKEN_VARIABLE])
        yield app


def read_settings(path: Path) -> dict[str, Setting]:
    """Return the settings in a TOML file.

    Args:
        path: the file. Its keys are the fields of `ApplicationConfig`.

    Raises:
        ConfigurationError: if it cannot be read, has unknown keys or invalid values.
    """
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        found = toml.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"the settings in {path} cannot be read: {error.strerror}; pass a TOML file with --settings"
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"the settings in {path} cannot be read: the file is not UTF-8") from None
    except toml.TOMLDecodeError as error:
        raise ConfigurationError(f"the settings in {path} cannot be read: it is not TOML: {error}") from None
    settings, problems = {}, []
    for name, value in found.items():
        try:
            settings[name] = Setting.parse(name, value, str(path))
        except ConfigurationError as error:
            problems.append(str(error))
    if problems:
        raise ConfigurationError(f"{path}: {'; '.join(problems)}")
    return settings


def parse_flags(pairs: Sequence[str], named: Mapping[str, tuple[str, str | None]]) -> dict[str, Setting]:
    """Return the settings of options.

    Args:
        pairs: what `--set` got: NAME=VALUE.
        named: for each setting that has an option, the option and what it got; None if it was not given.

    Raises:
        BadParameter: if one is unknown, invalid, or given twice.
    """
    given: list[tuple[str, str, str]] = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            # What was meant for a value may be a secret.
            raise typer.BadParameter("give NAME=VALUE, such as commit_interval=1", param_hint="--set")
        given.append((name, value, "--set"))
    given += [(name, value, option) for name, (option, value) in named.items() if value is not None]
    settings: dict[str, Setting] = {}
    for name, value, option in given:
        if name in settings:
            raise typer.BadParameter(f"{name} is given twice: remove one", param_hint=option)
        try:
            settings[name] = Setting.parse(name, value, option)
        except ConfigurationError as error:
            raise typer.BadParameter(str(error), param_hint=option) from None
    return settings


def chosen_settings(
    flags: Mapping[str, Setting], of_file: Mapping[str, Setting], environment: Mapping[str, str]
) -> list[Setting]:
    """Return the settings to add to the environment: all of flags, and those of a file that the environment lacks.

    Args:
        flags: settings of options.
        of_file: settings of a file.
        environment: the environment variables.

    Example:
        >>> file = {"commit_every": Setting("commit_every", 10, "a.toml"), "control": Setting("control", "0", "a.toml")}
        >>> [each.name for each in chosen_settings({}, file, {"STREAMRT_CONTROL": "7070"})]
        ['commit_every']
    """
    # The configuration reads variables regardless of case.
    present = {name.upper() for name in environment}
    rest = [each for name, each in of_file.items() if name not in flags and each.variable not in present]
    return [*flags.values(), *rest]


@contextlib.contextmanager
def in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables during the `with` block.

    Args:
        variables: names, in capitals, and values.
    """
    before = {name: value for name, value in os.environ.items() if name.upper() in variables}
    try:
        for name in before:
            del os.environ[name]
        os.environ.update(variables)
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(before)


def require_effect(app: "Application", settings: Iterable[Setting]) -> None:
    """Refuse settings that have no effect, because the program fixes others, or has configured the logger itself.

    Args:
        app: the application, made with the settings in its environment.
        settings: those of flags and of a file.

    Raises:
        ConfigurationError: if there are some; the message names each, and what the program has instead.
    """
    from streamrt.app import environment_of

    environment = environment_of(app)
    problems = []
    for each in settings:
        effective = getattr(app.config, each.name)
        if each.name == "broker_address":
            effective = environment.connection.bootstrap_servers
        if effective != each.value:
            problems.append(
                f"{each.name}={each.value} of {each.origin} has no effect, because the program passes "
                f"{each.name}={effective} to Application"
            )
        elif each.name == "spark_master" and environment.spark_session is not None:
            problems.append(
                f"{each.name}={each.value} of {each.origin} has no effect, because the program passes a spark_session to "
                "Application"
            )
        elif logged := _logged_otherwise(each):
            problems.append(
                f"{each.name}={each.value} of {each.origin} has no effect in this process, because {logged}"
            )
    if problems:
        raise ConfigurationError(f"{'; '.join(problems)}: remove it in one of the two places")


def _logged_otherwise(setting: Setting) -> str:
    """Return how the program has configured the logger otherwise than a setting says; an empty text if it has not.

    A logger that has handlers when the application is made stays as it is.
    """
    logger = logging.getLogger(LOGGER_NAME)
    if setting.name == "loglevel" and setting.value is not None:
        wanted = setting.value if isinstance(setting.value, int) else logging.getLevelName(setting.value)
        if logger.level != wanted:
            return f"the program gives the logger {LOGGER_NAME!r} the level {logging.getLevelName(logger.level)}"
    if setting.name == "log_format":
        as_json = [isinstance(handler.formatter, JsonFormatter) for handler in logger.handlers]
        if any(each is not (setting.value == "json") for each in as_json):
            return f"the program gives the logger {LOGGER_NAME!r} handlers with another format"
    return ""


def _require_token(app: "Application", token: str) -> None:
    """Refuse the token of `--token-file` if the control server does not take it.

    Raises:
        ConfigurationError: if there is no control server, or the program gives it another token.
    """
    from streamrt.app import control_token_of

    if app.config.control is None:
        raise ConfigurationError("--token-file has no effect without a control server: set control, too")
    credential = control_token_of(app)
    if credential is None or credential.reveal() != token:
        raise ConfigurationError(
            "--token-file has no effect, because the program passes control_token to Application: remove one of the two"
        )


def _describe_unknown(name: str) -> str:
    """Return what is wrong with a name that is not a setting."""
    if name == "control_token":
        return f"control_token is a secret: set the variable {TOKEN_VARIABLE}, or pass a file with --token-file"
    if names_secret(name):
        return (
            f"{name} is not a setting; secrets belong to the program, which reads them from the environment or a file"
        )
    from streamrt.app import Application

    if name in inspect.signature(Application).parameters:
        return f"{name} can be set by the program alone"
    advice = suggest_name(name.replace("-", "_"), ApplicationConfig.model_fields)
    return f"{name} is not a setting{advice or f': {_PAGE}'}"
