"""Access to Google Cloud: credentials, and errors of its client libraries in words."""

import contextlib
import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.failures import PassingError, RequestError
from streamrt.errors import ArgumentValueError, ConfigurationError

__all__ = ["GoogleCredentials", "translated"]

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
_NO_CREDENTIALS = "there are no credentials: give service_account_json, or set GOOGLE_APPLICATION_CREDENTIALS"
# Some of them come with the status of refused credentials.
_BUSY = {"backendError", "internalError", "quotaExceeded", "rateLimitExceeded"}
_NOT_FETCHED = "no access token can be fetched for the credentials"


class GoogleCredentials:
    """The credentials of a service account, or those that the client libraries find themselves.

    Args:
        connector: name of the class of the connector.
        service_account_json: the key of a service account in JSON, or a function that returns it, or None.

    Raises:
        ConfigurationError: if it is not JSON.
    """

    def __init__(self, connector: str, service_account_json: CredentialInput | None) -> None:
        self._parameter = f"{connector}(service_account_json=...)"
        self._given: Credential | None = None
        if service_account_json is not None:
            self._given = Credential(service_account_json, self._parameter)
            if not self._given.changes:
                self._parse_credential(self._given)

    def make(self) -> Any:
        """Return the credentials of the service account, or None for those of the machine.

        Raises:
            ConfigurationError: if the JSON is not the key of a service account.
        """
        if self._given is None:
            return None
        from google.oauth2 import service_account

        parsed = self._parse_credential(self._given)
        try:
            make: Any = service_account.Credentials.from_service_account_info
            return make(parsed, scopes=_SCOPES)
        except Exception as error:  # noqa: BLE001 - messages of parsers of keys may hold parts of the key
            raise ConfigurationError(
                f"{self._parameter} is not the key of a service account ({type(error).__name__})"
            ) from None

    def _parse_credential(self, given: Credential) -> dict[str, Any]:
        try:
            parsed = json.loads(given.reveal())
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            # The text is not shown: it may be the key with a slip of the pen.
            raise ArgumentValueError(f"{self._parameter} must be a JSON object, as Google Cloud exports it")
        return parsed


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise errors of the client libraries as `RequestError`."""
    import requests
    from google.api_core import exceptions
    from google.auth import exceptions as auth

    try:
        yield
    except exceptions.RetryError as error:
        with translated():
            if error.cause is not None:
                raise error.cause from None
        raise PassingError("it does not answer in time", code="RetryError") from None
    except exceptions.GoogleAPICallError as error:
        raise _make_request_error(error) from None
    except auth.InvalidOperation:
        # Credentials that cannot be renewed, after the service refused them.
        raise RequestError("it refuses the credentials (Unauthorized)", code="Unauthorized") from None
    except auth.DefaultCredentialsError:
        raise RequestError(_NO_CREDENTIALS) from None
    except auth.TransportError:
        raise PassingError(_NOT_FETCHED) from None
    except auth.GoogleAuthError as error:
        raise RequestError(f"the credentials are refused ({type(error).__name__})", code="Unauthenticated") from None
    except requests.exceptions.SSLError:
        raise RequestError("the TLS connection failed: its certificate cannot be verified") from None
    except requests.exceptions.RequestException as error:
        raise PassingError(f"it does not answer ({type(error).__name__})") from None


def _make_request_error(error: Any) -> RequestError:
    from google.api_core import exceptions

    code = type(error).__name__
    reasons = {str(problem.get("reason")) for problem in error.errors or () if isinstance(problem, dict)}
    if reasons & _BUSY:
        return PassingError(f"it is busy ({', '.join(sorted(reasons & _BUSY))})", code=code)
    if isinstance(error, exceptions.Unauthorized | exceptions.Forbidden):
        return RequestError(f"it refuses the credentials ({code})", code=code)
    if "Getting metadata from plugin failed" in str(error):
        return PassingError(_NOT_FETCHED, code="Unauthenticated")
    if isinstance(error, exceptions.ServiceUnavailable | exceptions.DeadlineExceeded | exceptions.GatewayTimeout):
        return PassingError(f"it does not answer ({code})", code=code)
    # The library has no class for a request that the service has not received in time.
    passing = error.code == HTTPStatus.REQUEST_TIMEOUT or (
        isinstance(
            error, exceptions.ServerError | exceptions.Aborted | exceptions.Cancelled | exceptions.TooManyRequests
        )
        and not isinstance(error, exceptions.MethodNotImplemented)
    )
    return (PassingError if passing else RequestError)(f"it answers {code}", code=code)
