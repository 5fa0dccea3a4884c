"""What unit tests share: an application that contacts nobody, and short ways to send records through it."""

from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Application, StreamingDataFrame, Topic
from streamrt.errors import ProcessingError
from streamrt.testing import TopologyTestDriver

START = 1_000_000
"""Wall clock of the drivers, in milliseconds."""

Output = tuple[Any, Any, int, Any]


def application(**settings: Any) -> Application:
    """Return an application; its broker does not exist and is never asked."""
    return Application("unused.invalid:9092", **{"consumer_group": "group", "loglevel": None, **settings})


class Stage:
    """An application with the topics `in` and `out`, and a dataframe on `in`."""

    def __init__(
        self, source: dict[str, Any] | None = None, out: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        self.app = application(**settings)
        self.source: Topic = self.app.topic("in", **(source or {}))
        self.out: Topic = self.app.topic("out", **(out or {}))
        self.sdf: StreamingDataFrame = self.app.dataframe(self.source)

    def drive(self) -> TopologyTestDriver:
        """Return a driver for the application as it is now."""
        return TopologyTestDriver(self.app, start=START)

    def outputs(self, *values: Any, **record: Any) -> list[Output]:
        """Send values through and return everything that leaves the branches."""
        driver = self.drive()
        for value in values:
            driver.pipe(self.source, value, **record)
        return driver.outputs()

    def values(self, *values: Any, **record: Any) -> list[Any]:
        """Send values through and return the values that leave the branches."""
        return [output[0] for output in self.outputs(*values, **record)]


def through(build: Callable[[StreamingDataFrame], Any], *values: Any, **record: Any) -> list[Any]:
    """Build something on a fresh dataframe, send values through, and return the values that leave its branches."""
    stage = Stage()
    build(stage.sdf)
    return stage.values(*values, **record)


def fails(stage: Stage, value: Any, **record: Any) -> str:
    """Send one value that an operator must refuse; return the message."""
    with pytest.raises(ProcessingError) as caught:
        stage.drive().pipe(stage.source, value, **record)
    return str(caught.value)
