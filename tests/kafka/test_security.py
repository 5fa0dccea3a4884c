"""The same connection works through librdkafka and through the Java client that Spark uses, or fails in both.

One broker with a SASL_SSL listener (PLAIN and SCRAM) and an SSL listener that demands a client certificate.
"""

import logging
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from streamrt.errors import ConfigurationError, KafkaBrokerUnavailableError
from streamrt.jvm.jars import fetch_jars
from streamrt.jvm.java import find_java
from streamrt.kafka import ConnectionConfig, Consumer, Producer, TopicAdmin, TopicConfig
from streamrt.kafka.java_options import java_client_options
from streamrt.testing.kafka import EmbeddedKafka
from tests.command_line import streamrt

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="the certificates are made with openssl"),
]

USER = "shop"
# Everything that JAAS, properties files and URLs treat specially.
PASSWORD = "canary\"\\; x='1' // #é€😀 \\\"end"
SCRAM_PASSWORD = 'canary-scram "\\\\" ; required'
KEY_PASSWORD = "canary-key"


@dataclass
class Definition:
    name: str
    config: TopicConfig | None = None


class Pki:
    """Certificates of one authority, made with openssl."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory / name
        self.directory.mkdir()
        self.run(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", "ca.key", "-out", "ca.pem"),
        )
        self.ca = self.directory / "ca.pem"

    def run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)

    def issue(self, name: str, extensions: str) -> None:
        """Make `name.pem`, `name.key`, two encrypted forms of it, `name.p12` and `name-both.pem`."""
        (self.directory / "extensions").write_text(extensions)
        self.run(
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "csr"
        )
        self.run(
            *("x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"),
            *("-extfile", "extensions", "-out", f"{name}.pem"),
        )
        out = ("-passout", f"pass:{KEY_PASSWORD}")
        self.run("pkcs8", "-topk8", "-in", f"{name}.key", "-out", f"{name}-pbes2.key", *out)
        old = ("-v1", "PBE-SHA1-3DES")
        self.run("pkcs8", "-topk8", *old, "-in", f"{name}.key", "-out", f"{name}-encrypted.key", *out)
        self.run("pkcs12", "-export", "-in", f"{name}.pem", "-inkey", f"{name}.key", "-out", f"{name}.p12", *out)
        both = self.read(f"{name}.pem") + self.read(f"{name}.key")
        (self.directory / f"{name}-both.pem").write_text(both)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def read(self, name: str) -> str:
        return (self.directory / name).read_text()


@dataclass
class Secured:
    """A broker, the certificates, a topic with one record, and a JVM with Spark's Kafka client."""

    broker: EmbeddedKafka
    pki: Pki
    other_pki: Pki
    topic: str
    gateway: JavaGateway

    def sasl(self, mechanism: str = "PLAIN", **changes: Any) -> ConnectionConfig:
        values: dict[str, Any] = {
            "bootstrap_servers": self.broker.address("SASL_SSL"),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "sasl_username": USER,
            "sasl_password": PASSWORD if mechanism == "PLAIN" else SCRAM_PASSWORD,
            "ssl_ca_location": str(self.pki.ca),
        }
        return ConnectionConfig(**{**values, **changes})

    def tls(self, **changes: Any) -> ConnectionConfig:
        values: dict[str, Any] = {
            "bootstrap_servers": self.broker.address("SSL"),
            "security_protocol": "ssl",
            "ssl_ca_location": str(self.pki.ca),
        }
        return ConnectionConfig(**{**values, **changes})

    def read_with_librdkafka(self, connection: ConnectionConfig) -> bytes:
        TopicAdmin(connection).wait_for_broker(10)
        with Consumer(connection, f"g-{uuid.uuid4().hex}", "earliest", auto_commit_enable=False) as consumer:
            consumer.assign([ConfluentTopicPartition(self.topic, 0, 0)])
            message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert isinstance(value, bytes)
        return value

    def read_with_java(self, connection: ConnectionConfig, seconds: int = 60) -> bytes:
        jvm = self.gateway.jvm
        options = jvm.java.util.HashMap()
        for name, value in java_client_options(connection).java.items():
            options.put(name, value)
        options.put("default.api.timeout.ms", str(seconds * 1_000))
        options.put("request.timeout.ms", str(seconds * 500))
        deserializer = jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer()
        consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(options, deserializer, deserializer)
        try:
            partition = jvm.org.apache.kafka.common.TopicPartition(self.topic, 0)
            partitions = jvm.java.util.List.of(partition)
            consumer.assign(partitions)
            consumer.seekToBeginning(partitions)
            # Throws what is wrong, or waits no longer than default.api.timeout.ms.
            assert consumer.endOffsets(partitions)[partition] == 1
            records = consumer.poll(jvm.java.time.Duration.ofSeconds(20))
            return bytes(records.iterator().next().value())
        finally:
            consumer.close(jvm.java.time.Duration.ZERO)


@pytest.fixture(scope="module")
def gateway() -> Iterator[JavaGateway]:
    jars = [*fetch_jars("spark"), *Path(pyspark.__file__).parent.joinpath("jars").glob("*.jar")]
    py4j = next(jar for jar in jars if jar.name.startswith("py4j"))
    port, token = launch_gateway(
        jarpath=str(py4j),
        classpath=":".join(
            str(jar) for jar in jars if jar.name.startswith(("kafka-clients", "slf4j-api", "slf4j-nop"))
        ),
        java_path=str(find_java().executable),
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    yield gateway
    gateway.shutdown()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, gateway: JavaGateway) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("pki")
    pki, other = Pki(directory, "ours"), Pki(directory, "theirs")
    pki.issue("broker", "subjectAltName=IP:127.0.0.1\n")
    for authority in (pki, other):
        authority.issue("client", "extendedKeyUsage=clientAuth\n")
    package = "org.apache.kafka.common.security"
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    config = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": pki.path("broker-both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pki.ca),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{package}.plain.PlainLoginModule required user_{USER}="{quoted}";'
        ),
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{package}.scram.ScramLoginModule required;",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{package}.scram.ScramLoginModule required;",
    }
    with EmbeddedKafka(config=config, extra_listeners=("SASL_SSL", "SSL")) as broker:
        topic = f"secured-{uuid.uuid4().hex[:12]}"
        TopicAdmin(broker.bootstrap_servers).create_topics([Definition(topic)])
        with Producer(broker.bootstrap_servers) as producer:
            producer.produce(topic, value=b"value")
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        changes = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), SCRAM_PASSWORD.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for change in changes:
            client.alter_user_scram_credentials([change])[USER].result(300)
        yield Secured(broker, pki, other, topic, gateway)


CONNECTIONS: dict[str, Callable[[Secured], ConnectionConfig]] = {
    "PLAIN": lambda s: s.sasl(),
    "SCRAM-SHA-256": lambda s: s.sasl("scram-sha-256"),
    "SCRAM-SHA-512": lambda s: s.sasl("SCRAM-SHA-512"),
    "CA as text": lambda s: s.sasl(ssl_ca_location=None, ssl_ca_pem=s.pki.read("ca.pem")),
    "host name not checked": lambda s: s.sasl(
        bootstrap_servers=s.broker.address("SASL_SSL").replace("127.0.0.1", "localhost"),
        ssl_endpoint_identification_algorithm="none",
    ),
    "certificate in files": lambda s: s.tls(
        ssl_certificate_location=s.pki.path("client.pem"), ssl_key_location=s.pki.path("client.key")
    ),
    "certificate as text": lambda s: s.tls(
        ssl_certificate_pem=s.pki.read("client.pem"), ssl_key_pem=s.pki.read("client.key")
    ),
    "encrypted key": lambda s: s.tls(
        ssl_certificate_location=s.pki.path("client.pem"),
        ssl_key_location=s.pki.path("client-encrypted.key"),
        ssl_key_password=KEY_PASSWORD,
    ),
    "password for an open key": lambda s: s.tls(
        ssl_certificate_location=s.pki.path("client.pem"),
        ssl_key_location=s.pki.path("client.key"),
        ssl_key_password=KEY_PASSWORD,
    ),
    "one file": lambda s: s.tls(
        ssl_certificate_location=s.pki.path("client-both.pem"), ssl_key_location=s.pki.path("client-both.pem")
    ),
    "PKCS12": lambda s: s.tls(ssl_keystore_location=s.pki.path("client.p12"), ssl_keystore_password=KEY_PASSWORD),
}

FAILING: dict[str, Callable[[Secured], ConnectionConfig]] = {
    "other CA": lambda s: s.sasl(ssl_ca_location=str(s.other_pki.ca)),
    "other CA as text": lambda s: s.sasl(ssl_ca_location=None, ssl_ca_pem=s.other_pki.read("ca.pem")),
    "no CA": lambda s: s.sasl(ssl_ca_location=None),
    "host name": lambda s: s.sasl(bootstrap_servers=s.broker.address("SASL_SSL").replace("127.0.0.1", "localhost")),
    "password": lambda s: s.sasl(sasl_password=f"{PASSWORD}x"),
    "SCRAM password": lambda s: s.sasl("SCRAM-SHA-512", sasl_password=PASSWORD),
    "no client certificate": lambda s: s.tls(),
    "client certificate of another CA": lambda s: s.tls(
        ssl_certificate_location=s.other_pki.path("client.pem"), ssl_key_location=s.other_pki.path("client.key")
    ),
}


@pytest.mark.parametrize("name", CONNECTIONS)
def test_what_works_works_in_both(secured: Secured, name: str, caplog: pytest.LogCaptureFixture) -> None:
    connection = CONNECTIONS[name](secured)
    # Our own loggers only: at DEBUG, py4j logs all that it sends to the JVM.
    with caplog.at_level(logging.DEBUG, "streamrt"):
        assert secured.read_with_librdkafka(connection) == b"value"
        assert secured.read_with_java(connection) == b"value"
    assert "canary" not in caplog.text


@pytest.mark.parametrize("name", FAILING)
def test_what_fails_fails_in_both(secured: Secured, name: str, caplog: pytest.LogCaptureFixture) -> None:
    connection = FAILING[name](secured)
    with (
        caplog.at_level(logging.DEBUG, "streamrt"),
        pytest.raises(KafkaBrokerUnavailableError, match="the client reports") as caught,
    ):
        TopicAdmin(connection).wait_for_broker(2)
    assert connection.bootstrap_servers in str(caught.value)
    assert "canary" not in str(caught.value) + caplog.text
    with pytest.raises(Py4JJavaError) as failure:
        secured.read_with_java(connection, seconds=10)
    assert "canary" not in str(failure.value)


def test_a_connection_for_another_process_works(secured: Secured) -> None:
    connection = ConnectionConfig.from_secret_json(secured.sasl().to_secret_json())
    assert secured.read_with_librdkafka(connection) == b"value"


def test_a_key_that_java_cannot_decrypt_is_refused_beforehand(secured: Secured) -> None:
    connection = secured.tls(
        ssl_certificate_location=secured.pki.path("client.pem"),
        ssl_key_location=secured.pki.path("client-pbes2.key"),
        ssl_key_password=KEY_PASSWORD,
    )
    assert secured.read_with_librdkafka(connection) == b"value"
    with pytest.raises(ConfigurationError, match=r"PBES2.*ssl\.keystore\.location"):
        java_client_options(connection)


def test_the_command_line_logs_in_with_a_file(
    secured: Secured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "client.properties"

    def lines(connection: ConnectionConfig) -> str:
        return "".join(f"{name}={value}\n" for name, value in connection.as_librdkafka_dict().items())

    with caplog.at_level(logging.DEBUG):
        path.write_text(lines(secured.sasl()))
        assert secured.topic in streamrt("topics", "list", "--config", path).out
        assert streamrt("consume", secured.topic, "--config", path, "--values").out == "value\n"
        checked = streamrt("doctor", "--config", path, "--state-dir", tmp_path)
        assert "ok       broker version: Kafka 4.4" in checked.out
        path.write_text(lines(secured.sasl(sasl_password=f"{PASSWORD}x")))
        refused = streamrt("topics", "list", "--config", path, "--timeout", 2)
        assert "correct the security settings" in refused.sentence
    assert "canary" not in checked.out + refused.err + caplog.text
