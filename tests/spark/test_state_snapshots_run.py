"""Snapshots of state in micro-batches, where stores are open for a batch, in Python workers of Spark."""

import shutil
from pathlib import Path

import pytest

from streamrt import Application, State, StateSnapshots
from tests.support import Kafka, running, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

KEYS = 100
"""Each is a record of the changelog in the first micro-batch, so that a restore asks for a snapshot."""


def count(value: int, state: State) -> int:
    number: int = state.get("n", 0) + value
    state.set("n", number)
    return number


@pytest.mark.rows("FE-053", "FE-054")
def test_micro_batches_go_on_from_snapshots(kafka: Kafka, tmp_path: Path) -> None:
    source, target, group = kafka.topic("in"), kafka.topic("out"), unique("group")
    disk, remote = tmp_path / "disk", tmp_path / "remote"

    def app() -> Application:
        found = kafka.app(
            group,
            state_dir=disk,
            processing_guarantee="exactly-once",
            state_snapshots=StateSnapshots(
                remote.as_uri(), commits=1, least_replay=50, storage_options={"note": "sesame-open"}
            ),
        )
        found.dataframe(found.topic(source)).apply(count, stateful=True).to_topic(found.topic(target))
        return found

    def is_taken() -> bool:
        kafka.produce(source, [0])
        return any(int(path.name[:20]) >= KEYS for path in remote.rglob("*.manifest"))

    for key in range(KEYS):
        kafka.produce(source, [1] * 3, key=b"%d" % key)
    with running(app()):
        wait_until(is_taken, what="a snapshot of all records")
    assert not list(disk.rglob("download"))
    shutil.rmtree(disk)
    kafka.produce(source, [1], key=b"0")
    done = kafka.end(target)
    with running(app()):
        wait_until(lambda: kafka.end(target) > done, what="an output")
    assert list(disk.rglob("download")), "the restore has looked for a snapshot"
    counts = {one.key: int(one.value or b"") for one in kafka.receive(target, 1 << 60, timeout_s=3)}
    assert {key: number for key, number in counts.items() if key != b"key"} == {
        **{b"%d" % key: 3 for key in range(KEYS)},
        b"0": 4,
    }
