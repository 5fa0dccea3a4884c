"""The runner for each processing mode."""

from streamrt.config import ApplicationConfig
from streamrt.connectors import SparkSink
from streamrt.errors import ConfigurationError
from streamrt.spark.resident_run import ResidentRunner
from streamrt.spark.runner import SparkRunner
from streamrt.topology import Topology


def runner_for(config: ApplicationConfig, topology: Topology) -> type[SparkRunner] | type[ResidentRunner]:
    """Return the runner for an application.

    Args:
        config: the application's configuration.
        topology: the operators.

    Raises:
        ConfigurationError: if the application uses features that its processing mode does not have.
    """
    if config.processing_mode == "micro-batch":
        for stream in topology.streams:
            for store, strategy in topology.watermarks(stream).items():
                if strategy.alignment is not None:
                    raise ConfigurationError(
                        f"WatermarkStrategy(alignment=...) of store {store!r} needs processing_mode='resident': in "
                        "micro-batches, Spark decides how far each partition is read"
                    )
        return SparkRunner
    for node, sink in topology.sinks.items():
        if isinstance(sink, SparkSink):
            raise ConfigurationError(
                f"the sink {type(sink).__name__} (node {node}) writes each micro-batch as a Spark DataFrame, and there are "
                "none with processing_mode='resident': use processing_mode='micro-batch', or another sink"
            )
    return ResidentRunner
