"""Static members that have ended are removed from their group without a JVM."""

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from streamrt.kafka import ConnectionConfig, TopicAdmin
from streamrt.kafka.membership.removal import remove_static_members
from streamrt.testing import EmbeddedKafka
from tests.support import Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def leave_behind(connection: ConnectionConfig, group: str, topic: str, *instance_ids: str) -> None:
    """Let static members join a group and end; they stay in it."""
    for instance_id in instance_ids:
        options = {"group.id": group, "group.instance.id": instance_id, "session.timeout.ms": 45_000}
        consumer = Consumer({**connection.as_librdkafka_dict(), **options})
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), what="the assignment")  # noqa: B023
        consumer.close()


def members_of(connection: ConnectionConfig, group: str) -> int:
    admin = TopicAdmin(connection)
    try:
        return len(admin.group_members(group, 30))
    finally:
        admin.close()


def test_members_that_have_ended_are_removed_and_others_stay(kafka: Kafka) -> None:
    connection, group = ConnectionConfig(bootstrap_servers=kafka.address), unique("group")
    leave_behind(connection, group, kafka.topic("in"), "shop-0")
    assert members_of(connection, group) == 1
    remove_static_members(connection, group, ["shop-1"])
    assert members_of(connection, group) == 1
    remove_static_members(connection, group, ["shop-0", "shop-1"])
    assert members_of(connection, group) == 0


def test_members_are_removed_with_a_login_that_no_log_has(
    strict_kafka: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    opened, group, topic = (
        ConnectionConfig(bootstrap_servers=strict_kafka.bootstrap_servers),
        unique("group"),
        unique("in"),
    )
    rights = AclBinding(
        ResourceType.GROUP,
        group,
        ResourcePatternType.LITERAL,
        "User:writer",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient(opened.as_librdkafka_dict())
    for future in (*admin.create_topics([NewTopic(topic, 1)]).values(), *admin.create_acls([rights]).values()):
        future.result(300)
    leave_behind(opened, group, topic, "shop-0")
    login = ConnectionConfig(
        bootstrap_servers=strict_kafka.address("SASL_PLAINTEXT"),
        security_protocol="sasl_plaintext",
        sasl_mechanism="PLAIN",
        sasl_username="writer",
        sasl_password="canary",
    )
    caplog.set_level("DEBUG")
    caplog.set_level("DEBUG", "kafka.admin.client")
    remove_static_members(login, group, ["shop-0"])
    assert members_of(opened, group) == 0
    assert not [record for record in caplog.records if record.name.startswith("kafka")]
    assert "canary" not in caplog.text


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"security_protocol": "sasl_ssl", "sasl_mechanism": "OAUTHBEARER"}, "sasl.mechanism=OAUTHBEARER"),
        ({"security_protocol": "ssl", "ssl_keystore_location": "keys.p12"}, "ssl.keystore.location"),
    ],
)
def test_a_connection_that_the_client_cannot_make_is_said(
    options: dict[str, str], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    remove_static_members(ConnectionConfig(bootstrap_servers="127.0.0.1:9", **options), "shop", ["shop-0"])
    (told,) = caplog.messages
    assert "stay in group shop until their sessions time out" in told
    assert named in told


def test_brokers_that_are_away_hold_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    remove_static_members(ConnectionConfig(bootstrap_servers="127.0.0.1:9"), "shop", ["shop-0"])
    (told,) = caplog.messages
    assert "stay in group shop until their sessions time out" in told
