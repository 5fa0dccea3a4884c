"""Common parts of both runners on Spark."""

import threading
from pathlib import Path
from typing import Any

import pytest

from streamrt import ConnectionConfig
from streamrt.errors import RunnerError, SinkBackpressureError, SinkError
from streamrt.kafka import TopicAdmin
from streamrt.runs.resident_run import ResidentRunner
from streamrt.runs.runner_settings import RunContext, RunSettings, StopConditions
from streamrt.runs.services import DriverServices
from streamrt.runtime.driver.life.lifecycle import LifeCycle, RunControl
from streamrt.runtime.driver.observation.display import Display
from streamrt.runtime.driver.observation.progress import Progress
from streamrt.spark.runner import SparkRunner
from streamrt.spark.sessions.parallel_start import SparkStart
from streamrt.spark.sessions.spark_session import SparkEnvironment
from tests.unit.apps import Stage, completed


@pytest.fixture
def run() -> RunContext[SparkEnvironment]:
    stage = Stage()
    stage.sdf.to_topic(stage.out)
    spec, config, progress = completed(stage.app), stage.app.config, Progress()
    connection = ConnectionConfig(bootstrap_servers="unused.invalid:9092")
    control = RunControl(LifeCycle(), lambda: ["in"])
    return RunContext(
        config,
        RunSettings(connection, {}, {}, {}, "shop-0", None, {"in": 1}),
        spec,
        SparkStart(config, connection, {}, None, progress, control),
        TopicAdmin(connection),
        StopConditions(),
        threading.Event(),
        threading.Event(),
        progress,
        control,
        Display(spec.topology),
    )


def paused() -> SinkError:
    error = SinkError("the sink paused")
    error.__cause__ = SinkBackpressureError(1.0)
    return error


def test_a_pause_of_a_sink_is_no_failure_once_the_application_is_stopped(run: RunContext[SparkEnvironment]) -> None:
    services = DriverServices(run)
    assert not services.is_stopped_pause(paused())
    run.stop.set()
    assert services.is_stopped_pause(paused())
    assert not services.is_stopped_pause(SinkError("the disk is full"))
    assert not services.is_stopped_pause(RuntimeError())


def test_work_that_spark_gives_up_is_started_again_three_times(
    run: RunContext[SparkEnvironment], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    services = DriverServices(run)
    session: Any = None
    services.begin(SparkEnvironment(session, 2, tmp_path))
    services.closing.set()
    for restarts in range(3):
        services.allow_restart("query", OSError("disk full"), restarts)
    assert caplog.messages == ["Spark gave the query up (disk full); restarting from the committed offsets"] * 3
    with pytest.raises(RunnerError, match="Spark gave the tasks up 3 times without progress: disk full"):
        services.allow_restart("tasks", OSError("disk full"), 3)


@pytest.mark.parametrize("runner", [SparkRunner, ResidentRunner])
def test_runners_contact_nobody_before_they_run(
    runner: type[SparkRunner] | type[ResidentRunner], run: RunContext[SparkEnvironment]
) -> None:
    runner(run)
    run.admin.close()
