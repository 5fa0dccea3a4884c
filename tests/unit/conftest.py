import pytest

from tests.unit.apps import Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()
