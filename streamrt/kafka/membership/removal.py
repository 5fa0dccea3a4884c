"""Removes static members from a consumer group, which librdkafka cannot, with the client `kafka-python`.

A static member that stops keeps its partitions until its session times out, so that a restart finds them again; after a
clean stop the other instances would wait for that. On Spark, Java's client does the same.
"""

import contextlib
import logging
import ssl
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from streamrt.kafka.connection import ConnectionConfig
from streamrt.secret import masked

__all__ = ["remove_static_members"]

logger = logging.getLogger("streamrt")

_CLIENT = "kafka"
_TIMEOUT_MS = 5_000
_TRANSLATED = frozenset(
    {
        "bootstrap_servers",
        "client_id",
        "security_protocol",
        "sasl_mechanism",
        "sasl_username",
        "sasl_password",
        "ssl_ca_location",
        "ssl_ca_pem",
        "ssl_certificate_location",
        "ssl_key_location",
        "ssl_key_password",
        "enable_ssl_certificate_verification",
        "ssl_endpoint_identification_algorithm",
    }
)
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def remove_static_members(connection: ConnectionConfig, group: str, instance_ids: Collection[str]) -> None:
    """Remove static members from their group. If that fails, the log says so: the session timeout has the same effect later.

    Args:
        connection: connection to the cluster.
        group: the consumer group.
        instance_ids: `group.instance.id` of each member.
    """
    unknown = find_untranslatable(connection)
    if unknown:
        _tell_they_stay(group, f"the client that could remove them has no equivalent of {', '.join(unknown)}")
        return
    try:
        # Imported here because only instances that stop need it.
        from kafka.admin import KafkaAdminClient, MemberToRemove

        with _keep_secrets_out_of_logs():
            client = KafkaAdminClient(**_client_options(connection))
            try:
                client.remove_group_members(group, [MemberToRemove(group_instance_id=each) for each in instance_ids])
            finally:
                client.close()
    except Exception as error:  # noqa: BLE001 - stopping continues after any error, such as another module called kafka
        _tell_they_stay(group, masked(f"{type(error).__name__}: {error}"))


def _tell_they_stay(group: str, why: str) -> None:
    logger.info("the members of this instance stay in group %s until their sessions time out: %s", group, why)


@contextlib.contextmanager
def _keep_secrets_out_of_logs() -> Iterator[None]:
    """Silence the client, which logs its configuration and its requests, whatever levels its loggers have."""
    names = [name for name in logging.root.manager.loggerDict if name == _CLIENT or name.startswith(f"{_CLIENT}.")]
    silenced = [found for found in map(logging.getLogger, names) if not found.disabled]
    for each in silenced:
        each.disabled = True
    try:
        yield
    finally:
        for each in silenced:
            each.disabled = False


def find_untranslatable(connection: ConnectionConfig) -> list[str]:
    """Return the options of a connection, with librdkafka's names, that the client has no equivalent of.

    Example:
        >>> find_untranslatable(ConnectionConfig(bootstrap_servers="kafka:9092"))
        []
        >>> find_untranslatable(ConnectionConfig(bootstrap_servers="kafka:9092", ssl_crl_location="revoked.pem"))
        ['ssl.crl.location']
    """
    unknown = [
        name.replace("_", ".")
        for name in type(connection).model_fields
        if getattr(connection, name) not in (None, "") and name not in _TRANSLATED
    ]
    uses_sasl = (connection.security_protocol or "").startswith("sasl_")
    if uses_sasl and (connection.sasl_mechanism or "GSSAPI") not in _MECHANISMS:
        unknown.append(f"sasl.mechanism={connection.sasl_mechanism or 'GSSAPI'}")
    return unknown


def _client_options(connection: ConnectionConfig) -> Mapping[str, Any]:
    protocol = connection.security_protocol or "plaintext"
    options: dict[str, Any] = {
        "bootstrap_servers": [address.strip() for address in connection.bootstrap_servers.split(",")],
        "security_protocol": protocol.upper(),
        "client_id": connection.client_id or "streamrt",
        "request_timeout_ms": _TIMEOUT_MS,
        "bootstrap_timeout_ms": _TIMEOUT_MS,
    }
    if protocol.startswith("sasl_"):
        password = connection.sasl_password
        options["sasl_mechanism"] = connection.sasl_mechanism
        options["sasl_plain_username"] = connection.sasl_username
        options["sasl_plain_password"] = None if password is None else password.get_secret_value()
    if protocol.endswith("ssl"):
        options["ssl_context"] = _tls_context(connection)
    return options


def _tls_context(connection: ConnectionConfig) -> ssl.SSLContext:
    pem, password, location = connection.ssl_ca_pem, connection.ssl_key_password, connection.ssl_ca_location or None
    is_directory = location is not None and Path(location).is_dir()
    context = ssl.create_default_context(
        cafile=None if is_directory else location,
        capath=location if is_directory else None,
        cadata=None if pem is None else pem.get_secret_value(),
    )
    if connection.ssl_endpoint_identification_algorithm == "none":
        context.check_hostname = False
    if connection.enable_ssl_certificate_verification is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if connection.ssl_certificate_location:
        context.load_cert_chain(
            connection.ssl_certificate_location,
            connection.ssl_key_location or None,
            None if password is None else password.get_secret_value(),
        )
    return context
