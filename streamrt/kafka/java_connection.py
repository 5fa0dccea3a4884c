"""Translation of the connection for Java's clients: JAAS for SASL, PEM for TLS.

Options that cannot be translated are refused by name, because a dropped option could leave the connection unprotected.
"""

import base64
import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from streamrt.errors import ConfigurationError
from streamrt.kafka.connection import ConnectionConfig

__all__ = ["java_connection_options", "java_system_properties"]

_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

# Defaults of librdkafka that differ from Java's.
_KERBEROS_SERVICE = "kafka"
_KERBEROS_PRINCIPAL = "kafkaclient"
_DEFAULT_PORT = "9092"

_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)
_PBES2 = bytes.fromhex("2a864886f70d01050d")
_ADDRESS = re.compile(r"(?:[A-Za-z0-9_+-]+://)?(?:\[[^\]]+\]|[^:\[\]]+)(:\d+)?")

_NO_JAVA_FORM = {
    "ssl_cipher_suites": "Java does not know OpenSSL's names of ciphers",
    "ssl_curves_list": "Java has no such option",
    "ssl_sigalgs_list": "Java has no such option",
    "ssl_ca_certificate_stores": "it names certificate stores of Windows; use ssl.ca.location",
    "ssl_crl_location": "Java's client does not accept a revocation list",
    "ssl_providers": "Java does not use OpenSSL's providers",
    "ssl_engine_location": "Java does not use OpenSSL's engines",
    "ssl_engine_id": "Java does not use OpenSSL's engines",
}


def java_connection_options(connection: ConnectionConfig) -> dict[str, str]:
    """Return the options with which Java's client reaches and trusts the same brokers as librdkafka.

    Args:
        connection: connection to the cluster.

    Returns:
        Options of Java's client, **secrets in plain text**.

    Raises:
        ConfigurationError: if an option has no equivalent; the message has its name but not its value.

    Example:
        >>> java_connection_options(ConnectionConfig(bootstrap_servers="kafka"))
        {'bootstrap.servers': 'kafka:9092', 'security.protocol': 'PLAINTEXT'}
    """
    protocol = connection.security_protocol or "plaintext"
    options = {
        "bootstrap.servers": ",".join(_with_port(part) for part in connection.bootstrap_servers.split(",")),
        "security.protocol": protocol.upper(),
    }
    if connection.client_id:
        options["client.id"] = connection.client_id
    # Options of a layer that the protocol does not use have no effect in librdkafka either.
    if _sasl_mechanism(connection) is not None:
        options.update(_sasl_options(connection))
    if protocol in ("ssl", "sasl_ssl"):
        options.update(_tls_options(connection))
    return options


def java_system_properties(connection: ConnectionConfig) -> dict[str, str]:
    """Return the system properties that each JVM needs for this connection.

    Java's client refuses token endpoints that are not on this list. Otherwise anyone who can choose the endpoint
    could make the client call any address (CVE-2025-27817).

    Args:
        connection: connection to the cluster.

    Example:
        >>> java_system_properties(ConnectionConfig(bootstrap_servers="kafka:9092"))
        {}
    """
    url = connection.sasl_oauthbearer_token_endpoint_url
    return {_ALLOWED_URLS: url} if _sasl_mechanism(connection) == "OAUTHBEARER" and url else {}


def _with_port(address: str) -> str:
    address = address.strip()
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ConfigurationError(f"bootstrap.servers: {address!r} is not an address; use host:port")
    return address if match.group(1) else f"{address}:{_DEFAULT_PORT}"


def _sasl_mechanism(connection: ConnectionConfig) -> str | None:
    if connection.security_protocol not in ("sasl_plaintext", "sasl_ssl"):
        return None
    return connection.sasl_mechanism or "GSSAPI"


def _sasl_options(connection: ConnectionConfig) -> dict[str, str]:
    mechanism = _sasl_mechanism(connection)
    options = {"sasl.mechanism": mechanism or ""}
    if mechanism == "OAUTHBEARER":
        return {**options, **_oauth_options(connection)}
    if mechanism == "GSSAPI":
        return {**options, **_kerberos_options(connection)}
    if not connection.sasl_username or connection.sasl_password is None:
        raise ConfigurationError(f"sasl.mechanism {mechanism} needs sasl.username and sasl.password")
    module = _PLAIN_MODULE if mechanism == "PLAIN" else _SCRAM_MODULE
    credentials = {"username": connection.sasl_username, "password": _reveal_secret(connection.sasl_password)}
    return {**options, "sasl.jaas.config": _format_jaas(module, credentials)}


def _oauth_options(connection: ConnectionConfig) -> dict[str, str]:
    if connection.oauth_cb is not None:
        raise ConfigurationError(
            "oauth_cb is a Python function, which Java's client cannot call; use sasl.oauthbearer.method=oidc"
        )
    if connection.enable_sasl_oauthbearer_unsecure_jwt:
        raise ConfigurationError(
            "enable.sasl.oauthbearer.unsecure.jwt is refused: it accepts unsigned tokens; "
            "use sasl.oauthbearer.method=oidc"
        )
    if connection.sasl_oauthbearer_config is not None:
        raise ConfigurationError(
            "sasl.oauthbearer.config applies only to oauth_cb or unsigned tokens, which are refused"
        )
    if connection.sasl_oauthbearer_method != "oidc":
        raise ConfigurationError("sasl.mechanism OAUTHBEARER needs sasl.oauthbearer.method=oidc")
    url = connection.sasl_oauthbearer_token_endpoint_url
    secret = _reveal_secret(connection.sasl_oauthbearer_client_secret)
    if not (url and connection.sasl_oauthbearer_client_id and secret):
        raise ConfigurationError(
            "sasl.oauthbearer.method=oidc needs sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret "
            "and sasl.oauthbearer.token.endpoint.url"
        )
    login = {"clientId": connection.sasl_oauthbearer_client_id, "clientSecret": secret}
    if connection.sasl_oauthbearer_scope:
        login["scope"] = connection.sasl_oauthbearer_scope
    for pair in (connection.sasl_oauthbearer_extensions or "").split(","):
        name, equals, value = pair.strip().partition("=")
        if not pair.strip():
            continue
        if not equals or not re.fullmatch("[A-Za-z]+", name):
            raise ConfigurationError("sasl.oauthbearer.extensions must be name=value pairs separated by commas")
        login[f"extension_{name}"] = value
    return {
        "sasl.jaas.config": _format_jaas(_OAUTH_MODULE, login),
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.login.callback.handler.class": _OAUTH_HANDLER,
    }


def _kerberos_options(connection: ConnectionConfig) -> dict[str, str]:
    if connection.sasl_kerberos_kinit_cmd:
        raise ConfigurationError(
            "sasl.kerberos.kinit.cmd is refused: Java's client logs in without it; set "
            "sasl.kerberos.keytab and sasl.kerberos.principal"
        )
    if not connection.sasl_kerberos_keytab:
        raise ConfigurationError(
            "sasl.mechanism GSSAPI (the default of SASL) needs sasl.kerberos.keytab; "
            "for another mechanism set sasl.mechanism"
        )
    login = {
        "useKeyTab": "true",
        "storeKey": "true",
        "keyTab": connection.sasl_kerberos_keytab,
        "principal": connection.sasl_kerberos_principal or _KERBEROS_PRINCIPAL,
    }
    options = {
        "sasl.jaas.config": _format_jaas(_KERBEROS_MODULE, login),
        "sasl.kerberos.service.name": connection.sasl_kerberos_service_name or _KERBEROS_SERVICE,
    }
    relogin_ms = connection.sasl_kerberos_min_time_before_relogin
    if relogin_ms == 0:
        raise ConfigurationError(
            "sasl.kerberos.min.time.before.relogin=0 is refused: Java's client always renews its ticket"
        )
    if relogin_ms is not None:
        options["sasl.kerberos.min.time.before.relogin"] = str(relogin_ms)
    return options


def _format_jaas(module: str, login: Mapping[str, str]) -> str:
    return " ".join([module, "required", *(f"{name}={_quote_value(value)}" for name, value in login.items())]) + ";"


def _quote_value(value: str) -> str:
    r"""Quote a value for JAAS, so that it cannot end its string and inject options or modules.

    Java reads it with a `StreamTokenizer`, which supports C's escapes and ends a string at the end of a line.
    """
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _tls_options(connection: ConnectionConfig) -> dict[str, str]:
    for name, reason in _NO_JAVA_FORM.items():
        if getattr(connection, name) is not None:
            raise ConfigurationError(f"{name.replace('_', '.')} is refused: {reason}")
    if connection.enable_ssl_certificate_verification is False:
        raise ConfigurationError(
            "enable.ssl.certificate.verification=false is refused: Java's client always verifies certificates; set "
            "ssl.ca.location to the certificate of the brokers' CA"
        )
    # Set even if it is the default, because Java's default has changed between versions.
    algorithm = connection.ssl_endpoint_identification_algorithm or "https"
    return {
        "ssl.endpoint.identification.algorithm": "" if algorithm == "none" else algorithm,
        **_truststore_options(connection),
        **_keystore_options(connection),
    }


def _truststore_options(connection: ConnectionConfig) -> dict[str, str]:
    location, pem = connection.ssl_ca_location, _reveal_secret(connection.ssl_ca_pem)
    if location and pem:
        raise ConfigurationError("ssl.ca.location and ssl.ca.pem exclude each other")
    if pem:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _read_certificates(pem, "ssl.ca.pem")}
    if not location:
        # The JVM uses its CAs, as librdkafka uses those of OpenSSL.
        return {}
    if location == "probe" or Path(location).is_dir():
        raise ConfigurationError(
            "ssl.ca.location must be a file for Java's client; put the certificates into one PEM file"
        )
    _read_certificates(_read_file(location, "ssl.ca.location"), "ssl.ca.location")
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}


def _keystore_options(connection: ConnectionConfig) -> dict[str, str]:
    has_pem = any(
        (
            connection.ssl_certificate_location,
            connection.ssl_certificate_pem,
            connection.ssl_key_location,
            connection.ssl_key_pem,
        )
    )
    if connection.ssl_keystore_location:
        if has_pem:
            raise ConfigurationError("ssl.keystore.location excludes ssl.certificate.* and ssl.key.*")
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": connection.ssl_keystore_location,
            "ssl.keystore.password": _reveal_secret(connection.ssl_keystore_password),
        }
    if not has_pem:
        return {}
    chain_file, key_file = connection.ssl_certificate_location, connection.ssl_key_location
    certificate_pem, key_pem = _reveal_secret(connection.ssl_certificate_pem), _reveal_secret(connection.ssl_key_pem)
    if bool(chain_file) == bool(certificate_pem) or bool(key_file) == bool(key_pem):
        raise ConfigurationError(
            "a client certificate needs one of ssl.certificate.location and ssl.certificate.pem, and one of "
            "ssl.key.location and ssl.key.pem"
        )
    key_option = "ssl.key.location" if key_file else "ssl.key.pem"
    key = _private_key(_read_file(key_file, key_option) if key_file else key_pem, key_option)
    options = {"ssl.keystore.type": "PEM"}
    if "BEGIN ENCRYPTED" in key:
        if connection.ssl_key_password is None:
            raise ConfigurationError(f"the key of {key_option} is encrypted: set ssl.key.password")
        if _is_pbes2(key):
            raise ConfigurationError(
                f"the key of {key_option} is encrypted with PBES2, which Java's client cannot decrypt; put key and "
                "certificate into a PKCS#12 file (`openssl pkcs12 -export -inkey the.key -in certificate.pem -out "
                "client.p12`) and set ssl.keystore.location and ssl.keystore.password"
            )
        # Only for encrypted keys: with a password, Java treats any key as encrypted.
        options["ssl.key.password"] = _reveal_secret(connection.ssl_key_password)
    if chain_file and chain_file == key_file:
        # Keep a file with both as a file, so that the key does not enter Spark's configuration.
        return {**options, "ssl.keystore.location": chain_file}
    chain_option = "ssl.certificate.location" if chain_file else "ssl.certificate.pem"
    chain = _read_file(chain_file, chain_option) if chain_file else certificate_pem
    return {
        **options,
        "ssl.keystore.certificate.chain": _read_certificates(chain, chain_option),
        "ssl.keystore.key": key,
    }


def _read_certificates(pem: str, option: str) -> str:
    found = [block.group(0) for block in _PEM_BLOCK.finditer(pem) if block.group(1) == "CERTIFICATE"]
    if not found:
        raise ConfigurationError(f"{option} holds no certificate in PEM format (BEGIN CERTIFICATE)")
    return "\n".join(found) + "\n"


def _private_key(pem: str, option: str) -> str:
    kinds = {block.group(1): block.group(0) for block in _PEM_BLOCK.finditer(pem)}
    for kind in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        if kind in kinds:
            return kinds[kind] + "\n"
    if any(kind.endswith("PRIVATE KEY") for kind in kinds):
        raise ConfigurationError(
            f"the key of {option} is not in PKCS#8 format, the only one that Java reads; convert it with "
            "`openssl pkcs8 -topk8 -in old.key -out new.key` (add -nocrypt for a key without password)"
        )
    raise ConfigurationError(f"{option} holds no private key in PEM format (BEGIN PRIVATE KEY)")


def _is_pbes2(key: str) -> bool:
    # The object identifier of the encryption is near the start of the DER form. javax.crypto (Java 17) does not find
    # PBES2, the default of OpenSSL, by the name that Kafka 3.9 uses.
    body = "".join(line for line in key.splitlines() if "-----" not in line)
    with contextlib.suppress(ValueError):
        return _PBES2 in base64.b64decode(body)[:40]
    return False


def _read_file(location: str, option: str) -> str:
    try:
        # Latin-1 accepts every byte, and content that is not PEM need not be decoded.
        return Path(location).read_text(encoding="latin-1")
    except OSError as error:
        raise ConfigurationError(f"{option}: {location} cannot be read: {error.strerror}") from None


def _reveal_secret(secret: SecretStr | None) -> str:
    return "" if secret is None else secret.get_secret_value()
