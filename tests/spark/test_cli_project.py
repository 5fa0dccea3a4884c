"""A new user's first hour: `streamrt init`, `dev`, `produce`, `consume`, and a change of the program."""

import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.command_line import streamrt
from tests.hosts import HostedProgram
from tests.spark.test_dev import dev, jvms, write
from tests.support import Kafka, Program, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


def test_a_new_project_runs_and_a_change_is_seen(
    kafka: Kafka, program: Callable[..., Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", kafka.address)
    group, texts, counts = unique("word-counts"), unique("texts"), unique("counts")
    assert streamrt("init", tmp_path / "project", "--name", group).code == 0
    app = tmp_path / "project" / "app.py"
    # Other tests use the same broker.
    text = app.read_text().replace('"texts"', f'"{texts}"').replace('"counts"', f'"{counts}"')
    write(app, text)
    running = program(dev(app), STREAMRT_STATE_DIR=str(tmp_path / "state"))
    wait_until(lambda: texts in kafka.admin.list_topics(30), what="the application creates its topics")
    assert (
        streamrt("produce", texts, "To be or not to be").out == f"wrote 1 record to {texts}\n  partition 0: offset 0\n"
    )

    def read(number: int) -> list[list[object]]:
        def look() -> list[list[object]]:
            lines = streamrt("consume", counts, "--json").lines
            return [[line["key"], line["value"]["count"]] for line in lines] if len(lines) >= number else []

        found: list[list[object]] = wait_until(look, what=f"{number} records")
        return found

    assert read(6) == [["to", 1], ["be", 1], ["or", 1], ["not", 1], ["to", 2], ["be", 2]]
    wait_until(lambda: streamrt("lag", group).out.endswith(f"total lag of {group}: 0 offsets\n"), what="the commit")
    write(app, text.replace("text.lower()", "text.upper()"))
    # Until it has stopped, the former version takes records.
    running.wait_for("app.py changed: restarting app.py")
    running.wait_for("stopped after 1 records")
    streamrt("produce", texts, "not to be")
    assert read(9)[6:] == [["NOT", 1], ["TO", 1], ["BE", 1]]
    assert jvms(running) == set()
    code, _ = running.end(signal.SIGINT)
    assert code == 0


@pytest.mark.parametrize("kind", ["table", "sink"])
def test_a_new_project_of_another_kind_runs(
    kind: str,
    kafka: Kafka,
    hosted: Callable[..., HostedProgram],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAMRT_BROKER_ADDRESS", kafka.address)
    group, orders, table = unique(kind), unique("orders"), f"shop.{unique('sales')}"
    project = tmp_path / "project"
    assert streamrt("init", project, "--kind", kind, "--name", group).code == 0
    app = project / "app.py"
    # Other tests use the same broker.
    app.write_text(app.read_text().replace('topic("orders")', f'topic("{orders}")').replace("shop.sales", table))
    running = hosted(app, project, STREAMRT_STATE_DIR=str(tmp_path / "state"))
    wait_until(lambda: orders in kafka.admin.list_topics(30), what="the application creates its topics")
    order = '{"id": 1, "customer": "ann", "amount": "9.50", "item": "cup", "pieces": 6}'
    assert streamrt("produce", orders, order).code == 0
    wait_until(lambda: kafka.committed(group, orders) == 1, what="the commit")
    if kind == "table":
        scanned = streamrt("table", "scan", table, "--catalog", project / "tables", "--format", "jsonl").lines
        assert scanned == [{"id": 1, "customer": "ann", "amount": "9.50"}]
    else:
        with closing(sqlite3.connect(project / "orders.sqlite")) as connection:
            assert connection.execute("SELECT id, item, pieces FROM orders").fetchall() == [(1, "cup", 6)]
    code, _ = running.end()
    assert code == 0, running.err
