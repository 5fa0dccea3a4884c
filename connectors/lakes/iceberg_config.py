"""Settings of Iceberg tables: where they are, and credentials."""

import json
import re
from collections.abc import Mapping

from streamrt.connectors.argument_checks import checked_type
from streamrt.errors import ArgumentValueError
from streamrt.secret import Secret

__all__ = ["AWSIcebergConfig", "BaseIcebergConfig"]


class BaseIcebergConfig:
    """Base class of settings of an Iceberg table: where it is, and how to get there.

    Args:
        location: URL of the table's data.
        auth: properties of the catalog, with credentials.
    """

    def __init__(self, location: str, auth: Mapping[str, str]) -> None:
        self.location = location
        self._auth = Secret(json.dumps(dict(auth)))

    @property
    def auth(self) -> dict[str, str]:
        """Properties of the catalog, with credentials."""
        found: dict[str, str] = json.loads(self._auth.reveal())
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r}, ***)"


class AWSIcebergConfig(BaseIcebergConfig):
    """Settings of a table in S3 with a catalog in AWS Glue.

    Args:
        aws_s3_uri: URL of the table's data, such as "s3://lake/orders".
        aws_region: the region.
        aws_access_key_id: id of the access key. Without it, the credentials of the environment or the machine are used.
        aws_secret_access_key: the secret key.
        aws_session_token: the token of temporary credentials.

    Raises:
        ConfigurationError: if an argument cannot be used.
    """

    def __init__(
        self,
        aws_s3_uri: str,
        aws_region: str | None = None,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | None = None,
        aws_session_token: str | None = None,
    ) -> None:
        settings = {
            "client.region": ("aws_region", aws_region),
            "client.access-key-id": ("aws_access_key_id", aws_access_key_id),
            "client.secret-access-key": ("aws_secret_access_key", aws_secret_access_key),
            "client.session-token": ("aws_session_token", aws_session_token),
        }
        for parameter, value in (("aws_s3_uri", aws_s3_uri), *settings.values()):
            checked_type("AWSIcebergConfig", parameter, value, str, "a str", optional=True, hidden=True)
        if not re.match(r"s3[an]?://[^/]+", aws_s3_uri or ""):
            raise ArgumentValueError(f"AWSIcebergConfig(aws_s3_uri=...) must begin with s3://, got {aws_s3_uri!r}")
        if (aws_access_key_id is None) != (aws_secret_access_key is None):
            raise ArgumentValueError(
                "AWSIcebergConfig needs both aws_access_key_id and aws_secret_access_key, or neither"
            )
        super().__init__(aws_s3_uri, {name: value for name, (_, value) in settings.items() if value is not None})
