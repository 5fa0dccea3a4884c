"""Output of an application on Spark about itself: log lines as JSON, from all of its processes, and traces."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.otlp import Collector, collector
from tests.support import PROCESSING_MODES, Kafka, Program, unique

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
CANARY = "canary-9e1c"

PROGRAM = """
import logging
from streamrt import Application, Tracing
from streamrt.connectors import Source

class Ticks(Source):
    def run(self):
        logging.getLogger("streamrt").info("ticks begin")
        self.produce(key="t", value=b"1")

def price(order):
    logging.getLogger("streamrt.shop").info("order at work")
    return {{"shop": order["shop"], "price": order["price"]}}

def skip(error, record, logger):
    logger.warning("no price")
    return True

for mode in {modes!r}:
    app = Application({address!r}, consumer_group={group!r} + mode, auto_offset_reset="earliest", spark_master="local[2]",
                      state_dir={state!r}, processing_mode=mode, commit_interval=0.5, loglevel="DEBUG", log_format="json",
                      on_processing_error=skip, tracing=Tracing(sample_ratio=0.0))
    app.dataframe(source=Ticks(name="ticks-" + mode))
    orders = app.dataframe(app.topic({source!r})).apply(price).group_by("shop")
    orders.apply(lambda order, state: order["price"], stateful=True).to_topic(app.topic({target!r}))
    # An order, by its shop, and a tick.
    app.run(count=2, timeout=300)
"""


@pytest.fixture
def received() -> Iterator[tuple[Collector, dict[str, str]]]:
    """A collector, and the variables with which a program finds it."""
    environment: dict[str, str] = {}
    with collector(environment.__setitem__) as made:
        yield made, environment


def test_all_processes_write_json_and_a_trace_goes_through_them(
    kafka: Kafka, program: Callable[..., Program], received: tuple[Collector, dict[str, str]]
) -> None:
    spans, environment = received
    environment["OTEL_EXPORTER_OTLP_HEADERS"] = f"api-key={CANARY}"
    source, target, group = kafka.topic("in", partitions=2), kafka.topic("out"), unique("group")
    headers = [("traceparent", f"00-{TRACE}-{CALLER}-01".encode())]
    kafka.produce(source, [{"shop": "a"}], partition=1)
    kafka.produce(source, [{"shop": "a", "price": 3}], partition=1, headers=headers)
    modes = PROCESSING_MODES
    text = PROGRAM.format(
        address=kafka.address, group=group, state=str(kafka.state_dir), source=source, target=target, modes=modes
    )
    started = program(text, **environment)
    assert started.wait() == 0, started.err
    lines: list[dict[str, Any]] = [json.loads(line) for line in started.err if line.startswith("{")]
    other = [line for line in started.err if not line.startswith("{")]
    assert not [line for line in other if "[streamrt" in line], "all lines of Python are JSON"
    for mode in modes:
        own = [line for line in lines if line.get("group") == group + mode]
        (begun,) = [line for line in own if line["message"] == "ticks begin"]
        at_work = [line for line in own if line["message"] == "order at work"]
        skipped = [line for line in own if line["message"] == "no price"]
        for line in (*at_work, *skipped):
            assert (line["stream"], line["partition"], line["topic"]) == (source, 1, source)
            assert line["operator"].startswith("apply-")
            assert isinstance(line["batch"], int)
        assert {line["offset"] for line in skipped} == {0}
        assert {line["offset"] for line in at_work} == {0, 1}
        assert begun["source"] == "ticks-" + mode
        assert begun["process"] != at_work[0]["process"]
        (first,) = [span for span in spans.spans(f"process {source}") if span.service == group + mode]
        (second,) = [span for span in spans.spans("process repartition") if span.service == group + mode]
        assert (first.trace_id, first.parent_id) == (TRACE, CALLER)
        assert (second.trace_id, second.parent_id) == (TRACE, first.span_id)
        commits = {span.span_id: span for span in spans.spans("commit") if span.service == group + mode}
        assert commits[first.links[0]].attributes["streamrt.end_offsets"] == [f"{source}[1]@2"]
    outputs = kafka.receive(target, len(modes))
    assert [json.loads(record.value or b"") for record in outputs] == [3] * len(modes)
    assert CANARY not in "".join([*started.err, *started.out])
