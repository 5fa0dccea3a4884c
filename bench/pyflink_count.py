"""Counts the elements of keys on PyFlink's mini-cluster, for `bench.processors --case pyflink`.

It runs in an environment with PyFlink, and imports nothing else. Each line of standard input is a number of elements: they
are counted by one slot, and the answer is a line with the seconds that the job took.
"""

# mypy: disallow-subclassing-any=False
import sys
from collections.abc import Iterator
from typing import Any

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import Sink
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway


class Count(KeyedProcessFunction):
    """Counts the elements of a key."""

    def open(self, context: RuntimeContext) -> None:
        """Get the state."""
        self._count = context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        """Count an element."""
        new = (self._count.value() or 0) + 1
        self._count.update(new)
        yield new


def run(elements: int, keys: int) -> float:
    """Count elements in one job; return the seconds that it took."""
    settings = Configuration()
    settings.set_string("python.executable", sys.executable)
    settings.set_string("python.client.executable", sys.executable)
    # Workers keep 1,000 entries of state by default. The figures must not depend on that.
    settings.set_string("python.state.cache-size", str(10 * keys))
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.set_parallelism(1)
    numbers = env.from_source(
        NumberSequenceSource(1, elements), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    )
    counts = numbers.key_by(lambda value: value % keys, key_type=Types.LONG()).process(
        Count(), output_type=Types.LONG()
    )
    counts.sink_to(Sink(get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()))
    found: float = env.execute("count").get_net_runtime() / 1_000
    return found


def main() -> None:
    """Answer each line."""
    keys = int(sys.argv[1])
    for line in sys.stdin:
        print("seconds", run(int(line), keys), flush=True)


if __name__ == "__main__":
    main()
