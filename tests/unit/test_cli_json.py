"""JSON output of commands, compared with the page `docs/cli-json.md`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import pytest

from streamrt.application.startup_plan import DeploymentPlan, StartOffset
from streamrt.cli import app as commands
from streamrt.control.state_answers import dict_of_answer
from streamrt.kafka.cluster.groups import GroupListing
from streamrt.kafka.completion_token import Offsets
from streamrt.queries.stored_state import StateAnswer, StateEntry, StoreListing
from streamrt.records import TopicPartition
from streamrt.runtime.driver.housekeeping.application_reset import ResetReport
from streamrt.runtime.driver.starting.layout_changes import Change, Kind
from streamrt.savepoints.format import SavedInput, SavedLog, SavedStore, Savepoint
from streamrt.savepoints.repartition import OtherGroup, Repartitioned
from streamrt.topics.dead_letter_queue import Handled
from tests.cli_json import FIELDS, check, find_differences, run
from tests.command_line import CliRunner, every_command, streamrt
from tests.unit.played import Played

ORDERS = TopicPartition("orders", 0)
PROGRAM = """
from streamrt import Application
app = Application("nowhere.invalid:1", consumer_group="shop", loglevel=None)
orders = app.dataframe(app.topic("orders"))
orders.group_by("customer", name="customer").apply(lambda value, state: value, stateful=True).to_topic(app.topic("out"))
"""


def test_the_page_has_each_command() -> None:
    with_json = {words for words, command in every_command() if "--json" in {o for p in command.params for o in p.opts}}
    assert FIELDS.keys() == with_json
    assert [command for command, fields in FIELDS.items() if not fields] == []


def test_differences_are_found() -> None:
    fields = {"a": "integer or null", "b": "array", "b[].c": "string", "d": "any, optional", "e": "object"}
    assert list(find_differences({"a": None, "b": [{"c": ""}], "e": {"x": 1}}, fields)) == []
    assert sorted(find_differences({"a": "1", "b": [{}], "f": 1}, fields)) == [
        "a is '1', and not ['integer', 'null']",
        "b[].c is missing",
        "e is missing",
        "f is not described",
    ]


def test_commands_that_need_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("STREAMRT_BROKER_ADDRESS", raising=False)
    (tmp_path / "json_shop.py").write_text(PROGRAM)
    run("init", "words")
    run("examples list")
    run("examples copy", "frost", "copied")
    run("explain", "E704")
    for each in streamrt("explain", "--json").json["errors"]:
        check("explain", each)
    planned = run("plan show", "json_shop:app")
    assert planned["topology"]["streams"][1]["stores"]
    done = streamrt("doctor", "--json")
    check("doctor", document := json.loads(done.out))
    assert done.code == (1 if document["problems"] else 0)


def test_commands_of_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_CATALOG_DIR", str(tmp_path / "catalog"))
    monkeypatch.delenv("STREAMRT_BROKER_ADDRESS", raising=False)
    assert run("table create", "orders", "id BIGINT, at TIMESTAMP", "--dry-run")["dry_run"] is True
    run("table create", "orders", "id BIGINT, at TIMESTAMP", "--time", "at")
    run("table alter", "orders", "--add", "n INT")
    assert run("table show", "orders")["usages"] == []
    for table in streamrt("table", "list", "--json").json["tables"]:
        check("table show", table)
    (tmp_path / "all.json").write_text(streamrt("catalog", "export").out)
    run("catalog import", tmp_path / "all.json", "--if-exists", "replace")
    run("catalog lineage")
    run("catalog forget", "late")
    run("table create", "people", "id BIGINT, PRIMARY KEY (id)", "--merge", "first")
    assert run("table release", "people")["group"] is None
    assert streamrt("table", "release", "people").out == "no application maintains people\n"
    run("table drop", "orders")


def test_commands_of_a_running_application(app: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMRT_CONTROL_URL", str(app.location))
    assert run("status")["ready"] is True
    run("pause", "orders")
    run("resume", "orders")
    assert run("checkpoint")["offsets"] == {"orders[0]": 5}
    run("stop")
    stopped = run("status", code=1)
    assert (stopped["ready"], stopped["status"]) == (False, "stopped")


def test_what_commands_print_that_need_a_broker_or_state() -> None:
    entries = (StateEntry("ann", "total", b"7"), StateEntry("ann", None, 7, 0, 60_000))
    change = Change(Kind.CHANGE, "topic totals", "will be created", "")
    saved = Savepoint(
        "before",
        "shop",
        1_700_000_000_000,
        "exactly-once",
        {"orders": SavedInput(None, 1, 0, {0: 5})},
        (),
        (SavedStore("orders", ("orders",), "default", None, SavedLog("log", 1, 1)),),
    )
    documents: dict[str, Any] = {
        "state stores": [asdict(StoreListing("default", "orders", 3, "state"))],
        "state get": dict_of_answer(StateAnswer("default", "orders", 0, entries, {ORDERS: 5})),
        "plan diff": DeploymentPlan("shop", "kafka:9092", (change,), (StartOffset("orders", 0, None, 0, 5),)).as_dict(),
        "groups list": {"groups": [asdict(GroupListing("shop", "stable", "classic"))]},
        "dlq replay": asdict(Handled(1, 2, 0, {"orders": 1})),
        "reset": ResetReport("shop", True, Offsets({ORDERS: 5})).as_dict(),
        "savepoint show": saved.as_dict(),
        "repartition": Repartitioned(
            "shop",
            12,
            False,
            {"orders": 6},
            (("orders", "default"),),
            False,
            (OtherGroup("audit", ("orders",), False, 5),),
        ).as_dict(),
    }
    for command, document in documents.items():
        check(command, orjson.loads(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)))


def test_a_command_that_fails_prints_nothing() -> None:
    done = CliRunner().invoke(commands, ["explain", "E999", "--json"])
    assert (done.exit_code, done.stdout) == (1, "")
