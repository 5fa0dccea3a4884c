"""Access to a service of AWS: settings, the client, and its errors in words."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from streamrt.connectors.argument_checks import check_known
from streamrt.connectors.credentials import Credential, CredentialInput
from streamrt.connectors.failures import PassingError, RequestError
from streamrt.errors import ArgumentTypeError, ArgumentValueError, argument_error

__all__ = ["AWSClient", "AWSService", "is_about_access"]

_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 30
# Arguments of boto3.client that are not parameters of connectors.
_OPTIONS = ("api_version", "aws_account_id", "config", "use_ssl", "verify")
_REFUSED = re.compile(
    "AccessDenied|AuthFailure|ExpiredToken|IncompleteSignature|InvalidAccessKeyId|InvalidClientTokenId|InvalidSecurity|"
    "InvalidSignature|MissingAuthenticationToken|NotAuthorized|OptInRequired|SignatureDoesNotMatch|TokenRefreshRequired|"
    "UnrecognizedClient"
)
_PASSING = re.compile(
    "InternalFailure|InternalServiceError|KMSThrottling|LimitExceeded|OverLimit|PriorRequestNotComplete|"
    "ProvisionedThroughputExceeded|RequestLimitExceeded|RequestThrottled|RequestTimeout|ServiceUnavailable|SlowDown|"
    "Throttl|TooManyRequests"
)


class AWSService:
    """Settings for a service of AWS. What is not given comes from the environment, then from what boto3 finds itself.

    Args:
        connector: name of the class of the connector.
        service: name of the service in boto3, such as `sqs`.
        access_key_id: the access key ID; by default `AWS_ACCESS_KEY_ID`.
        secret_access_key: the secret access key; by default `AWS_SECRET_ACCESS_KEY`.
        session_token: the token of temporary credentials; by default `AWS_SESSION_TOKEN`, if the keys also come
            from the environment.
        region: the region; by default `AWS_REGION`, then `AWS_DEFAULT_REGION`.
        endpoint_url: URL of the service; by default `AWS_ENDPOINT_URL_<SERVICE>`, then `AWS_ENDPOINT_URL`.
        options: more arguments of `boto3.client`.

    Raises:
        ConfigurationError: if a setting cannot be used.
    """

    def __init__(
        self,
        connector: str,
        service: str,
        *,
        access_key_id: CredentialInput | None,
        secret_access_key: CredentialInput | None,
        session_token: CredentialInput | None,
        region: str | None,
        endpoint_url: str | None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.connector = connector
        self.service = service
        self._options = dict(options or {})
        # The name of this argument in boto3.
        endpoint_url = self._options.pop("endpoint_url", None) or endpoint_url
        check_known(connector, self._options, _OPTIONS, "boto3.client")
        if access_key_id is None and secret_access_key is None and session_token is None:
            session_token = _read_environment("AWS_SESSION_TOKEN")
        given = {
            "aws_access_key_id": access_key_id or _read_environment("AWS_ACCESS_KEY_ID"),
            "aws_secret_access_key": secret_access_key or _read_environment("AWS_SECRET_ACCESS_KEY"),
            "aws_session_token": session_token,
        }
        if (given["aws_access_key_id"] is None) != (given["aws_secret_access_key"] is None):
            raise ArgumentValueError(f"{connector} needs both aws_access_key_id and aws_secret_access_key, or neither")
        self._credentials = {
            name: Credential(credential, f"{connector}({name}=...)")
            for name, credential in given.items()
            if credential is not None
        }
        self._region = _checked_text(connector, "the region", region) or _read_environment(
            "AWS_REGION", "AWS_DEFAULT_REGION"
        )
        if endpoint_url is None:
            endpoint_url = _read_environment(f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL")
        self._endpoint_url = _checked_url(connector, endpoint_url)

    @property
    def where(self) -> str:
        """Where the service is, for sentences."""
        return self._endpoint_url or (f"AWS in {self._region}" if self._region else "AWS")

    @property
    def credentials_change(self) -> bool:
        """Whether new credentials may be valid where others are not."""
        return any(credential.changes for credential in self._credentials.values())

    def connect(self) -> Any:
        """Return a new client of boto3.

        Raises:
            RequestError: if the settings do not suffice.
        """
        import boto3
        from botocore.config import Config

        options = dict(self._options)
        # Connectors repeat requests themselves.
        config = Config(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            retries={"total_max_attempts": 1, "mode": "standard"},
            user_agent_extra="streamrt",
        )
        if options.get("config") is not None:
            config = config.merge(options["config"])
        options["config"] = config
        options.update({name: credential.reveal() for name, credential in self._credentials.items()})
        with self.translated():
            # A session of its own, because the default one is not safe to use in threads.
            session = boto3.session.Session()
            return session.client(self.service, region_name=self._region, endpoint_url=self._endpoint_url, **options)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Raise errors of boto3 as `RequestError`."""
        from botocore import exceptions
        from botocore.parsers import ResponseParserError

        try:
            yield
        except exceptions.ClientError as error:
            raise _make_request_error(error.response, self.credentials_change) from None
        except exceptions.NoRegionError:
            raise RequestError("it has no region: give one, or set AWS_REGION") from None
        except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError):
            raise RequestError(
                "there are no credentials: give aws_access_key_id and aws_secret_access_key, or set up a profile or a role"
            ) from None
        except exceptions.SSLError:
            raise RequestError("the TLS connection failed: its certificate cannot be verified") from None
        except (
            exceptions.ConnectionError,
            exceptions.HTTPClientError,
            exceptions.CredentialRetrievalError,
            exceptions.MetadataRetrievalError,
        ) as error:
            raise PassingError(f"it does not answer ({type(error).__name__})") from None
        except ResponseParserError:
            raise RequestError("what answers there is not AWS") from None
        except exceptions.BotoCoreError as error:
            raise RequestError(f"boto3 refuses the request ({type(error).__name__})") from None


class AWSClient:
    """A client that is made with its first request, and again when its credentials have expired.

    Args:
        service: the settings.
    """

    def __init__(self, service: AWSService) -> None:
        self._service = service
        self._client: Any = None

    def call(self, operation: str, **arguments: Any) -> Any:
        """Send one request; it may be called in several threads.

        Args:
            operation: the method of the client, such as `send_message_batch`.
            **arguments: its arguments.

        Raises:
            RequestError: if it failed.
        """
        if self._client is None:
            self._client = self._service.connect()
        try:
            with self._service.translated():
                return getattr(self._client, operation)(**arguments)
        except RequestError as error:
            if "ExpiredToken" in error.code:
                self._client = None
            raise


def _make_request_error(response: Mapping[str, Any], credentials_change: bool) -> RequestError:
    code = str(response.get("Error", {}).get("Code", "an unknown error"))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if _REFUSED.search(code) or status in (401, 403):
        passing = credentials_change and "ExpiredToken" in code
        return (PassingError if passing else RequestError)(f"it refuses the credentials ({code})", code=code)
    passing = status >= 500 or bool(_PASSING.search(code))
    return (PassingError if passing else RequestError)(f"it answers {code}", code=code)


def is_about_access(code: str) -> bool:
    """Return whether a code for one record is about rights or keys: all other records would also get it.

    Args:
        code: an error code of a service.

    Example:
        >>> is_about_access("KMSAccessDeniedException"), is_about_access("InvalidMessageContents")
        (True, False)
    """
    return bool(_REFUSED.search(code)) or "kms" in code.lower()


def _read_environment(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _checked_text(connector: str, what: str, text: str | None) -> str | None:
    if text is not None and (not isinstance(text, str) or not text):
        raise argument_error(f"{what} of {connector} is {text!r}: give a non-empty str", of_type=isinstance(text, str))
    return text


def _checked_url(connector: str, url: str | None) -> str | None:
    if url is None:
        return None
    if not isinstance(url, str):
        raise ArgumentTypeError(f"the endpoint URL of {connector} must be a str, got {type(url).__name__}")
    parts = urlsplit(url)
    # The URL may hold a password, so it is not shown.
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ArgumentValueError(f"the endpoint URL of {connector} must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ArgumentValueError(f"the endpoint URL of {connector} must not hold credentials: give them as parameters")
    return url
