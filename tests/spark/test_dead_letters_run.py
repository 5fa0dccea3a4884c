"""Records that fail, on Spark and a real broker: whatever fails is kept, once, and all other records go on."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from streamrt import DeadLetters
from streamrt.connectors import BatchingSink, SinkBatch
from streamrt.errors import SinkError
from streamrt.kafka import ConnectionConfig
from streamrt.topics.dead_letter_queue import DeadLetterQueue
from tests.support import Kafka, unique

pytestmark = [pytest.mark.usefixtures("processing_mode"), pytest.mark.spark, pytest.mark.slow]


class PickySink(BatchingSink):
    """Writes numbers to a file, and rejects some.

    Args:
        path: the file.
        rejected: the numbers that it rejects.
    """

    def __init__(self, path: Path, rejected: frozenset[int]) -> None:
        super().__init__()
        self._path = path
        self._rejected = rejected

    def write(self, batch: SinkBatch) -> None:
        for item in batch:
            if item.value["n"] in self._rejected:
                raise SinkError("too odd", batch.record_of(item))
        with self._path.open("a") as file:
            file.writelines(f"{item.value['n']}\n" for item in batch)


@pytest.mark.both_modes
def test_what_fails_is_kept_and_all_else_goes_on(kafka: Kafka, tmp_path: Path) -> None:
    group, source, target = unique("letters"), kafka.topic("in"), kafka.topic("out")
    values: list[Any] = [b'{"n": %d}' % number for number in range(40)]
    values[7], values[19] = b"{", b'{"m": 19}'
    kafka.produce(source, values, raw=True)
    letters = f"dead-letters__{group}"
    for _ in range(2):
        # The second run finds everything committed.
        app = kafka.app(group, processing_guarantee="exactly-once", on_error=DeadLetters(letters))
        sdf = app.dataframe(app.topic(source)).apply(lambda value: {"n": value["n"]})
        sdf.sink(PickySink(tmp_path / "sunk", frozenset({11, 25})))
        sdf.apply(lambda value: {1} if value["n"] == 30 else value).to_topic(app.topic(target))
        app.run(timeout=0.5)
    failed = {7: "deserialize", 19: "process", 11: "sink", 25: "sink", 30: "produce"}
    sent = [orjson.loads(record.value or b"")["n"] for record in kafka.receive_exactly(target, 40 - len(failed))]
    assert sent == [number for number in range(40) if number not in failed]
    kept = list(DeadLetterQueue(ConnectionConfig(bootstrap_servers=kafka.address), letters).pending())
    found = {letter.why.offset: letter.why.stage for letter in kept if letter.why is not None}
    assert found == failed
    assert len(kept) == len(failed)
    assert {letter.why.offset: letter.record.value for letter in kept if letter.why is not None} == {
        offset: values[offset] for offset in failed
    }
    sunk = [int(line) for line in (tmp_path / "sunk").read_text().splitlines()]
    assert set(sunk) == set(range(40)) - failed.keys()
