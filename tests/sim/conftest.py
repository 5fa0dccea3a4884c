import logging
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    # Known only if this folder, or a file of it, is named on the command line.
    parser.addoption("--seed", type=int, help="run the simulator with this seed alone")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Faults make the runtime complain all the time."""
    logger = logging.getLogger("streamrt")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
