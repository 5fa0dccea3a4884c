"""Secrets are pickled as references, and known only where they were sent to."""

import pickle
import subprocess
import sys

import cloudpickle
import pytest

from streamrt.secret import Secret, collect_secrets, names_secret
from streamrt.serializers import AvroDeserializer, JSONSerializer
from streamrt.serializers.registry import SchemaRegistryClientConfig

READ = """
import json, pickle, sys
from streamrt.errors import ConfigurationError
from streamrt.secret import accept_secrets

collected, data = json.loads(sys.stdin.readline()), bytes.fromhex(sys.stdin.readline())
try:
    pickle.loads(data)
except ConfigurationError as error:
    print(error)
accept_secrets(collected)
print(pickle.loads(data).reveal())
"""


def config() -> SchemaRegistryClientConfig:
    return SchemaRegistryClientConfig(url="http://shop:sesame@registry:8081", ssl_ca_location="/ca.pem")


def test_settings_of_a_registry_come_back_without_having_been_in_the_pickle() -> None:
    for made in (
        config(),
        AvroDeserializer(schema_registry_client_config=config()),
        JSONSerializer(schema={"type": "object"}, schema_registry_client_config=config()),
    ):
        with collect_secrets() as collected:
            data = cloudpickle.dumps(made)
        assert b"sesame" not in data
        assert list(collected.values()) == ["shop:sesame"]
        assert b"sesame" not in cloudpickle.dumps(pickle.loads(data))
    again = pickle.loads(cloudpickle.dumps(config()))
    assert again == config()
    assert again.as_dict(plaintext_secrets=True)["basic.auth.user.info"] == "shop:sesame"


def test_another_process_knows_a_secret_once_it_was_sent() -> None:
    with collect_secrets() as collected:
        data = pickle.dumps(Secret("sesame"))
    sent = f"{collected}\n{data.hex()}\n".replace("'", '"')
    done = subprocess.run(
        [sys.executable, "-c", READ], input=sent, capture_output=True, text=True, check=True, timeout=60
    )
    refused, shown = done.stdout.splitlines()
    assert "was not transferred to this process" in refused
    assert shown == "sesame"


def test_a_secret_is_collected_only_where_it_is_pickled() -> None:
    with collect_secrets() as collected:
        pass
    pickle.dumps(Secret("sesame"))
    assert collected == {}
    assert "sesame" not in repr(Secret("sesame"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(
            (each, True)
            for each in ("sasl.password", "X-Api-Key", "x-access-key", "ssl_key_pem", "adls.sas-token", "sas")
        ),
        *((each, True) for each in ("Authorization", "Cookie", "aws_secret_access_key", "connection_string", "sig")),
        *((each, False) for each in ("topic", "keys", "aws_access_key_id", "design", "passes", "commit_every")),
    ],
)
def test_names_of_secrets(name: str, expected: bool) -> None:
    assert names_secret(name) is expected
