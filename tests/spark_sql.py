"""Spark SQL in a process of its own, in ANSI mode and UTC, for comparisons. `python -m tests.spark_sql` is that process.

Requests and answers are pickles on its standard input and output: a table and its name, or a query.
"""

import contextlib
import os
import pickle
import subprocess
import sys
from typing import Any

import pyarrow as pa

__all__ = ["SparkSQL", "SparkSQLError"]

_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # TIMESTAMP has no time zone in StreamRT.
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    # A machine at its limit takes longer than the usual 15 seconds.
    "spark.python.authenticate.socketTimeout": "600s",
    "spark.driver.memory": "1g",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # To compile code for a query takes longer than to run it without.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


class SparkSQLError(Exception):
    """Spark refuses a query, or fails while it runs; the condition of the error is its text."""


class SparkSQL:
    """The process, as long as this context is open.

    Example:
        ```python
        with SparkSQL() as spark:
            spark.create_view("t", pa.table({"a": [1, 2]}))
            spark.query("SELECT a + 1 AS b FROM t").to_pylist()
        ```
    """

    def __enter__(self) -> "SparkSQL":
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark_sql"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def create_view(self, name: str, table: pa.Table) -> None:
        """Make a table a view."""
        self._ask((name, _write(table)))

    def query(self, text: str) -> pa.Table:
        """Return the rows of a query.

        Raises:
            SparkSQLError: if it fails.
        """
        return pa.ipc.open_stream(self._ask(text)).read_all()

    def _ask(self, request: Any) -> Any:
        pipes = self._process.stdin, self._process.stdout
        assert pipes[0] is not None
        assert pipes[1] is not None
        pickle.dump(request, pipes[0])
        pipes[0].flush()
        failed, answer = pickle.load(pipes[1])
        if failed:
            raise SparkSQLError(answer)
        return answer


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("expressions")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        pickle.dump(_answer(session, request), answers)
        answers.flush()
    session.stop()


def _answer(session: Any, request: Any) -> tuple[bool, Any]:
    try:
        if isinstance(request, str):
            return False, _write(session.sql(request).toArrow())
        name, data = request
        session.createDataFrame(pa.ipc.open_stream(data).read_all()).coalesce(1).cache().createOrReplaceTempView(name)
        return False, None
    except Exception as error:
        condition = getattr(error, "getCondition", lambda: None)()
        # The innermost cause says most.
        return True, str(condition or str(error).rpartition("Caused by: ")[2].partition("\n")[0] or error)[:400]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        _serve()
