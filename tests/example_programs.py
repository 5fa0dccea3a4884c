"""Examples as tests load them, and drivers for them, without Kafka and Spark."""

import importlib.util
from pathlib import Path
from types import ModuleType

from streamrt import Application
from streamrt.app import definition_of
from streamrt.testing import TopologyTestDriver
from streamrt.testing.connectors import MemorySourceStore, RecordingProducer

EXAMPLES = Path(__file__).parents[1] / "examples"
NOT_APPLICATIONS = {
    "demo",
    "endpoints",
    "sql_adhoc",
    "sql_and_python",
    "sql_views",
    "tables_cdc",
    "tables_keyed",
    "tables_log",
    "tables_lookup",
    "tables_maintained",
}
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in NOT_APPLICATIONS)


def load(name: str) -> ModuleType:
    """Import an example under a name that no one else can import, as it is with `__main__`: functions travel by value."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_app(module: ModuleType) -> Application:
    return Application(
        broker_address="unused:9092", **getattr(module, "CALLBACKS", {}), **getattr(module, "SETTINGS", {})
    )


def make_driver(name: str, start: int = 0) -> TopologyTestDriver:
    module = load(name)
    app = make_app(module)
    module.build(app)
    return TopologyTestDriver(app, start=start)


def feed(app: Application, driver: TopologyTestDriver) -> None:
    """Run the source of an application until it ends, and pass its records on."""
    (process,) = definition_of(app).sources.processes
    producer = RecordingProducer()
    process.source.configure(process.topic, producer, store_partition=MemorySourceStore())
    process.source.start()
    for record in producer.records:
        driver.pipe_bytes(record.topic, record.value, key=record.key, timestamp=record.timestamp)
