"""The cases of the comparisons on tables, for StreamRT; `bench/peers/OnKafkaStreams.java` has the same."""

from collections.abc import Callable

from streamrt import StreamingDataFrame, StreamingTable
from streamrt.windows import Count, Sum

CASES: dict[str, Callable[[StreamingDataFrame], StreamingDataFrame]] = {
    # The sum and the number of the records of each key: each record changes a row.
    "aggregate": lambda sdf: add_up(sdf).to_stream(),
    # The last record of each key with its sum: each record changes a row of either side.
    "table_join": lambda sdf: sdf.as_table().join(add_up(sdf)).to_stream(),
}


def add_up(sdf: StreamingDataFrame) -> StreamingTable[StreamingDataFrame]:
    """Return the table of the sum and the number of the records of each key."""
    return sdf.agg(total=Sum("value"), records=Count())
