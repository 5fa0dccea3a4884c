"""`streamrt plan` without a broker: what it shows, and what committed offsets tell about a former version."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from streamrt.kafka import TopicConfig
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.models import TopicPartition
from streamrt.runtime.driver.starting.layout_changes import (
    Deployed,
    Kind,
    guarantee_changes,
    input_changes,
    store_changes,
    topic_changes,
)
from streamrt.runtime.metadata import CommitMetadata
from tests.command_line import streamrt

_PROGRAM = """
from streamrt import Application, State, DeadLetters
from streamrt.kafka import TopicConfig
from connectors_of_this_test import sink, plain

def count(value: dict, state: State) -> dict:
    return value

app = Application("nowhere.invalid:1", consumer_group="shop", loglevel=None, on_error={"process": DeadLetters()})
orders = app.dataframe(app.topic("orders", config=TopicConfig(3, 1)))
orders.group_by("customer", name="customer").apply(count, stateful=True).to_topic(app.topic("totals"))
orders.sink(sink)
orders.sink(plain)
exact = Application(
    "nowhere.invalid:1", consumer_group="shop", loglevel=None, processing_guarantee="exactly-once", on_error="skip",
    use_changelog_topics=False,
)
exact.dataframe(exact.topic("orders")).apply(count, stateful=True)
nothing = 3
"""
_SINKS = """
from streamrt.connectors.sql.sqlite_sink import SQLiteSink
sink = SQLiteSink("shop.sqlite", "orders")
plain = SQLiteSink("shop.sqlite", "others", position_table=None)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "planned_shop.py").write_text(_PROGRAM)
    (tmp_path / "connectors_of_this_test.py").write_text(_SINKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "planned_shop"


def test_an_application_is_shown_without_a_broker(program: str) -> None:
    shown = streamrt("plan", f"{program}:app").out
    assert shown.startswith("shop at nowhere.invalid:1: at-least-once, micro-batch\n")
    assert "store default.customer, changelog changelog__shop--repartition.orders.customer--default" in shown
    records = (
        "records: at least once; after a crash, those of the last 5 s are processed again: outputs may repeat"
        ", and state may count them twice"
    )
    for line in (
        records,
        "state: restored from changelog topics, on any machine",
        "sink orders: each value once, by the positions that are stored beside the values",
        "sink others: each value at least once; after a crash, values may come again",
        "errors: process errors go to dead-letters__shop; any other error ends the application",
    ):
        assert line in shown.splitlines()
    exact = streamrt("plan", "show", f"{program}:exact").out
    assert "records: exactly once; outputs, state and offsets are committed together" in exact
    assert "state: on the disk of one machine alone" in exact
    assert "errors: deserialize errors skip the record; process errors skip the record" in exact


@pytest.mark.rows("PF-A7")
def test_the_other_forms(program: str) -> None:
    assert streamrt("plan", f"{program}:app", "--format", "mermaid").out.startswith("flowchart TD\n")
    document = streamrt("plan", f"{program}:app", "--json").json
    assert document == streamrt("plan", f"{program}:app", "--format", "json").json
    roles = {topic["name"]: topic["role"] for topic in document["topics"]}
    assert roles == {
        "orders": "input",
        "totals": "output",
        "dead-letters__shop": "dead letters",
        "repartition__shop--orders--customer": "repartition",
        "changelog__shop--repartition.orders.customer--default": "changelog",
    }
    assert document["topology"]["streams"][0]["name"] == "orders"


def test_what_is_no_application_is_one_sentence(program: str) -> None:
    assert "is a value of type int" in streamrt("plan", f"{program}:nothing").sentence
    assert "names no application" in streamrt("plan", "diff", program).sentence
    assert streamrt("plan", "diff").code == 2
    assert "nowhere.invalid:1" in streamrt("plan", "diff", f"{program}:app", "--timeout", "0.5").sentence


def deployed(stores: Mapping[str, Mapping[str, str | None]], claim: int = 0) -> Deployed:
    metadata = CommitMetadata(stores, first_counts={"orders": 2})
    place = TopicPartition("orders", 0)
    return Deployed.of(
        {
            place: CommittedOffset(7, metadata.encode(place, claim=claim) or ""),
            TopicPartition("x", 0): CommittedOffset(None),
        }
    )


def test_stores() -> None:
    before = deployed({"orders": {"a": "x1", "b": "x2"}})
    kept = {("orders", name): ["orders"] for name in "ab"}

    def kinds(stores: dict[tuple[str, str], list[str]], *, changelogs: bool = True) -> list[tuple[str, str]]:
        found = store_changes(before, stores, changelogs=changelogs)
        return [(each.kind.value, each.subject) for each in found]

    a, b = "store 'a' of orders", "store 'b' of orders"
    assert kinds(kept) == [("ok", a), ("ok", b)]
    assert kinds({("orders", "a"): ["orders"]}) == [("loses state", b), ("ok", a)]
    assert kinds({**kept, ("orders", "c"): ["orders"]})[-1] == ("change", "store 'c' of orders")
    assert kinds(kept, changelogs=False) == [("loses state", a), ("loses state", b)]
    detail = [each.detail for each in store_changes(before, {("orders", "c"): ["orders"]}, changelogs=True)]
    assert "if it was renamed to 'c'" in detail[0]
    assert detail[-1].startswith("is new: it begins empty at the committed offsets")
    assert [each.detail for each in store_changes(before, {("new", "c"): ["new"]}, changelogs=True)][-1] == "is new"


def test_stores_that_are_known_by_digests_alone() -> None:
    names = [f"store-{number:0100d}" for number in range(60)]
    before = deployed({"orders": dict.fromkeys(names, "x1")})
    assert not before.stores
    now = {("orders", name): ["orders"] for name in names}
    assert {each.kind for each in store_changes(before, now, changelogs=True)} == {Kind.OK}
    del now["orders", names[0]]
    (lost,) = (each for each in store_changes(before, now, changelogs=True) if each.kind is not Kind.OK)
    assert (lost.kind, lost.subject) == (Kind.LOSES_STATE, "stores")
    assert "does not have 1 of the stores" in lost.detail


@pytest.mark.parametrize(
    ("claim", "now", "kind", "words"),
    [
        (7, "at-least-once", Kind.OK, "as before"),
        (0, "exactly-once", Kind.OK, "as before"),
        (7, "exactly-once", Kind.CHANGE, "counted twice before"),
        (0, "at-least-once", Kind.CHANGE, "outputs may repeat"),
    ],
)
def test_the_guarantee(claim: int, now: str, kind: Kind, words: str) -> None:
    (found,) = guarantee_changes(deployed({"orders": {"a": "x1"}}, claim=claim), now)  # type: ignore[arg-type]
    assert found.kind is kind
    assert words in found.detail


def test_without_state_nothing_tells_the_former_guarantee() -> None:
    assert list(guarantee_changes(deployed({}), "exactly-once")) == []


def test_inputs() -> None:
    before = deployed({})
    details = {
        each.subject: each.detail
        for each in input_changes(before, {"orders": 3, "new": 1, "made": 2}, {"orders": 2}, {"made"})
    }
    assert "has 3 partitions, and had 2 when the group began" in details["input orders"]
    assert details["input new"] == "is added: 1 partition"
    assert details["input made"] == "does not exist, and will be created with 2 partitions"
    (first,) = input_changes(Deployed(), {"orders": 3}, {}, ())
    assert first.detail == "is read for the first time: 3 partitions"
    (gone,) = input_changes(before, {}, {}, ())
    assert "from offset 7 on" in gone.detail


def test_options_that_topics_got_when_they_were_created() -> None:
    wanted = {"changelog": TopicConfig(1, 1, {"max.message.bytes": "5000000", "cleanup.policy": "compact"})}
    actual = {"changelog": TopicConfig(1, 1, {"max.message.bytes": "1000000", "cleanup.policy": "compact"})}
    (found,) = topic_changes(wanted, actual, {})
    assert found.kind is Kind.WARNING
    assert found.remedy == "set max.message.bytes=5000000"
    assert [each.kind for each in topic_changes(wanted, {**wanted}, {})] == [Kind.OK]
    assert list(topic_changes(wanted, {"changelog": None}, {})) == []
