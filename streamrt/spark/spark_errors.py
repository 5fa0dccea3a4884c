"""Finds the sentence that matters in Spark's long error messages."""

import re

from pyspark.errors import StreamingQueryException

from streamrt.secret import masked
from streamrt.slots.fork_client import KILLED

__all__ = ["spark_cause"]

_DEAD_WORKER = "Python worker exited unexpectedly"
_PYTHON_ERROR = re.compile(r"[A-Za-z_.]+(Error|Exception|Warning): \S|KeyboardInterrupt\b")


def spark_cause(error: Exception) -> str:
    r"""Return the relevant sentence of one of Spark's long error messages.

    Example:
        >>> spark_cause(Exception("Job aborted\n  File ...\nOSError: disk full\nat org.apache..."))
        'OSError: disk full'
        >>> spark_cause(Exception("An exception was thrown\n  File ...\nKeyboardInterrupt\nSQLSTATE: 38000"))
        'KeyboardInterrupt'
        >>> spark_cause(Exception("Job aborted\nPython worker exited unexpectedly (crashed)\nat java..."))
        'a process that runs tasks ended unexpectedly: it was killed, for instance for want of memory, or a function ended it'
        >>> spark_cause(Exception("Job aborted\nModuleNotFoundError: No module named 'geo'\nat java..."))[:47]
        "ModuleNotFoundError: No module named 'geo'; the"
    """
    text = str(error)
    if isinstance(error, StreamingQueryException):
        text = error.getMessage() or text
    if _DEAD_WORKER in text:
        return KILLED
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    causes = [line for line in lines if line.startswith("Caused by:")]
    cause = masked(((python or causes)[-1:] or lines or [type(error).__name__])[0])[:500]
    if cause.startswith("ModuleNotFoundError"):
        cause += (
            "; the Python of Spark's workers lacks the module: install it there, or name a Python that has it as "
            "spark.pyspark.python or PYSPARK_PYTHON"
        )
    return cause
