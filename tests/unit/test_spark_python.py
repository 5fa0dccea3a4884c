"""Which Python Spark starts workers with."""

import sys

import pytest

from streamrt.spark.sessions.spark_session import worker_python


@pytest.mark.parametrize(
    ("configured", "environment", "expected"),
    [
        (None, None, sys.executable),
        (None, "/opt/python", "/opt/python"),
        ("/srv/python", None, "/srv/python"),
        ("/srv/python", "/opt/python", "/srv/python"),
    ],
)
def test_what_is_set_wins_over_the_python_of_this_process(
    monkeypatch: pytest.MonkeyPatch, configured: str | None, environment: str | None, expected: str
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/concerns/the/driver/alone")
    if environment is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", environment)
    assert worker_python(configured) == expected
