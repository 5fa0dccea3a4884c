"""`ConnectionConfig`: checking, translating, and keeping secrets to itself."""

import copy
import json
import pickle
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import cloudpickle
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streamrt.errors import ArgumentValueError, ConfigurationError
from streamrt.kafka.cluster.group_description import describe_apart
from streamrt.kafka.connection import ConnectionConfig, SecretsNotPicklableError, as_connection, connection_of

CANARY = "canary-9f3e"
SECRETS = (
    "sasl_password",
    "sasl_oauthbearer_client_secret",
    "sasl_oauthbearer_config",
    "ssl_key_password",
    "ssl_key_pem",
    "ssl_certificate_pem",
    "ssl_ca_pem",
    "ssl_keystore_password",
)
VALUES: dict[str, Any] = {
    "bootstrap_servers": "a:1,b:2",
    "security_protocol": "sasl_ssl",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_method": "oidc",
    "ssl_endpoint_identification_algorithm": "https",
    "sasl_kerberos_min_time_before_relogin": 1000,
    "enable_sasl_oauthbearer_unsecure_jwt": False,
    "enable_ssl_certificate_verification": True,
}


def full(**changes: Any) -> ConnectionConfig:
    """Every field with a value, but for `oauth_cb`."""
    names = (name for name in ConnectionConfig.model_fields if name != "oauth_cb")
    values = {name: VALUES.get(name, f"{CANARY}-{name}" if name in SECRETS else name) for name in names}
    return ConnectionConfig(**{**values, **changes})


def complaint(option: str, value: object) -> str:
    try:
        AdminClient({"bootstrap.servers": "localhost:1", "log_level": 0, option: value})
    except KafkaException as error:
        return str(error)
    return ""


@pytest.fixture
def everything() -> ConnectionConfig:
    return full()


@pytest.mark.rows("FL-018", "FL-019", "FL-020")
def test_librdkafka_knows_every_option(everything: ConnectionConfig) -> None:
    # Most values name files that do not exist: only whether the name is known matters here.
    complaints = {option: complaint(option, value) for option, value in everything.as_librdkafka_dict().items()}
    assert not [option for option, text in complaints.items() if "No such configuration property" in text]
    assert "No such configuration property" in complaint("no.such.option", "x")


def test_a_librdkafka_dict_and_back(everything: ConnectionConfig) -> None:
    options = everything.as_librdkafka_dict()
    assert options["enable.sasl.oauthbearer.unsecure.jwt"] is False
    assert options["sasl.kerberos.min.time.before.relogin"] == 1000
    assert all("_" not in option for option in options)
    assert ConnectionConfig.from_librdkafka_dict(options) == everything


def test_only_given_options_are_returned() -> None:
    connection = ConnectionConfig(bootstrap_servers="a:1", client_id="", enable_ssl_certificate_verification=False)
    assert connection.as_librdkafka_dict() == {
        "bootstrap.servers": "a:1",
        "enable.ssl.certificate.verification": False,
    }


@pytest.mark.parametrize(
    ("field", "given", "stored"),
    [
        ("security_protocol", "SASL_SSL", "sasl_ssl"),
        ("security_protocol", "Plaintext", "plaintext"),
        ("sasl_mechanism", "scram-sha-256", "SCRAM-SHA-256"),
        ("sasl_mechanism", "plain", "PLAIN"),
        ("sasl_mechanism", "Gssapi", "GSSAPI"),
        ("sasl_oauthbearer_method", "OIDC", "oidc"),
        ("ssl_endpoint_identification_algorithm", "None", "none"),
        ("ssl_endpoint_identification_algorithm", "", "none"),
        ("ssl_endpoint_identification_algorithm", "HTTPS", "https"),
        ("enable_ssl_certificate_verification", "false", False),
    ],
)
def test_case_does_not_matter(field: str, given: str, stored: object) -> None:
    assert getattr(ConnectionConfig(bootstrap_servers="a:1", **{field: given}), field) == stored


def test_older_names_are_understood() -> None:
    connection = ConnectionConfig.from_librdkafka_dict({"metadata.broker.list": "a:1", "sasl.mechanisms": "PLAIN"})
    assert connection == ConnectionConfig(bootstrap_servers="a:1", sasl_mechanism="PLAIN")


def test_one_option_under_two_names_must_agree() -> None:
    options = {"bootstrap.servers": "a:1", "sasl.mechanism": "PLAIN", "sasl.mechanisms": "GSSAPI"}
    with pytest.raises(ConfigurationError, match="set twice"):
        ConnectionConfig.from_librdkafka_dict(options)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "bootstrap_servers: it is required"),
        ({"bootstrap_servers": ""}, "bootstrap_servers"),
        (
            {"bootstrap_servers": f"a:1,https://{CANARY}:2/"},
            "bootstrap_servers: the address of a broker is host:port, without",
        ),
        ({"bootstrap_servers": "a:1", "linger_ms": CANARY}, "linger_ms: no such setting"),
        ({"bootstrap_servers": "a:1", "security_protocol": CANARY}, "security_protocol: .*'sasl_ssl'"),
        ({"bootstrap_servers": "a:1", "sasl_mechanism": CANARY}, "sasl_mechanism: .*'PLAIN'"),
        ({"bootstrap_servers": "a:1", "sasl_password": {"p": CANARY}}, "sasl_password: "),
        ({"bootstrap_servers": "a:1", "enable_ssl_certificate_verification": CANARY}, "verification: "),
        ({"bootstrap_servers": "a:1", "sasl_kerberos_min_time_before_relogin": -1}, "relogin: "),
        (
            {"bootstrap_servers": "a:1", "sasl_oauthbearer_token_endpoint_url": f"https://me:{CANARY}@host/"},
            "the URL must not contain credentials",
        ),
    ],
)
def test_errors_name_the_option_and_not_the_value(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        ConnectionConfig(**values)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("address", ["http://kafka:9092", "HTTPS://kafka:9092/", "a:1, kafka://b:2"])
def test_an_address_with_a_scheme_is_refused_with_the_form_to_give(address: str) -> None:
    with pytest.raises(ArgumentValueError, match=r"broker_address is invalid: .* host:port, without http://"):
        as_connection(address)
    with pytest.raises(ArgumentValueError, match=r"broker_address is invalid: .* host:port, without http://"):
        connection_of(None, address)


def test_an_address_may_have_a_security_protocol_in_front() -> None:
    """As librdkafka takes it."""
    assert as_connection("PLAINTEXT://a:1,[::1]:9092").bootstrap_servers == "PLAINTEXT://a:1,[::1]:9092"


@pytest.mark.rows("FL-001")
def test_unknown_options_of_librdkafka_are_refused_or_passed_over() -> None:
    options = {"bootstrap.servers": "a:1", "linger.ms": 5, "ssl_ca_location": "x", "oauth.cb": "x"}
    with pytest.raises(ConfigurationError, match=r"linger\.ms, oauth\.cb, ssl_ca_location"):
        ConnectionConfig.from_librdkafka_dict(options)
    connection = ConnectionConfig.from_librdkafka_dict(options, ignore_extras=True)
    assert connection == ConnectionConfig(bootstrap_servers="a:1")


def test_the_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ConnectionConfig.model_fields:
        monkeypatch.setenv(name, "from-env")
        monkeypatch.setenv(name.upper(), "from-env")
    assert ConnectionConfig(bootstrap_servers="a:1").as_librdkafka_dict() == {"bootstrap.servers": "a:1"}


@pytest.mark.rows("FL-021")
@pytest.mark.parametrize("show", [repr, str, lambda c: f"{c}", lambda c: repr([c]), lambda c: repr(c.model_dump())])
def test_secrets_are_masked(everything: ConnectionConfig, show: Callable[[ConnectionConfig], str]) -> None:
    assert CANARY not in show(everything)


def test_secrets_are_masked_on_request(everything: ConnectionConfig) -> None:
    masked = everything.as_librdkafka_dict(plaintext_secrets=False)
    for name in SECRETS:
        assert masked[name.replace("_", ".")] == "***"
    assert CANARY not in repr(masked)


def test_a_callback_does_not_show_what_is_bound_to_it() -> None:
    def token(secret: str, config: str) -> tuple[str, float]:
        return secret + config, 1.0

    connection = ConnectionConfig(bootstrap_servers="a:1", oauth_cb=partial(token, CANARY))
    assert CANARY not in repr(connection)
    assert "oauth_cb=<callable>" in repr(connection)
    assert connection.as_librdkafka_dict()["oauth_cb"]("x") == (f"{CANARY}x", 1.0)


def test_a_callback_can_be_named() -> None:
    connection = ConnectionConfig(bootstrap_servers="a:1", oauth_cb="json:loads")
    assert connection.oauth_cb is json.loads


def test_it_cannot_be_changed(everything: ConnectionConfig) -> None:
    with pytest.raises(ConfigurationError, match="sasl_password cannot be changed") as caught:
        everything.sasl_password = CANARY  # type: ignore[assignment]
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps, partial(pickle.dumps, protocol=0)])
def test_it_cannot_be_pickled(everything: ConnectionConfig, dumps: Callable[[object], bytes]) -> None:
    with pytest.raises(SecretsNotPicklableError, match="to_secret_json"):
        dumps({"connection": everything})


def test_it_cannot_be_pickled_in_a_closure(everything: ConnectionConfig) -> None:
    with pytest.raises(SecretsNotPicklableError):
        cloudpickle.dumps(lambda: everything)


def test_it_can_be_copied(everything: ConnectionConfig) -> None:
    assert copy.copy(everything) == copy.deepcopy(everything) == everything
    assert hash(copy.copy(everything)) == hash(everything)


def test_secret_json_and_back(everything: ConnectionConfig) -> None:
    text = everything.to_secret_json()
    assert json.loads(text)["sasl.password"] == f"{CANARY}-sasl_password"
    assert ConnectionConfig.from_secret_json(text) == everything


def test_a_callback_has_no_json_form() -> None:
    connection = ConnectionConfig(bootstrap_servers="a:1", oauth_cb=lambda config: (config, 1.0))
    with pytest.raises(ConfigurationError, match="oauth_cb"):
        connection.to_secret_json()
    with pytest.raises(ConfigurationError, match="members of group shop cannot be read with oauth_cb"):
        describe_apart(connection, "shop", 1.0)


@pytest.mark.parametrize("text", ["", CANARY, f'{{"sasl.password": "{CANARY}"', f'["{CANARY}"]', "null"])
def test_a_damaged_document_is_not_quoted(text: str) -> None:
    with pytest.raises(ConfigurationError, match="damaged") as caught:
        ConnectionConfig.from_secret_json(text)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


@pytest.mark.rows("FL-002")
def test_an_address_is_a_connection() -> None:
    connection = ConnectionConfig(bootstrap_servers="a:1")
    assert as_connection("a:1") == connection
    assert as_connection(connection) is connection
    with pytest.raises(ConfigurationError, match="int"):
        as_connection(9092)  # type: ignore[arg-type]
