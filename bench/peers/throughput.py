"""Records per second at saturation, their processor time, and the memory of the application meanwhile.

All systems are measured in the same way, from outside: an application reads a topic that was filled before, and this
process polls the ends of its output topic, and with `group_by` also that of its repartition topic.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from bench import common
from bench.dataframe_cases import WINDOW_MS
from bench.runners import Runner, RunnerError, Running
from streamrt.kafka import TopicAdmin
from streamrt.models import TopicPartition

KEYS = 1_000
START_MS = 1_700_000_000_000
SKIPPED = 0.1
# Where systems are compared: a JVM compiles in the first seconds, and a fast system is done soon.
LONG_SKIPPED = 0.25
WARMUP_S = 6.0
SILENCE_S = 60.0
# Members that join within this time are in the first generation together: two processes share the work from the start.
BROKER = {"group.initial.rebalance.delay.ms": 1_000}


@dataclass(frozen=True)
class Saturated:
    """Throughput, cost and memory of an application at saturation.

    Attributes:
        rate: records of its input in a second.
        cost_us: processor time of a record of its input, of all processes, in microseconds.
        memory_mb: memory of all processes at the end; shared pages are counted once.
    """

    rate: float
    cost_us: float
    memory_mb: float


def fill(address: str, records: int) -> str:
    """Return a new topic with so many records: each key has one for each second of event time."""
    source = common.unique("in")
    common.create_topics(address, source)
    common.fill(address, source, records, keys=KEYS, timestamp=lambda number: START_MS + number * 1_000 // KEYS)
    return source


def outputs_of(case: str, records: int) -> int:
    """Return the number of records that a case writes for so many records."""
    if case == "tumbling":
        # The last window of each key stays open.
        return KEYS * ((records // KEYS - 1) * 1_000 // WINDOW_MS)
    # A group_by writes each record twice. In the join of tables, a record changes a row of either side.
    return 2 * records if case in ("group_by", "table_join") else records


class Written:
    """Counts the records that a run has written: its outputs, and those of the repartition topic of a `group_by`.

    Args:
        address: the broker.
        case: the case that runs.
        target: the topic of the outputs.
        group: the consumer group, which is in the names of repartition topics.
    """

    def __init__(self, address: str, case: str, target: str, group: str) -> None:
        self._admin = TopicAdmin(address)
        self._group = group
        self._topics = [target]
        self._wanted = 2 if case == "group_by" else 1

    def count(self) -> int:
        """Return the current number of records."""
        if len(self._topics) < self._wanted:
            self._topics += [name for name in self.internal_topics() if "repartition" in name]
        places = [TopicPartition(topic, number) for topic in self._topics for number in range(common.PARTITIONS)]
        return sum(end for _, end in self._admin.offset_bounds(places).values())

    def internal_topics(self) -> list[str]:
        """Return the changelogs and repartition topics."""
        return [name for name in self._admin.list_topics(timeout=30) if self._group in name]

    def delete(self) -> None:
        """Delete all topics of the run."""
        self._admin.delete_topics([self._topics[0], *self.internal_topics()])


def saturate(
    running: Running,
    written: Written,
    case: str,
    records: int,
    *,
    skipped: float = SKIPPED,
    warmup_s: float = float("inf"),
    longest_s: float = float("inf"),
) -> Saturated:
    """Measure until all is written.

    Args:
        running: the application.
        written: counts its records.
        case: the case that it runs.
        records: number of records in its input.
        skipped: share of the outputs after which the measurement begins.
        warmup_s: seconds after the first output until it begins at the latest.
        longest_s: its longest time in seconds.

    Raises:
        RunnerError: if the application ended, or made no progress.
    """
    outputs = outputs_of(case, records)
    begin: tuple[float, float, int] | None = None
    first_at: float | None = None
    done, moved_at = 0, time.monotonic()
    while done < outputs and (begin is None or moved_at - begin[0] < longest_s):
        time.sleep(0.02)
        running.check()
        now, current = time.monotonic(), written.count()
        if current > done:
            done, moved_at, cpu_s = current, now, running.cpu_s()
            first_at = first_at or now
            if begin is None and (done >= outputs * skipped or now - first_at >= warmup_s):
                begin = now, cpu_s, done
        elif now - moved_at > SILENCE_S:
            raise RunnerError(f"{done:,} of {outputs:,} records came, and then none for {SILENCE_S:.0f} s")
    if begin is None or begin[2] == done:
        raise RunnerError(f"all {outputs:,} records came at once: measure with more")
    processed = records * (done - begin[2]) / outputs
    return Saturated(processed / (moved_at - begin[0]), (cpu_s - begin[1]) / processed * 1e6, running.memory_mb())


def run(
    runner: Runner, case: str, address: str, source: str, records: int, longest_s: float, checkout: Path | None
) -> Saturated:
    """Measure one run of a case."""
    target = common.unique("out")
    common.create_topics(address, target)
    with Running(runner, case, address, source, target, checkout=checkout) as running:
        written = Written(address, case, target, running.group)
        measured = saturate(
            running, written, case, records, skipped=LONG_SKIPPED, warmup_s=WARMUP_S, longest_s=longest_s
        )
    written.delete()
    return measured
