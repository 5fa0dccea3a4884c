"""Spark jobs without input: their tasks get numbers. A job may run for long, in a separate thread."""

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator

from pyspark import SparkContext

logger = logging.getLogger("streamrt")


def run_on_numbers(
    context: SparkContext, work: Callable[[Iterable[int]], Iterator[bytes]], count: int, tasks: int
) -> list[bytes]:
    """Run a function in Python workers; return all results.

    The job is on an RDD: for a job on a DataFrame, Spark would load its optimizer and its code generator, which takes
    seconds.

    Args:
        context: the Spark context.
        work: called once in each task with its share of the numbers from 0.
        count: number of numbers.
        tasks: number of tasks that share them.
    """
    found: list[bytes] = context.parallelize(range(count), tasks).mapPartitions(work).collect()
    return found


class SparkJob:
    """Runs a job, which can be cancelled.

    Args:
        context: the Spark context.
        description: Spark's description of the job.
        run: makes Spark run the job, and returns when it is over.
    """

    def __init__(self, context: SparkContext, description: str, run: Callable[[], object]) -> None:
        self._context = context
        self._group = f"streamrt-{uuid.uuid4().hex}"
        self._description = description
        self._run = run
        self._done = threading.Event()
        self.error: Exception | None = None
        threading.Thread(target=self._run_job, name="streamrt-job", daemon=True).start()

    @property
    def done(self) -> bool:
        """Whether the job is over."""
        return self._done.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the job is over; return whether it is."""
        return self._done.wait(timeout_s)

    def cancel(self) -> None:
        """Let Spark kill the tasks of the job, even if it is only about to begin."""
        try:
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._group)
        except Exception as error:  # noqa: BLE001 - without its JVM the job is also over
            logger.debug("the job could not be cancelled: %s", error)

    def _run_job(self) -> None:
        try:
            # The job group applies to this thread and to the JVM thread that serves it.
            self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
            self._run()
        except Exception as error:  # noqa: BLE001 - passed to the thread that waits for it
            self.error = error
        finally:
            self._done.set()
