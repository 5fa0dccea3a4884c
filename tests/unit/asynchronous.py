"""Asynchronous functions of tests, and a short way to send values through them."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from streamrt import StreamingDataFrame
from tests.unit.apps import Stage

LONG = timedelta(seconds=30)
SHORT_MS = 15


async def echo(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


async def slow(value: Any) -> Any:
    await asyncio.sleep(3_600)


def play(build: Callable[[StreamingDataFrame], Any], *values: Any, **settings: Any) -> list[Any]:
    """Send values through at once; return what leaves the branches."""
    stage = Stage(**settings)
    build(stage.sdf)
    driver = stage.drive()
    driver.pipe_all(stage.source, values)
    return [output[0] for output in driver.outputs()]
