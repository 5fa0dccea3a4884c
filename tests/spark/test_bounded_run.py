"""Bounded runs on Spark: time ends stage by stage, and the run ends by itself, also one that was killed before."""

import importlib.util
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from streamrt.config import ProcessingMode
from streamrt.connectors import NumberSequenceSource
from streamrt.kafka import Producer, TopicConfig
from tests.chaos import Outputs, judge_by_key, kill_tree
from tests.hosts import HostedProgram
from tests.support import LONG, Kafka, Program, unique, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "energy.py"
START = 1_200_000


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_energy", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.both_modes
@pytest.mark.rows("PF-A6", "PF-A9", "PF-B5", "PF-J11")
def test_a_run_ends_after_its_sources_with_all_windows_closed(kafka: Kafka, processing_mode: ProcessingMode) -> None:
    # Each mode with another guarantee; the unit tests have all combinations.
    guarantee = "exactly-once" if processing_mode == "resident" else "at-least-once"
    app = kafka.app(processing_guarantee=guarantee)
    topic = app.topic(unique("numbers"), "int", "str", "int", "str", config=TopicConfig(2, 1))
    source = NumberSequenceSource(
        1, 25, unique("numbers"), key=lambda number: "ab"[number % 2], timestamp=lambda number: START + number
    )
    sums = app.dataframe(topic, source).tumbling_window(10_000).sum().final()
    grouped = sums.apply(lambda window: window["value"]).group_by(lambda value: "all", name="all")
    totals = grouped.tumbling_window(60_000).sum().final(closing_strategy="watermark")
    example().build(app, energy := kafka.topic("energy"), unique("readings"))
    with app.collect(totals) as values:
        assert [(value["start"], value["value"]) for value in values] == [(START, sum(range(1, 26)))]
    hours = [orjson.loads(record.value or b"") for record in kafka.receive(energy, 2)]
    assert [hour["value"] for hour in hours] == [230, 105]
    # Everything has been emitted: a second run finds no open window, and ends at once.
    assert app.run(until="end") == []


RECORDS = 1_500
KEYS = 10
STEP_MS = 10
DAY_MS = 24 * 60 * 60 * 1_000
ROUNDS = 6 if LONG else 1
KILLS = 3 if LONG else 1
KILLED = """
import os
import time

from streamrt import Application, ProcessFunction


class Reminders(ProcessFunction):
    def open(self, context):
        self.file = os.open({progress!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def work(self):
        os.write(self.file, b".")
        time.sleep(0.002)

    def process_element(self, value, ctx):
        count = ctx.state.value("n", default=0)
        count.update(count.value() + 1)
        ctx.register_event_time_timer(ctx.timestamp + {day_ms})
        self.work()
        yield {{"id": value["id"], "n": count.value()}}

    def on_timer(self, timestamp, ctx):
        self.work()
        yield {{"window": "timers", "at": timestamp, "n": ctx.state.value("n").value()}}


def name(window):
    return lambda value: {{"window": window, **value}}


app = Application(
    {address!r},
    consumer_group={group!r},
    auto_offset_reset="earliest",
    state_dir={state_dir!r},
    processing_guarantee="exactly-once",
    commit_interval=0.3,
)
sdf, target = app.dataframe(app.topic({source!r})), app.topic({target!r})
sdf.process(Reminders(), clock="partition").to_topic(target)
tumbling = sdf.apply(lambda value: value["id"]).tumbling_window(1_000).collect().final(closing_strategy="partition")
tumbling.apply(name("tumbling")).to_topic(target)
sizes = tumbling.apply(lambda window: len(window["value"])).group_by(lambda value: "all", name="all")
totals = sizes.tumbling_window(10_000).sum().final(closing_strategy="watermark")
totals.apply(name("totals")).to_topic(target)
if __name__ == "__main__":
    app.run(until="end", collect=False)
"""


def windows_at_the_end() -> dict[tuple[str, bytes], list[dict[str, Any]]]:
    """Return what windows and timers must put out, by name and key, when time has ended."""
    found: dict[tuple[str, bytes], list[dict[str, Any]]] = {}
    sizes: dict[int, int] = {}
    for number in range(KEYS):
        windows: dict[int, list[int]] = {}
        times = [(each, START + each * STEP_MS) for each in range(number, RECORDS, KEYS)]
        for each, time in times:
            windows.setdefault(time // 1_000 * 1_000, []).append(each)
        key = b"key-%d" % number
        found["tumbling", key] = [{"start": at, "end": at + 1_000, "value": ids} for at, ids in windows.items()]
        found["timers", key] = [{"at": time + DAY_MS, "n": len(times)} for _, time in times]
        for at, ids in windows.items():
            sizes[at // 10_000 * 10_000] = sizes.get(at // 10_000 * 10_000, 0) + len(ids)
    found["totals", b"all"] = [{"start": at, "end": at + 10_000, "value": size} for at, size in sorted(sizes.items())]
    return found


@pytest.mark.parametrize("turn", range(ROUNDS))
@pytest.mark.only_mode(
    "resident", reason="each kill costs the start of a Spark; make test-long does both", always=False
)
@pytest.mark.usefixtures("processing_mode")
def test_a_run_that_is_killed_ends_with_each_result_once(
    kafka: Kafka, program: Callable[..., Program], hosted: Callable[..., HostedProgram], tmp_path: Path, turn: int
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}, turn {turn}")
    chance = random.Random(seed)
    source, target, progress = kafka.topic("in", 2), kafka.topic("out", 2), tmp_path / "progress"
    sent: dict[bytes, list[int]] = {}
    with Producer(kafka.address) as producer:
        for number in range(RECORDS):
            key = b"key-%d" % (number % KEYS)
            value = json.dumps({"id": number}).encode()
            producer.produce(source, value, key=key, timestamp=START + number * STEP_MS)
            sent.setdefault(key, []).append(number)
    text = KILLED.format(
        progress=str(progress),
        day_ms=DAY_MS,
        address=kafka.address,
        group=unique("group"),
        state_dir=str(tmp_path / "state"),
        source=source,
        target=target,
    )

    def done() -> int:
        return progress.stat().st_size if progress.exists() else 0

    outputs = Outputs(kafka.address, target)
    try:
        for kill in range(KILLS):
            # The first kill is while records come, or while time ends; each record and each timer makes the file longer.
            left = 2 * RECORDS if kill == 0 else RECORDS // 2
            at = done() + chance.randrange(1, left - RECORDS // 5)
            print(f"killed after {at} records and timers")
            app = program(text)
            wait_until(lambda: done() >= at or app.process.poll() is not None, what="progress")  # noqa: B023
            kill_tree(app)
        last = hosted(text)
        assert last.wait() == 0, last.err
        expected = windows_at_the_end()
        count = sum(map(len, expected.values()))
        outputs.wait_for(RECORDS)
        wait_until(lambda: sum(map(len, list(outputs.windows.values()))) >= count, what=f"{count} windows and timers")
        judge_by_key(sent, outputs)
        for place in expected.keys() | outputs.windows:
            assert outputs.windows.get(place) == expected.get(place), place
    finally:
        outputs.close()
    # A later run finds nothing that is open.
    ends = kafka.end(target)
    again = hosted(text)
    assert again.wait() == 0, again.err
    assert kafka.end(target) == ends
