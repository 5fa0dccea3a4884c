"""Assignment of the rows of a micro-batch to Spark tasks.

Spark's Kafka source makes one Spark task for each input partition. Tasks of one topic need no more: each works on the
rows that it reads, without a shuffle. Where frames were merged, a task needs the rows of several input partitions, so
the batch is shuffled once, by a number that is looked up for each row. Rows of one input partition keep their order,
because they come from one Spark task and go to one. Those of several partitions follow one another; the task sorts them
(`runtime.merge`).
"""

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from streamrt.records import TopicPartition
from streamrt.topology import Topology

_TASKS_PER_SLOT = 3
"""Each Spark task beyond the free slots costs more than 10 ms a batch: with more tasks than this, each runs several."""


def route(batch: DataFrame, topology: Topology, partitions: Iterable[TopicPartition], slots: int) -> DataFrame:
    """Bring the rows of each task into one partition of a batch.

    Args:
        batch: rows with the columns `topic` and `partition`.
        topology: the operators, resolved.
        partitions: the input partitions that are read.
        slots: number of Spark tasks that can run at once.
    """
    inputs = sorted(partitions)
    if topology.merged:
        tasks = sorted({topology.task(partition) for partition in inputs})
        count = _spark_tasks(topology, inputs, slots)
        if count > 1:
            if len(inputs) > _TASKS_PER_SLOT * slots:
                batch = batch.coalesce(slots)
            numbers = {task: index % count for index, task in enumerate(tasks)}
            return batch.repartitionById(
                count, expr(task_number({partition: numbers[topology.task(partition)] for partition in inputs}))
            )
        return batch.coalesce(1)
    return batch.coalesce(slots) if len(inputs) > _TASKS_PER_SLOT * slots else batch


def waves(topology: Topology, partitions: Iterable[TopicPartition], slots: int) -> int:
    """Return how many Spark tasks of a routed batch run one after the other in a slot, at most.

    Example:
        >>> from streamrt.topology import TopologyBuilder
        >>> [waves(TopologyBuilder().build(), [TopicPartition("a", n) for n in range(count)], 2) for count in (2, 5, 6, 7)]
        [1, 3, 3, 1]
    """
    return max(1, -(-_spark_tasks(topology, partitions, slots) // slots))


def _spark_tasks(topology: Topology, partitions: Iterable[TopicPartition], slots: int) -> int:
    """Return the number of Spark tasks for the tasks of some input partitions."""
    tasks = {topology.task(partition) for partition in partitions} if topology.merged else set(partitions)
    return len(tasks) if len(tasks) <= _TASKS_PER_SLOT * slots else slots


def task_number(numbers: Mapping[TopicPartition, int]) -> str:
    """Return an SQL expression for the number of the Spark task of a row.

    Example:
        >>> task_number({TopicPartition("a", 1): 4, TopicPartition("a", 2): 5, TopicPartition("b", 0): 3})
        "CASE WHEN topic = 'a' THEN get(array(0, 4, 5), partition) WHEN topic = 'b' THEN get(array(3), partition) END"
    """
    topics: dict[str, dict[int, int]] = {}
    for partition, number in numbers.items():
        topics.setdefault(partition.topic, {})[partition.partition] = number
    cases = []
    for topic, known in topics.items():
        listed = ", ".join(str(known.get(partition, 0)) for partition in range(max(known) + 1))
        cases.append(f"WHEN topic = '{topic}' THEN get(array({listed}), partition)")
    return f"CASE {' '.join(cases)} END"
