"""The memory of the JVM, as the driver asks for it."""

from types import SimpleNamespace
from typing import Any

import pytest

from streamrt.runtime.driver.observation.meters import Meters
from streamrt.spark.sessions.jvm_memory import JvmMemoryWatch


class Java:
    """A JVM that answers, or has ended."""

    def __init__(self) -> None:
        self.calls, self.dead = 0, False

    def environment(self) -> Any:
        runtime = SimpleNamespace(totalMemory=lambda: 500, freeMemory=self.free, maxMemory=lambda: 1_000)
        process = SimpleNamespace(current=lambda: SimpleNamespace(pid=lambda: 1 << 30))
        lang = SimpleNamespace(Runtime=SimpleNamespace(getRuntime=lambda: runtime), ProcessHandle=process)
        jvm = SimpleNamespace(java=SimpleNamespace(lang=lang))
        return SimpleNamespace(session=SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm)))

    def free(self) -> int:
        self.calls += 1
        if self.dead:
            raise ConnectionError("no JVM")
        return 200


def test_a_jvm_is_asked_every_ten_seconds() -> None:
    java, meters, now = Java(), Meters(), [0.0]
    watch = JvmMemoryWatch(meters, java.environment, lambda: now[0])
    for step in range(60):
        now[0] = float(step)
        watch.sample_when_due()
    assert java.calls == 6
    # There is no such process here, as with a JVM on another machine.
    assert meters.snapshot().jvm == (300, 1_000, None)


@pytest.mark.parametrize("missing", [True, False])
def test_a_jvm_that_is_not_there_is_no_error(missing: bool) -> None:
    java, meters, now = Java(), Meters(), [0.0]
    watch = JvmMemoryWatch(meters, lambda: None if missing and now[0] else java.environment(), lambda: now[0])
    watch.sample_when_due()
    java.dead, now[0] = True, 10.0
    watch.sample_when_due()
    snapshot = meters.snapshot().jvm
    assert snapshot == ((300, 1_000, None) if missing else None)
