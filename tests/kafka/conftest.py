from collections.abc import Iterator

import pytest

from streamrt.errors import JavaNotFoundError
from streamrt.testing.kafka import EmbeddedKafka
from streamrt.testing.registry import EmbeddedSchemaRegistry

USERS = ("shop", "nobody", "describer", "reader", "writer", "blind")
"""Users of `strict_kafka`, by their rights; their password is "canary"."""


@pytest.fixture(scope="session")
def strict_kafka() -> Iterator[EmbeddedKafka]:
    """A broker with rights, for the tests that look at them. The listener without a login may do everything."""
    logins = " ".join(f'user_{user}="canary"' for user in USERS)
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The broker itself, and the listener without a login.
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {logins};"
        ),
    }
    with EmbeddedKafka(config=config, extra_listeners=("SASL_PLAINTEXT",)) as broker:
        yield broker


@pytest.fixture(scope="session")
def broker_of_all_kills() -> Iterator[EmbeddedKafka]:
    """See `mortal_broker`. It looks often for transactions that have lasted too long, and compacts often."""
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100, "log.cleaner.backoff.ms": 500}
    with EmbeddedKafka(config=config) as broker:
        yield broker


@pytest.fixture
def mortal_broker(broker_of_all_kills: EmbeddedKafka) -> EmbeddedKafka:
    """A broker that tests may kill and restart. They share it, so give topics and groups unique names."""
    return broker_of_all_kills.start()


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[EmbeddedSchemaRegistry]:
    """A schema registry for the whole test run; subjects live as long as it, so give them unique names."""
    try:
        registry = EmbeddedSchemaRegistry().start()
    except JavaNotFoundError as error:
        pytest.skip(f"the embedded schema registry needs Java 21 or newer: {error}")
    with registry:
        yield registry
