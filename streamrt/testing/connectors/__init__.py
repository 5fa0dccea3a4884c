"""Conformance suites for sinks and sources, StreamRT's and yours, and test doubles for sources.

Subclass a suite in a test module, give the subclass a name that begins with `Test`, and define what it tests. pytest
collects the inherited tests.

Example:
    ```python
    class TestTableSink(BatchingSinkConformance):
        @pytest.fixture(autouse=True)
        def table(self, tmp_path):
            self.path = tmp_path / "table.sqlite"

        def make(self) -> BatchingSink:
            return TableSink(self.path)

        def written(self) -> list[Written]:
            return [Written(*row) for row in sqlite3.connect(self.path).execute("SELECT ... ORDER BY rowid")]
    ```
"""

from streamrt.testing.connectors.sinks import BatchingSinkConformance, Written
from streamrt.testing.connectors.sources import (
    BaseSourceConformance,
    MemorySourceStore,
    RecordingProducer,
    RunningSource,
    SourceConformance,
    SourceRecord,
    StatefulSourceConformance,
)
from streamrt.testing.connectors.transactional import TransactionalSinkConformance

__all__ = [
    "BaseSourceConformance",
    "BatchingSinkConformance",
    "MemorySourceStore",
    "RecordingProducer",
    "RunningSource",
    "SourceConformance",
    "SourceRecord",
    "StatefulSourceConformance",
    "TransactionalSinkConformance",
    "Written",
]
