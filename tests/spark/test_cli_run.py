"""`streamrt run`: a process that runs an application of a module, with settings of three places."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.support import Kafka, Program, unique

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

RUN = """
import sys
from streamrt.cli import main

sys.argv[1:] = {arguments!r}
main()
"""
SHOP = """
from beside import double
from streamrt import Application


def enlarge(order):
    return {{"amount": double(order["amount"])}}


def make():
    app = Application()
    app.dataframe(app.topic({orders!r})).apply(enlarge).to_topic(app.topic({large!r}))
    return app
"""


def test_an_application_of_a_module_runs_to_the_end(
    kafka: Kafka, program: Callable[..., Program], tmp_path: Path
) -> None:
    orders, large, group = kafka.topic("orders"), kafka.topic("large"), unique("shop")
    kafka.produce(orders, [{"amount": 1}, {"amount": 2}])
    # Tasks import both modules, as the process that runs the application does.
    (tmp_path / "beside.py").write_text("def double(amount):\n    return 2 * amount\n")
    (tmp_path / "shop.py").write_text(textwrap.dedent(SHOP).format(orders=orders, large=large))
    (tmp_path / "shop.toml").write_text(
        'auto_offset_reset = "earliest"\nconsumer_group = "overruled"\nprocessing_mode = "resident"\n'
    )
    arguments = ["run", "shop:make", "--settings", "shop.toml", "--until", "end"]
    arguments += ["--broker", kafka.address, "--set", "spark_master=local[1]"]
    running = program(
        RUN.format(arguments=arguments), STREAMRT_CONSUMER_GROUP=group, STREAMRT_STATE_DIR=str(tmp_path / "state")
    )
    assert running.wait(180) == 0, running.err
    assert [orjson.loads(record.value or b"") for record in kafka.receive(large, 2)] == [{"amount": 2}, {"amount": 4}]
    assert group in kafka.admin.list_groups(30)
