"""The metrics of users' functions, as Prometheus takes them."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from streamrt.topology import Measured, MetricId

__all__ = ["function_families"]

_LABELS = ["group", "stream", "operator", "name"]


def function_families(group: str, values: Mapping[MetricId, Measured]) -> Iterator[Metric]:
    """Yield the metrics of functions: `name` is a label, so the names in programs cannot collide with other metrics.

    Args:
        group: the consumer group.
        values: what was measured.
    """
    counters = CounterMetricFamily("streamrt_function_counter", "Counters of users' functions.", labels=_LABELS)
    words = "Gauges of users' functions."
    gauges = GaugeMetricFamily("streamrt_function_gauge", words, labels=[*_LABELS, "partition"])
    words = "Number and sum of the values of users' distributions."
    summaries = SummaryMetricFamily("streamrt_function_distribution", words, labels=_LABELS)
    words = "Lowest value of a distribution since the start."
    least = GaugeMetricFamily("streamrt_function_distribution_min", words, labels=_LABELS)
    words = "Highest value of a distribution since the start."
    greatest = GaugeMetricFamily("streamrt_function_distribution_max", words, labels=_LABELS)
    for (stream, operator, name, partition), measured in sorted(values.items(), key=lambda item: str(item[0])):
        own = [group, stream, operator, name]
        if measured.kind == "counter":
            counters.add_metric(own, measured.total)
        elif measured.kind == "gauge":
            gauges.add_metric([*own, str(partition)], measured.total)
        else:
            summaries.add_metric(own, measured.count, measured.total)
            least.add_metric(own, measured.least)
            greatest.add_metric(own, measured.greatest)
    yield from (counters, gauges, summaries, least, greatest)
