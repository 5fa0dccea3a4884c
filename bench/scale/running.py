"""Applications in this process, and what they take."""

import argparse
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import common
from bench.runners import RunnerError
from streamrt import Application
from streamrt.kafka import TopicAdmin
from streamrt.models import TopicPartition

END_S = 600.0


def make_app(address: str, state_dir: Path, chosen: argparse.Namespace, **settings: Any) -> Application:
    """Return an application with the mode, guarantee and master that are chosen."""
    own = {"mode": chosen.mode, "guarantee": chosen.guarantee, "master": chosen.master, **settings}
    return common.application(address, state_dir, **own)


@contextlib.contextmanager
def at_work(app: Application) -> Iterator[threading.Thread]:
    """Run an application in a thread for as long as the block lasts; raise its error."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            app.run()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        app.stop()
        thread.join()
    if errors:
        raise errors[0]


def await_that(condition: Callable[[], bool], thread: threading.Thread, what: str) -> None:
    """Wait until a condition holds.

    Raises:
        RunnerError: if the application ended, or the condition does not hold in time.
    """
    deadline = time.monotonic() + END_S
    while not condition():
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RunnerError(f"{what} did not come")
        time.sleep(0.01)


def end_of(admin: TopicAdmin, *topics: str, partitions: int = 1) -> int:
    """Return the number of offsets in topics with so many partitions."""
    places = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
    return sum(high for _, high in admin.offset_bounds(places, isolation_level="read_uncommitted").values())
