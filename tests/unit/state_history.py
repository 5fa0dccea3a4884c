"""A deterministic history of a store, for tests that damage it: what it must contain is known for every stamp."""

import os
import random
import signal
import sys
from pathlib import Path

from streamrt.state import RocksDBOptions, RocksDBStore, Stamp, StoreIdentity, StorePartition

IDENTITY = StoreIdentity("shop", "orders", 0, "totals", "topic-id", "changelog-id", 1)
SMALL_BUFFERS = RocksDBOptions(
    write_buffer_size=64 * 1024, target_file_size_base=64 * 1024, open_max_retries=0, block_cache_size=1024 * 1024
)
KEYS = 400

Changes = dict[bytes, "bytes | None"]


def changes_at(offset: int) -> Changes:
    """The changes that lead from one offset to the next one."""
    rng = random.Random(offset)
    return {
        b"\x01key-%04d" % rng.randrange(KEYS): None
        if rng.random() < 0.2
        else b"\x00" + rng.randbytes(rng.randrange(150))
        for _ in range(40)
    }


def apply(model: dict[bytes, bytes], changes: Changes) -> None:
    for key, value in changes.items():
        model.pop(key, None)
        if value is not None:
            model[key] = value


def history(offsets: int) -> list[dict[bytes, bytes]]:
    """The content at each offset, from 0 on."""
    model: dict[bytes, bytes] = {}
    models: list[dict[bytes, bytes]] = [{}]
    for offset in range(offsets):
        apply(model, changes_at(offset))
        models.append(dict(model))
    return models


def stamp_at(offset: int, *, changelog: bool = True) -> Stamp:
    return Stamp(IDENTITY, offset, offset * 50 if changelog else None, offset, offset)


def store_in(folder: Path, options: RocksDBOptions = SMALL_BUFFERS) -> RocksDBStore:
    return RocksDBStore("totals", "orders", folder, options)


def offset_of(partition: StorePartition) -> int:
    """Where a partition stands; 0 for an empty one."""
    stamp = partition.stamp
    return 0 if stamp is None or stamp.input_offset is None else stamp.input_offset


def advance(partition: StorePartition, upto: int, *, changelog: bool = True) -> None:
    """Write the history, from where the partition stands."""
    for offset in range(offset_of(partition), upto):
        partition.write(list(changes_at(offset).items()), stamp_at(offset + 1, changelog=changelog))


def main() -> None:
    """Write and never end, telling each offset that was written: `state_history.py FOLDER SESSION CHANGELOG`.

    The partition is closed and opened again each `SESSION` offsets; 0 for never. A negative number kills the process itself
    after so many offsets.
    """
    folder, session, changelog = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "changelog"
    store = store_in(folder)
    partition = store.open(0)
    while True:
        offset = offset_of(partition)
        advance(partition, offset + 1, changelog=changelog)
        os.write(1, b"%d\n" % (offset + 1))
        if session > 0 and (offset + 1) % session == 0:
            partition.close()
            partition = store.open(0)
        if session < 0 and offset + 1 == -session:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
