"""A program that counts by key, in processes without Spark, for tests with kill -9."""

from pathlib import Path

from tests.support import Kafka

_PROGRAM = """
from streamrt import Application, StateSnapshots

def count(value, state):
    number = state.get("n", 0) + value
    state.set("n", number)
    return number

app = Application(
    {address!r},
    consumer_group={group!r},
    auto_offset_reset="earliest",
    state_dir={state_dir!r},
    processing_guarantee={guarantee!r},
    processing_mode="resident",
    spark_master="processes[2]",
    commit_interval=0.5,
    {settings}
)
app.dataframe(app.topic({source!r})).apply({function}).to_topic(app.topic({target!r}))

if __name__ == "__main__":
    app.run()
"""


def counting_program(
    kafka: Kafka,
    group: str,
    source: str,
    target: str,
    state_dir: Path,
    *,
    guarantee: str,
    settings: str,
    stateful: bool = True,
) -> str:
    """Return the program.

    Args:
        kafka: the broker.
        group: the consumer group.
        source: topic with numbers.
        target: topic for the sum by key, or for the numbers without state.
        state_dir: the state directory.
        guarantee: the processing guarantee.
        settings: other arguments of the application, as Python.
        stateful: whether it counts.
    """
    return _PROGRAM.format(
        address=kafka.address,
        group=group,
        state_dir=str(state_dir),
        guarantee=guarantee,
        settings=settings,
        source=source,
        target=target,
        function="count, stateful=True" if stateful else "lambda value: value",
    )
