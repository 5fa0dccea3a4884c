"""Messages to the user from an application that starts."""

import pytest

from streamrt.runtime.driver.observation.progress import Progress
from streamrt.slots.startup import Startup


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(caplog: pytest.LogCaptureFixture) -> Clock:
    caplog.set_level("INFO", "streamrt")
    return Clock()


def test_a_start_that_takes_its_time_tells_every_few_seconds_what_it_waits_for(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    startup = Startup("shop", clock)
    for step in range(90):
        clock.now = 100 + step / 10
        startup.waits_for("Java and Spark to start" if step < 50 else "partitions")
    assert caplog.messages == [
        "starting, 3 s so far: waiting for Java and Spark to start",
        "starting, 6 s so far: waiting for partitions",
    ]
    startup.finish()
    clock.now += 60
    startup.waits_for("partitions")
    assert len(caplog.messages) == 2


def test_an_instance_without_partitions_tells_why_once_and_not_in_the_middle_of_a_rebalance(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    startup = Startup("shop", clock)
    startup.has_partitions(False)
    clock.now += 2
    startup.has_partitions(True)
    for _ in range(10):
        startup.has_partitions(False)
        startup.waits_for("partitions")
        clock.now += 1
    assert [message for message in caplog.messages if "has no partitions" in message] == [caplog.messages[-1]]
    assert "consumer group shop have all partitions" in caplog.messages[-1]
    startup.has_partitions(True)
    for _ in range(5):
        startup.has_partitions(False)
        clock.now += 1
    assert len([message for message in caplog.messages if "has no partitions" in message]) == 2


def test_progress_tells_what_a_start_waits_for(clock: Clock) -> None:
    progress = Progress()
    startup = Startup("shop", clock, progress)
    startup.waits_for("Java and Spark to start")
    assert progress.snapshot().waiting_for == "Java and Spark to start"
    startup.waits_for("partitions")
    assert progress.snapshot().waiting_for == "partitions"
    startup.finish()
    startup.waits_for("partitions")
    assert progress.snapshot().waiting_for == ""
