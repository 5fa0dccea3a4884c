"""A loader that is killed: it writes numbers with a checkpointed writer, and ends in the middle of it.

Run as a program, it reads lines `<point> <checkpoint> <seed>`, and for each lets a child of its own load until it is killed:

- `rows-produced`: in that checkpoint, when all rows are with the brokers, and the state is not,
- `state-produced`: when the state is also there, and the transaction open,
- `committed`: when the transaction is committed, and the loader does not know,
- `any`: at a moment of the seed, from that checkpoint on.

The child begins where the state of the writer says, so each number from 0 on must be there once, up to the state.
"""

import os
import random
import signal
import sys
import threading
import traceback
from typing import Any

from streamrt.kafka.writing.sender import TransactionalSender
from streamrt.tables.access.kafka_links import KafkaLinks
from streamrt.tables.table import Table
from streamrt.tables.writing.writer_states import WRITERS_TOPIC
from tests.table_home import Home, table_info

POINTS = ("rows-produced", "state-produced", "committed", "any")
PARTITIONS = 2
_WITHIN_S = 0.03
"""A checkpoint takes about that long."""


def loaded(address: str, topic: str, timeout: float = 60.0) -> Table:
    """Return the table of the loader."""
    links = KafkaLinks(address, timeout)
    return Table(table_info("n BIGINT NOT NULL", "load.numbers", topic=topic, partitions=PARTITIONS), Home(links))


class _Crash:
    def __init__(self, point: str, checkpoint: int, after_s: float) -> None:
        self.point = point
        self.left = checkpoint
        self.after_s = after_s

    def install(self) -> None:
        produce, commit = TransactionalSender.produce, TransactionalSender.commit

        def crashing_produce(sender: TransactionalSender, topic: str, *args: Any, **kwargs: Any) -> None:
            if topic == WRITERS_TOPIC:
                self.left -= 1
                if self.left == 0 and self.point == "any":
                    threading.Timer(self.after_s, self._kill).start()
                self._reach("rows-produced")
            produce(sender, topic, *args, **kwargs)

        def crashing_commit(sender: TransactionalSender) -> None:
            if self.left == 0 and self.point == "state-produced":
                sender.flush(60)
            self._reach("state-produced")
            commit(sender)
            self._reach("committed")

        # The process ends with it, so nothing is put back.
        changed: Any = TransactionalSender
        changed.produce, changed.commit = crashing_produce, crashing_commit

    def _reach(self, point: str) -> None:
        if self.left == 0 and self.point == point:
            self._kill()

    def _kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def load(table: Table, point: str, checkpoint: int, seed: int) -> None:
    """Write numbers until the process is killed."""
    chosen = random.Random(seed)
    _Crash(point, checkpoint, chosen.uniform(0, _WITHIN_S)).install()
    writer = table.writer(id="loader")
    number = int(writer.state or 0)
    while True:
        for _ in range(chosen.randint(0, 40)):
            writer.append({"n": number})
            number += 1
        if chosen.random() < 0.3:
            writer.flush()
        writer.checkpoint(str(number))


def main(address: str, topic: str) -> None:
    """Serve lines; the process itself has no clients, so that it can fork."""
    for line in sys.stdin:
        point, checkpoint, seed = line.split()
        child = os.fork()
        if not child:
            try:
                load(loaded(address, topic), point, int(checkpoint), int(seed))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
