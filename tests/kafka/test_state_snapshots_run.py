"""An application whose processes are killed and whose disk is lost goes on from a snapshot and the tail of its changelog."""

import re
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamrt.kafka import Producer
from tests.cli_json import run
from tests.kafka.counting import counting_program
from tests.processes import process_tree
from tests.support import LONG, Kafka, Program, Received, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KEYS = 3_000
# Options reach the processes as secrets.
SETTINGS = (
    "state_snapshots=StateSnapshots({!r}, interval_s=1, least_replay=100, storage_options={{'note': 'sesame-open'}})"
)
# Unit tests and the simulator have both.
GUARANTEES = ["at-least-once", "exactly-once"] if LONG else ["exactly-once"]


def produce(kafka: Kafka, topic: str, value: int, keys: range) -> None:
    with Producer(kafka.address, extra_config={"enable.idempotence": False}) as producer:
        for key in keys:
            producer.produce(topic, b"%d" % value, key=b"%d" % key, partition=key % 2)


def counts_until(kafka: Kafka, topic: str, expected: Mapping[Any, int]) -> dict[Any, int]:
    """Return the last count of each key, once none is below what is expected."""
    counts: dict[Any, int] = {}

    def is_last(record: Received) -> bool:
        counts[record.key] = int(record.value or b"")
        return counts[record.key] >= expected[record.key] and all(
            counts.get(key, 0) >= count for key, count in expected.items()
        )

    kafka.receive(topic, 1 << 60, until=is_last)
    return counts


def newest_offsets(remote: Path) -> Counter[str]:
    """Return the changelog offset of the newest snapshot of each partition."""
    found: Counter[str] = Counter()
    for path in remote.rglob("*.manifest"):
        found[path.parents[1].name] = max(found[path.parents[1].name], int(path.name[:20]))
    return found


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_killed_application_without_its_disk_goes_on_from_a_snapshot(
    kafka: Kafka, guarantee: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, group = kafka.topic("in", 2), kafka.topic("out", 2), unique("group")
    remote, disk, path = tmp_path / "remote", tmp_path / "disk", tmp_path / f"{unique('program').replace('-', '_')}.py"
    settings = SETTINGS.format(remote.as_uri())
    text = counting_program(kafka, group, source, target, disk, guarantee=guarantee, settings=settings)
    path.write_text(text, encoding="utf-8")
    all_keys = [b"%d" % key for key in range(KEYS)]
    expected = {key: 3 if number < 10 else 2 for number, key in enumerate(all_keys)}
    program = Program(path)
    try:
        produce(kafka, source, 1, range(KEYS))
        counts_until(kafka, target, dict.fromkeys(all_keys, 1))
        # Snapshots are taken after commits, so some records come until they have everything.
        wait_until(lambda: _is_taken(kafka, source, remote), what="snapshots of all keys")
        produce(kafka, source, 1, range(10))
        wait_until(lambda: kafka.committed(group, source, 0) == kafka.end(source) // 2, what="the last commit")
        killed = process_tree(program.process.pid)
        for process in killed:
            process.kill()
        psutil.wait_procs(killed, timeout=60)
    finally:
        program.kill()
    shutil.rmtree(disk)
    program = Program(path)
    try:
        produce(kafka, source, 1, range(KEYS))
        counts = counts_until(kafka, target, expected)
        program.end()
    finally:
        program.kill()
    log = "".join(program.err)
    assert log.count("from a snapshot of") == 2, log
    replayed = sum(int(number) for number in re.findall(r"restored (\d+) records of", log))
    assert replayed < KEYS / 3, log
    if guarantee == "exactly-once":
        assert counts == expected
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    listed = run("state snapshots", f"{path.stem}:app", "--verify")["snapshots"]
    assert {each["partition"] for each in listed} == {0, 1}
    assert all(each["fits"] for each in listed)
    # At least once, records since the last commit may count again; none is lost.


def _is_taken(kafka: Kafka, source: str, remote: Path) -> bool:
    """Add a record to each partition, and return whether snapshots contain all keys."""
    produce(kafka, source, 0, range(2))
    return len(found := newest_offsets(remote)) == 2 and min(found.values()) >= KEYS // 2
