"""The translation of librdkafka's options for Java's client: each row of it, and what it refuses."""

import copy
import io
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from streamrt.errors import ConfigurationError
from streamrt.kafka.connection import ConnectionConfig, SecretsNotPicklableError
from streamrt.kafka.java_connection import java_system_properties
from streamrt.kafka.java_options import _RULES, java_client_options

CANARY = "canary-9f3e"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"
ENCRYPTED_KEY = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF\n-----END ENCRYPTED PRIVATE KEY-----\n"
RSA_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIG\n-----END RSA PRIVATE KEY-----\n"
OIDC = {
    "security_protocol": "sasl_ssl",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_method": "oidc",
    "sasl_oauthbearer_client_id": "me",
    "sasl_oauthbearer_client_secret": "sesame",
    "sasl_oauthbearer_token_endpoint_url": "https://login/token",
}
KERBEROS = {"security_protocol": "sasl_plaintext", "sasl_kerberos_keytab": "/k", "sasl_kerberos_principal": "p@R"}


def connect(**values: Any) -> ConnectionConfig:
    return ConnectionConfig(**{"bootstrap_servers": "kafka:9092", **values})


def java(**values: Any) -> dict[str, str]:
    return java_client_options(connect(**values)).java


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Read one JAAS entry the way Java's StreamTokenizer does; fail on anything behind it."""
    source = io.StringIO(text)
    tokens = list(_tokens(source))
    module, flag = tokens[0], tokens[1]
    assert flag == ("word", "required")
    assert tokens[-1] == ("sign", ";")
    options: dict[str, str] = {}
    body = tokens[2:-1]
    assert len(body) % 3 == 0
    for name, equals, value in zip(body[::3], body[1::3], body[2::3], strict=True):
        assert (name[0], equals, value[0]) == ("word", ("sign", "="), "quoted")
        assert name[1] not in options
        options[name[1]] = value[1]
    return module[1], options


def _tokens(source: io.StringIO) -> Iterator[tuple[str, str]]:
    escapes = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
    char = source.read(1)
    while char:
        if char in " \t":
            char = source.read(1)
        elif char == '"':
            value = ""
            char = source.read(1)
            while char not in ('"', "\n", "\r", ""):
                if char == "\\":
                    char = source.read(1)
                    assert char not in "01234567", "no octal escape is written"
                    char = escapes.get(char, char)
                value += char
                char = source.read(1)
            assert char == '"', "the string ended with its line"
            yield "quoted", value
            char = source.read(1)
        elif char.isalnum() or char in "._-$":
            word = ""
            while char.isalnum() or char in "._-$":
                word += char
                char = source.read(1)
            yield "word", word
        else:
            yield "sign", char
            char = source.read(1)


# The connection.


def test_without_security() -> None:
    assert java(client_id="shop") == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "PLAINTEXT",
        "client.id": "shop",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": "false",
    }


@pytest.mark.parametrize(
    ("given_address", "expected"),
    [
        ("kafka", "kafka:9092"),
        ("a:1, b ,SASL_SSL://c:3", "a:1,b:9092,SASL_SSL://c:3"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:7", "[::1]:7"),
        ("10.0.0.1", "10.0.0.1:9092"),
    ],
)
def test_every_address_gets_a_port(given_address: str, expected: str) -> None:
    assert java(bootstrap_servers=given_address)["bootstrap.servers"] == expected


@pytest.mark.parametrize("address", ["a:b", "::1", "a:1,,b:2"])
def test_odd_addresses_are_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"bootstrap\.servers"):
        java(bootstrap_servers=address)


@pytest.mark.parametrize("protocol", ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"])
def test_protocols_are_upper_case(protocol: str) -> None:
    options = java(security_protocol=protocol, sasl_mechanism="PLAIN", sasl_username="u", sasl_password="p")
    assert options["security.protocol"] == protocol.upper()
    assert ("sasl.jaas.config" in options) == protocol.startswith("sasl")
    assert ("ssl.endpoint.identification.algorithm" in options) == protocol.endswith("ssl")


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "org.apache.kafka.common.security.scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
def test_user_and_password(mechanism: str, module: str) -> None:
    options = java(security_protocol="sasl_plaintext", sasl_mechanism=mechanism, sasl_username="u", sasl_password="p")
    assert options["sasl.mechanism"] == mechanism
    assert parse_jaas(options["sasl.jaas.config"]) == (module, {"username": "u", "password": "p"})


@pytest.mark.parametrize(
    "value",
    [
        '"; com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://evil',
        '\\" user="admin',
        "\\",
        '\\\\"',
        "line\nbreak\r\n",
        "tab\tü€😀'=;{}",
        "// no comment",
        "\\061",
    ],
)
def test_no_value_gets_out_of_its_string(value: str) -> None:
    options = java(security_protocol="sasl_ssl", sasl_mechanism="PLAIN", sasl_username=f"u{value}", sasl_password=value)
    _, login = parse_jaas(options["sasl.jaas.config"])
    assert login == {"username": f"u{value}", "password": value}


@pytest.mark.slow
@given(st.text(min_size=1), st.text(min_size=1))
def test_any_value_comes_back_from_jaas(username: str, password: str) -> None:
    options = java(
        security_protocol="sasl_ssl", sasl_mechanism="SCRAM-SHA-512", sasl_username=username, sasl_password=password
    )
    _, login = parse_jaas(options["sasl.jaas.config"])
    assert login == {"username": username, "password": password}


@pytest.mark.slow
@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1))
def test_any_value_comes_back_from_jaas_with_oidc(client: str, secret: str, scope: str) -> None:
    changes = {
        "sasl_oauthbearer_client_id": client,
        "sasl_oauthbearer_client_secret": secret,
        "sasl_oauthbearer_scope": scope,
    }
    _, login = parse_jaas(java(**{**OIDC, **changes})["sasl.jaas.config"])
    assert login == {"clientId": client, "clientSecret": secret, "scope": scope}


def test_oidc() -> None:
    connection = connect(**OIDC, sasl_oauthbearer_scope="read", sasl_oauthbearer_extensions="logicalCluster=lkc, a=b=c")
    options = java_client_options(connection).java
    assert options["sasl.mechanism"] == "OAUTHBEARER"
    assert options["sasl.oauthbearer.token.endpoint.url"] == "https://login/token"
    package = "org.apache.kafka.common.security.oauthbearer"
    assert options["sasl.login.callback.handler.class"] == f"{package}.OAuthBearerLoginCallbackHandler"
    assert parse_jaas(options["sasl.jaas.config"]) == (
        f"{package}.OAuthBearerLoginModule",
        {
            "clientId": "me",
            "clientSecret": "sesame",
            "scope": "read",
            "extension_logicalCluster": "lkc",
            "extension_a": "b=c",
        },
    )
    assert java_system_properties(connection) == {
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": "https://login/token"
    }
    assert java_system_properties(connect()) == {}


def test_kerberos() -> None:
    options = java(**KERBEROS, sasl_kerberos_service_name="svc", sasl_kerberos_min_time_before_relogin=5000)
    assert options["sasl.mechanism"] == "GSSAPI"
    assert options["sasl.kerberos.service.name"] == "svc"
    assert options["sasl.kerberos.min.time.before.relogin"] == "5000"
    assert parse_jaas(options["sasl.jaas.config"]) == (
        "com.sun.security.auth.module.Krb5LoginModule",
        {"useKeyTab": "true", "storeKey": "true", "keyTab": "/k", "principal": "p@R"},
    )


def test_kerberos_has_the_defaults_of_librdkafka() -> None:
    options = java(security_protocol="sasl_ssl", sasl_kerberos_keytab="/k")
    assert options["sasl.kerberos.service.name"] == "kafka"
    assert parse_jaas(options["sasl.jaas.config"])[1]["principal"] == "kafkaclient"


# TLS.


@pytest.mark.parametrize(("given_value", "expected"), [(None, "https"), ("https", "https"), ("none", "")])
def test_the_name_of_the_broker_is_checked(given_value: str | None, expected: str) -> None:
    options = java(security_protocol="ssl", ssl_endpoint_identification_algorithm=given_value)
    assert options["ssl.endpoint.identification.algorithm"] == expected


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str, str], str]:
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_the_ca_as_a_file(files: Callable[[str, str], str]) -> None:
    location = files("ca.pem", CERTIFICATE)
    options = java(security_protocol="ssl", ssl_ca_location=location)
    assert options["ssl.truststore.type"] == "PEM"
    assert options["ssl.truststore.location"] == location


def test_the_ca_as_text() -> None:
    options = java(security_protocol="ssl", ssl_ca_pem=f"a comment\n{CERTIFICATE}{CERTIFICATE}")
    assert options["ssl.truststore.type"] == "PEM"
    assert options["ssl.truststore.certificates"] == CERTIFICATE * 2


def test_without_a_ca_the_own_ones_of_the_jvm_are_used() -> None:
    assert not [name for name in java(security_protocol="ssl") if "truststore" in name]


def test_certificate_and_key_as_files(files: Callable[[str, str], str]) -> None:
    options = java(
        security_protocol="ssl",
        ssl_certificate_location=files("c.pem", CERTIFICATE * 2),
        ssl_key_location=files("k.pem", f"Bag Attributes\n{KEY}"),
        ssl_key_password="not needed",
    )
    assert options["ssl.keystore.type"] == "PEM"
    assert options["ssl.keystore.certificate.chain"] == CERTIFICATE * 2
    assert options["ssl.keystore.key"] == KEY
    assert "ssl.key.password" not in options, "Java would try to decrypt a key that is not encrypted"


def test_certificate_and_key_as_text() -> None:
    options = java(
        security_protocol="ssl", ssl_certificate_pem=CERTIFICATE, ssl_key_pem=ENCRYPTED_KEY, ssl_key_password="p"
    )
    assert options["ssl.keystore.key"] == ENCRYPTED_KEY
    assert options["ssl.key.password"] == "p"


def test_certificate_and_key_in_one_file_stay_there(files: Callable[[str, str], str]) -> None:
    both = files("both.pem", CERTIFICATE + KEY)
    options = java(security_protocol="ssl", ssl_certificate_location=both, ssl_key_location=both)
    assert options["ssl.keystore.location"] == both
    assert "ssl.keystore.key" not in options


def test_a_keystore() -> None:
    options = java(security_protocol="ssl", ssl_keystore_location="/k.p12", ssl_keystore_password="p")
    assert options["ssl.keystore.type"] == "PKCS12"
    assert options["ssl.keystore.location"] == "/k.p12"
    assert options["ssl.keystore.password"] == "p"


# What is refused.


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"security_protocol": "sasl_ssl", "sasl_mechanism": "PLAIN"}, "sasl.username and sasl.password"),
        ({"security_protocol": "sasl_ssl"}, "sasl.kerberos.keytab"),
        ({**KERBEROS, "sasl_kerberos_kinit_cmd": CANARY}, "sasl.kerberos.kinit.cmd"),
        ({**KERBEROS, "sasl_kerberos_min_time_before_relogin": 0}, "before.relogin=0"),
        ({**OIDC, "oauth_cb": lambda config: (config, 1.0)}, "oauth_cb"),
        ({**OIDC, "enable_sasl_oauthbearer_unsecure_jwt": True}, "unsecure.jwt"),
        ({**OIDC, "sasl_oauthbearer_config": CANARY}, "sasl.oauthbearer.config"),
        ({**OIDC, "sasl_oauthbearer_method": None}, "sasl.oauthbearer.method=oidc"),
        ({**OIDC, "sasl_oauthbearer_method": "default"}, "sasl.oauthbearer.method=oidc"),
        ({**OIDC, "sasl_oauthbearer_client_secret": None}, "sasl.oauthbearer.client.secret"),
        ({**OIDC, "sasl_oauthbearer_token_endpoint_url": None}, "token.endpoint.url"),
        ({**OIDC, "sasl_oauthbearer_extensions": CANARY}, "sasl.oauthbearer.extensions"),
        ({**OIDC, "sasl_oauthbearer_extensions": 'a" x=1'}, "sasl.oauthbearer.extensions"),
        ({"ssl_cipher_suites": CANARY}, "ssl.cipher.suites"),
        ({"ssl_curves_list": CANARY}, "ssl.curves.list"),
        ({"ssl_sigalgs_list": CANARY}, "ssl.sigalgs.list"),
        ({"ssl_ca_certificate_stores": CANARY}, "ssl.ca.certificate.stores"),
        ({"ssl_crl_location": CANARY}, "ssl.crl.location"),
        ({"ssl_providers": CANARY}, "ssl.providers"),
        ({"ssl_engine_location": CANARY}, "ssl.engine.location"),
        ({"ssl_engine_id": CANARY}, "ssl.engine.id"),
        ({"enable_ssl_certificate_verification": False}, "enable.ssl.certificate.verification=false"),
        ({"ssl_ca_location": "/x", "ssl_ca_pem": CANARY}, "ssl.ca.location and ssl.ca.pem"),
        ({"ssl_ca_location": "probe"}, "ssl.ca.location must be a file"),
        ({"ssl_ca_location": "/"}, "ssl.ca.location must be a file"),
        ({"ssl_ca_location": "/no/such/file"}, "ssl.ca.location: /no/such/file cannot be read"),
        ({"ssl_ca_pem": CANARY}, "ssl.ca.pem holds no certificate"),
        ({"ssl_certificate_pem": CERTIFICATE}, "a client certificate needs"),
        ({"ssl_key_pem": KEY}, "a client certificate needs"),
        ({"ssl_certificate_pem": CERTIFICATE, "ssl_key_pem": CANARY}, "ssl.key.pem holds no private key"),
        ({"ssl_certificate_pem": CERTIFICATE, "ssl_key_pem": RSA_KEY}, "openssl pkcs8 -topk8"),
        ({"ssl_certificate_pem": CERTIFICATE, "ssl_key_pem": ENCRYPTED_KEY}, "set ssl.key.password"),
        ({"ssl_certificate_pem": CANARY, "ssl_key_pem": KEY}, "ssl.certificate.pem holds no certificate"),
        ({"ssl_certificate_pem": CERTIFICATE, "ssl_key_location": "/no"}, "ssl.key.location: /no cannot be read"),
        ({"ssl_keystore_location": "/k", "ssl_key_pem": KEY}, "ssl.keystore.location excludes"),
    ],
)
def test_what_java_cannot_do_is_refused_by_name(values: dict[str, Any], named: str) -> None:
    connection = connect(**{"security_protocol": "ssl", **values})
    with pytest.raises(ConfigurationError) as caught:
        java_client_options(connection)
    assert named in str(caught.value)
    assert CANARY not in str(caught.value)


def test_every_field_of_a_connection_is_mapped_or_refused() -> None:
    """A field that is added to `ConnectionConfig` must not be dropped here."""
    pem = {"ssl_ca_pem": CERTIFICATE, "ssl_certificate_pem": CERTIFICATE, "ssl_key_pem": KEY}
    special: dict[str, Any] = {
        **pem,
        "oauth_cb": lambda config: (config, 1.0),
        "enable_sasl_oauthbearer_unsecure_jwt": True,
        "enable_ssl_certificate_verification": False,
        "ssl_endpoint_identification_algorithm": "none",
        "sasl_kerberos_min_time_before_relogin": 1,
        "sasl_oauthbearer_extensions": "a=b",
    }
    # The password of a key that is not encrypted, and of a keystore that is not given, have no effect anywhere.
    needs_more = {"ssl_key_password", "ssl_keystore_password"}
    bases: dict[str, dict[str, Any]] = {
        "ssl": {"security_protocol": "ssl"},
        "oidc": OIDC,
        "kerberos": KERBEROS,
        "plain": {
            "security_protocol": "sasl_plaintext",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "u",
            "sasl_password": "p",
        },
    }
    chosen = {"sasl_mechanism", "sasl_oauthbearer_method", "security_protocol"}
    for field in set(ConnectionConfig.model_fields) - needs_more - chosen:
        effects = []
        for base in bases.values():
            before = java_client_options(connect(**base)).java
            try:
                after = java_client_options(connect(**{**base, field: special.get(field, "other:1")})).java
            except ConfigurationError:
                effects.append(True)
            else:
                effects.append(after != before)
        assert any(effects), f"{field} is dropped silently"


# The options of a consumer.

MAPPED = [
    ("fetch.min.bytes", 1, {"fetch.min.bytes": "1"}),
    ("fetch.wait.max.ms", 50, {"fetch.max.wait.ms": "50"}),
    ("fetch.max.bytes", 10, {"fetch.max.bytes": "10"}),
    ("max.partition.fetch.bytes", 10, {"max.partition.fetch.bytes": "10"}),
    ("fetch.message.max.bytes", 10, {"max.partition.fetch.bytes": "10"}),
    ("isolation.level", "read_uncommitted", {"isolation.level": "read_uncommitted"}),
    ("socket.receive.buffer.bytes", 9, {"receive.buffer.bytes": "9"}),
    ("socket.receive.buffer.bytes", 0, {"receive.buffer.bytes": "-1"}),
    ("socket.send.buffer.bytes", 9, {"send.buffer.bytes": "9"}),
    ("socket.send.buffer.bytes", "0", {"send.buffer.bytes": "-1"}),
    ("socket.timeout.ms", 9000, {"request.timeout.ms": "9000"}),
    ("socket.connection.setup.timeout.ms", 9, {"socket.connection.setup.timeout.ms": "9"}),
    ("reconnect.backoff.ms", 9, {"reconnect.backoff.ms": "9"}),
    ("reconnect.backoff.max.ms", 9, {"reconnect.backoff.max.ms": "9"}),
    ("retry.backoff.ms", 9, {"retry.backoff.ms": "9"}),
    ("retry.backoff.max.ms", 9, {"retry.backoff.max.ms": "9"}),
    ("metadata.max.age.ms", 9, {"metadata.max.age.ms": "9"}),
    ("metadata.recovery.strategy", "none", {"metadata.recovery.strategy": "none"}),
    ("client.rack", "r", {"client.rack": "r"}),
    ("client.id", "c", {"client.id": "c"}),
    ("client.dns.lookup", "use_all_dns_ips", {"client.dns.lookup": "use_all_dns_ips"}),
    ("check.crcs", True, {"check.crcs": "true"}),
    ("connections.max.idle.ms", 0, {"connections.max.idle.ms": "-1"}),
    ("connections.max.idle.ms", 5, {"connections.max.idle.ms": "5"}),
    ("allow.auto.create.topics", True, {"allow.auto.create.topics": "true"}),
    ("enable.metrics.push", False, {"enable.metrics.push": "false"}),
    ("security.protocol", "ssl", {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "https"}),
    ("session.timeout.ms", 9, {}),
    ("heartbeat.interval.ms", 9, {}),
    ("max.poll.interval.ms", 9, {}),
    ("group.instance.id", "i", {}),
    ("partition.assignment.strategy", "range", {}),
    ("group.protocol", "classic", {}),
    ("topic.metadata.refresh.interval.ms", 9, {}),
    ("statistics.interval.ms", 9, {}),
    ("debug", "cgrp", {}),
    ("log_level", 3, {}),
    ("receive.message.max.bytes", 9, {}),
    ("socket.keepalive.enable", True, {}),
    ("socket.nagle.disable", "true", {}),
    ("broker.address.family", "any", {}),
    ("enable.partition.eof", False, {}),
]


@pytest.mark.parametrize(("option", "value", "expected"), MAPPED)
def test_options_of_the_consumer(option: str, value: object, expected: dict[str, str]) -> None:
    plain = java_client_options(connect())
    options = java_client_options(connect(), {option: value})
    changed = {name: text for name, text in options.java.items() if plain.java.get(name) != text}
    assert changed == expected
    assert options.member == {**plain.member, option: value}


def test_both_consumers_read_what_is_committed() -> None:
    options = java_client_options(connect())
    assert options.java["isolation.level"] == "read_committed"
    assert options.member == {"isolation.level": "read_committed"}


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("enable.auto.commit", True, "Application(commit_interval=...)"),
        ("enable.auto.offset.store", False, "Application(commit_interval=...)"),
        ("auto.commit.interval.ms", 1, "Application(commit_interval=...)"),
        ("auto.offset.reset", "earliest", "Application(auto_offset_reset=...)"),
        ("group.id", "g", "Application(consumer_group=...)"),
        ("bootstrap.servers", "a:1", "Application(broker_address=...)"),
        ("metadata.broker.list", "a:1", "Application(broker_address=...)"),
        ("error_cb", print, "Application(on_consumer_error=...)"),
        ("stats_cb", print, "stats_cb"),
        ("queued.min.messages", 1, "fetch.max.bytes"),
        ("queued.max.messages.kbytes", 1, "fetch.max.bytes"),
        ("fetch.error.backoff.ms", 1, "retry.backoff.ms"),
        ("broker.address.family", "v6", "java.net.preferIPv4Stack"),
        ("socket.nagle.disable", False, "TCP_NODELAY"),
        ("socket.keepalive.enable", False, "keeps connections alive"),
        ("enable.partition.eof", True, "enable.partition.eof"),
        ("partition.assignment.strategy", "cooperative-sticky", "range"),
        ("group.protocol", "consumer", "use Application(group_protocol=...)"),
        ("group.remote.assignor", "range", "group_protocol='consumer'"),
        ("isolation.level", CANARY, "read_committed or read_uncommitted"),
        ("socket.max.fails", 1, "deprecated"),
        ("plugin.library.paths", "/evil.so", "no such option"),
        ("no.such.option", CANARY, "no.such.option is unknown"),
        ("max.poll.records", 1, "max.poll.records is refused"),
        ("interceptor.classes", CANARY, "interceptor.classes is unknown"),
        ("sasl.jaas.config", CANARY, "sasl.jaas.config is unknown"),
        ("ssl.truststore.location", CANARY, "ssl.truststore.location is unknown"),
        ("sasl.oauthbearer.assertion.file", CANARY, "is unknown"),
        ("linger.ms", 5, "linger.ms is unknown"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(option: str, value: object, named: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        java_client_options(connect(), {option: value})
    text = str(caught.value)
    assert option in text
    assert named in text
    assert CANARY not in text


def test_every_rule_is_for_an_option_that_librdkafka_knows() -> None:
    for option in _RULES:
        if option.endswith("_cb") or option == "on_commit":
            continue
        with pytest.raises((KafkaException, ValueError)) as caught:
            Consumer({"group.id": "g", "log_level": 0, option: "\x01", "isolation.level": "\x01"})
        assert "No such configuration property" not in str(caught.value), option


def test_connection_options_of_the_consumer_complete_the_connection() -> None:
    options = java_client_options(
        connect(security_protocol="SASL_SSL"),
        {"sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p", "security.protocol": "sasl_ssl"},
    )
    assert parse_jaas(options.java["sasl.jaas.config"])[1] == {"username": "u", "password": "p"}
    assert options.member["sasl.password"] == "p"


@pytest.mark.parametrize(
    ("option", "value"), [("sasl.password", CANARY), ("security.protocol", "ssl"), ("client.id", "other")]
)
def test_the_connection_may_not_be_contradicted(option: str, value: str) -> None:
    connection = connect(security_protocol="sasl_ssl", sasl_password="x", client_id="shop")
    with pytest.raises(ConfigurationError, match="conflicts") as caught:
        java_client_options(connection, {option: value})
    assert option in str(caught.value)
    assert CANARY not in str(caught.value)


def test_the_result_keeps_its_secrets() -> None:
    options = java_client_options(
        connect(security_protocol="sasl_ssl", sasl_mechanism="PLAIN", sasl_username="u"), {"sasl.password": CANARY}
    )
    assert CANARY in options.java["sasl.jaas.config"]
    assert CANARY not in repr(options) + str(options)
    assert "sasl.jaas.config" in repr(options)
    with pytest.raises(SecretsNotPicklableError):
        pickle.dumps(options)


def test_what_is_given_is_not_changed() -> None:
    extra = {"fetch.min.bytes": 1, "session.timeout.ms": 10}
    before = copy.copy(extra)
    java_client_options(connect(), extra)
    assert extra == before


def test_members_of_the_protocol_consumer_have_their_own_options() -> None:
    connection = ConnectionConfig(bootstrap_servers="kafka")
    given = {"group.remote.assignor": "range", "max.poll.interval.ms": 60_000, "group.protocol": "consumer"}
    options = java_client_options(connection, given, "consumer")
    assert options.member == {**given, "isolation.level": "read_committed"}
    assert not {"group.protocol", "group.remote.assignor"} & options.java.keys()
    assert java_client_options(connection, None, "consumer").member["group.protocol"] == "consumer"
    for name, value, setting in (
        ("session.timeout.ms", 6_000, "group.consumer.session.timeout.ms"),
        ("heartbeat.interval.ms", 500, "group.consumer.heartbeat.interval.ms"),
        ("partition.assignment.strategy", "range", "group.consumer.assignors"),
        ("group.remote.assignor", "uniform", "range"),
        ("group.protocol", "classic", "group_protocol="),
    ):
        with pytest.raises(ConfigurationError, match=re.escape(setting)):
            java_client_options(connection, {name: value}, "consumer")
