"""Memory of readers that promise that it does not grow with the table: each reads far more than it may take."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

ROWS = 60_000
ROW_BYTES = 8_000
"""All rows together take 480 MB, in Python and in Arrow."""
LIMIT_MB = 380
"""A file of Parquet takes several times its row groups of 64 MB, and others a few portions of 5,000 rows."""
BOUNDED = ("parquet", "batches", "rows", "stream", "polls", "listener")
UNBOUNDED = "arrow"

PROGRAM = """
import os, resource, sys, threading, time
from pathlib import Path
from streamrt.testing.memory_topics import _Entry
from tests import table_home
from tests.unit.test_table_memory import BOUNDED, ROW_BYTES, ROWS, UNBOUNDED

table = table_home.table(schema=table_home.Schema("id BIGINT, name STRING"))
[partition] = table._home.links._topics["events"].partitions
# One record, as often as there are rows.
partition.entries += [_Entry(None, b'{"id":1,"name":"%s"}' % (b"x" * ROW_BYTES), 1, None)] * ROWS

def parquet():
    return table.scan().to_parquet(Path(sys.argv[1]) / "rows.parquet")

def batches():
    return sum(each.batch.num_rows for each in table.scan().batches())

def rows():
    return sum(1 for _ in table.scan().rows())

def stream():
    with table.subscribe(start="earliest") as stream:
        return sum(1 for _ in zip(range(ROWS), stream))

def polls():
    count = 0
    with table.subscribe(start="earliest", max_records=5_000) as stream:
        while count < ROWS:
            count += stream.poll_arrow(timeout=60).num_rows
    return count

def listener():
    count, done = 0, threading.Event()

    def called(frame, number):
        nonlocal count
        count += len(frame)
        if count == ROWS:
            done.set()

    with table.on_changes(called, start="earliest", max_rows=5_000) as listening:
        while not done.wait(0.1):
            assert listening.running, listening.error
    return count

def arrow():
    return table.scan().to_arrow().num_rows

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

for name in (*BOUNDED, UNBOUNDED):
    if not os.fork():
        code = 1
        try:
            begun = peak_mb()
            assert globals()[name]() == ROWS
            print(name, round(peak_mb() - begun), flush=True)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, name
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="others count memory in other units")
def test_memory_of_readers_does_not_grow_with_the_table(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    grown = {name: int(size) for name, size in (line.split() for line in done.stdout.splitlines())}
    assert grown.keys() == {*BOUNDED, UNBOUNDED}
    # What reads everything shows that growth is seen.
    assert grown.pop(UNBOUNDED) > ROWS * ROW_BYTES / 2**20 > LIMIT_MB
    assert max(grown.values()) < LIMIT_MB, grown
