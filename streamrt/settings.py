"""Settings from keyword arguments, including secrets; errors never show a value."""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from streamrt.errors import ConfigurationError, argument_error

__all__ = ["KeywordSettings"]

_PROBLEMS = {"extra_forbidden": "no such setting", "missing": "it is required"}


class KeywordSettings(BaseModel):
    """Immutable settings, validated once.

    Nothing is read from the environment: a variable named `URL` or `CLIENT_ID` must not change a connection. Secrets are
    fields of the type `SecretStr`.

    Raises:
        ConfigurationError: if a setting is unknown or its value is invalid. The message names the setting and never
            shows the value.

    Example:
        >>> from pydantic import SecretStr
        >>> class Login(KeywordSettings):
        ...     user: str
        ...     password: SecretStr
        >>> Login(user="ann", password="sesame")
        Login(user='ann', password=SecretStr('**********'))
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True, arbitrary_types_allowed=True
    )

    # Type checkers derive the signature from the fields, where secrets have the type SecretStr; a class with secrets
    # must declare this signature again.
    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            # `include_input=False` keeps secrets out: hide_input_in_errors covers only `str(error)`.
            found = error.errors(include_url=False, include_context=False, include_input=False)
            problems = "; ".join(
                f"{'.'.join(str(part) for part in problem['loc']) or 'the settings'}: "
                f"{_PROBLEMS.get(problem['type']) or problem['msg'].removeprefix('Value error, ')}"
                for problem in found
            )
            of_type = not all(problem["type"].endswith("_type") for problem in found)
        else:
            return
        # Raised outside the handler, because its context would be a ValidationError, which holds the values.
        raise argument_error(f"the {type(self).__name__} is invalid: {problems}", of_type=of_type)

    if not TYPE_CHECKING:  # a visible __setattr__ would switch off the type checkers' own refusal

        def __setattr__(self, name, value):
            # pydantic's error shows the value, which may be a secret.
            if name in type(self).model_fields:
                raise ConfigurationError(f"{name} cannot be changed: create a new {type(self).__name__}")
            super().__setattr__(name, value)
