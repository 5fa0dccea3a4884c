from collections.abc import Iterator

import pytest

from streamrt.errors import JavaNotFoundError
from streamrt.testing.registry import EmbeddedSchemaRegistry


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[EmbeddedSchemaRegistry]:
    """A schema registry for the whole test run; subjects live as long as it, so give them unique names."""
    try:
        registry = EmbeddedSchemaRegistry().start()
    except JavaNotFoundError as error:
        pytest.skip(f"the embedded schema registry needs Java 21 or newer: {error}")
    with registry:
        yield registry
