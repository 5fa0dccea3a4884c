"""Parts of options that a catalogue keeps: references to secrets, and no secrets."""

from typing import Any

import pytest

from streamrt.errors import ConfigurationError
from streamrt.secret import SecretRef
from streamrt.tables.descriptions.variables import stored_options, unstored_options


@pytest.mark.parametrize(
    "options",
    [
        {"password": "sesame"},
        {"pwd": "sesame"},
        {"dsn": "sesame"},
        {"connection_string": "sesame"},
        {"account_key": "sesame"},
        {"password": {"value": "sesame"}},
        {"headers": [{"X-Api-Key": "sesame"}]},
        {"url": "postgres://ann:sesame@db/shop"},
        {"settings": {"jdbc": "Server=db;Password=sesame;"}},
        {"endpoints": ["https://ann:sesame@example.org/"]},
    ],
)
def test_secrets_are_refused_and_not_shown(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"the connection has a secret in .*SecretRef") as error:
        stored_options("the connection", options)
    assert "sesame" not in str(error.value)


def test_references_and_other_texts_come_back() -> None:
    options = {
        "password": SecretRef.env("PASSWORD"),
        "nested": {"token": SecretRef.file("/run/token")},
        "url": "https://example.org:8443/a?b=c@d",
        "dsn": "${env:DSN}",
        "address": "postgres://ann:${env:PASSWORD}@db/shop",
        "region": "eu-west-1",
        "monkey": "x=1",
    }
    assert unstored_options(stored_options("the connection", options)) == options
