"""The layout of a group: its format, and what becomes of a store in which another version keeps something else."""

import contextlib
import json
import logging
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamrt import Application, relations
from streamrt.app import definition_of
from streamrt.errors import StateError
from streamrt.models import TopicPartition
from streamrt.runtime.driver.starting.group_layout import LayoutTopic, _is_abandoned, _kept_in, _warn_of_other_contents
from streamrt.runtime.layout_record import (
    GroupLayout,
    LaidInput,
    LaidStore,
    decode_position,
    merged_layout,
    position_key,
)
from streamrt.topics import TopicConfig
from streamrt.topology import Operator
from streamrt.windows import Count, CountTrigger, Mean, Sum

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(st.sampled_from(["v", "group", "inputs", "stores", "queries", "id"]), each)
    ),
    max_leaves=8,
)
LAYOUT = GroupLayout(
    "shop",
    {"orders": LaidInput("x1", 2)},
    {("orders", "days"): LaidStore("changelog__x", "x2", 2, ("FixedWindow", "n: Count"))},
    {"totals": "5e0f"},
)


@given(st.binary(max_size=60) | JSON.map(lambda document: json.dumps(document).encode()))
def test_hostile_bytes_are_refused(data: bytes) -> None:
    for decode in (GroupLayout.decode, decode_position):
        with pytest.raises(StateError, match=r"the topic layout__shop"):
            decode(data, "layout__shop")


@given(st.integers(0, 200), st.binary(min_size=1, max_size=1))
def test_a_damaged_layout_is_read_or_refused(at: int, byte: bytes) -> None:
    whole = LAYOUT.encode()
    # Any other error would be one that names no topic.
    with contextlib.suppress(StateError):
        GroupLayout.decode(whole[:at] + byte + whole[at + 1 :], "layout__shop")


def test_what_a_version_lacks_stays_for_a_later_one() -> None:
    now = GroupLayout("shop", {"bills": LaidInput("x7", 1)}, {("bills", "default"): LaidStore("c", "x8", 1)})
    merged = merged_layout(LAYOUT, now)
    assert merged.inputs.keys() == {"orders", "bills"}
    assert merged.stores.keys() == {("orders", "days"), ("bills", "default")}
    assert merged_layout(None, now) == now
    assert position_key(TopicPartition("orders", 1)) == b'["orders",1]'


def kept(build: Any) -> tuple[str, ...]:
    """Return what is kept in the only store of an application."""
    app = Application(broker_address="localhost:1", consumer_group="shop", loglevel=None)
    build(app.dataframe(app.topic("orders", config=TopicConfig(2, 1))), app)
    topology = definition_of(app).topology.resolve({"orders": 2, "prices": 2})
    (found,) = ((scope, store.name) for scope in topology.scopes for store in topology.stores(scope))
    return _kept_in(topology, *found)


def warnings(
    before: tuple[str, ...], after: tuple[str, ...], caplog: pytest.LogCaptureFixture, *, rows: bool = False
) -> list[str]:
    former, now = (GroupLayout("g", {}, {("orders", "days"): LaidStore("c", "x", 2, each)}) for each in (before, after))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "streamrt"):
        _warn_of_other_contents(former, now, [("orders", "days")] if rows else [])
    return caplog.messages


@pytest.mark.parametrize(
    ("before", "after", "gone", "new"),
    [
        ({"n": Count()}, {"n": Sum("price")}, "n: Count", "n: Sum/price"),
        ({"n": Sum("price")}, {"n": Sum("cost")}, "n: Sum/price", "n: Sum/cost"),
        ({"n": Count()}, {"n": Count(), "mean": Mean("price")}, "", "mean: Mean/price"),
        ({"n": Count(), "mean": Mean("price")}, {"n": Count()}, "mean: Mean/price", ""),
    ],
)
def test_a8_another_aggregate_under_the_same_name_is_warned_of(
    before: dict[str, Any], after: dict[str, Any], gone: str, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    versions = [
        kept(lambda sdf, _, each=each: sdf.tumbling_window(10_000, name="days").agg(**each).final())
        for each in (before, after)
    ]
    (said,) = warnings(versions[0], versions[1], caplog)
    assert (f"does not have {gone} any more" in said) is bool(gone)
    assert (f"has {new}, which is new" in said) is bool(new)
    assert warnings(versions[0], versions[0], caplog) == []


def window(duration: int = 10_000, grace: int = 0) -> Any:
    return lambda sdf, _: sdf.tumbling_window(duration, grace_ms=grace, name="days").count().final()


def joined(**options: Any) -> Any:
    def build(sdf: Any, app: Application) -> None:
        prices = app.dataframe(app.topic("prices", config=TopicConfig(2, 1)))
        sdf.join_interval(
            prices, on_merge=lambda left, right: left, **{"grace_ms": 5_000, "backward_ms": 10, **options}
        )

    return build


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (window(), window(grace=5), "does not have grace_ms=0 any more and has grace_ms=5, which"),
        (window(), window(20_000), "does not have duration_ms=10000, step_ms=10000 any more and has duration_ms=20000"),
        (window(), lambda sdf, _: sdf.session_window(10_000, name="days").count().final(), "FixedWindow"),
        (
            lambda sdf, _: sdf.tumbling_window(10_000).count().trigger(CountTrigger(2)),
            lambda sdf, _: sdf.tumbling_window(20_000).count().trigger(CountTrigger(2)),
            "10000",
        ),
        (joined(), joined(grace_ms=timedelta(seconds=9)), "does not have grace_ms=5000 any more and has grace_ms=9000"),
        (joined(), joined(forward_ms=7), "does not have forward_ms=0 any more and has forward_ms=7"),
    ],
)
def test_a8_another_shape_under_the_same_name_is_warned_of(
    before: Any, after: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    (text,) = warnings(kept(before), kept(after), caplog)
    assert said in text
    assert warnings(kept(before), kept(before), caplog) == []


TableOf = Callable[[Any, Any], Any]


def kept_rows(define: TableOf, partitions: int = 2) -> tuple[str, ...]:
    """Return what is kept in the stores of an application with two tables."""
    app = Application(broker_address="localhost:1", consumer_group="shop", loglevel=None)
    define(*(app.table(app.topic(name, config=TopicConfig(partitions, 1))) for name in ("orders", "prices")))
    topology = definition_of(app).topology.resolve({"orders": partitions, "prices": partitions})
    stores = [(topology.scope(node), store.name) for node in topology.nodes for store in node.operator.stores()]
    return tuple(text for each in stores for text in _kept_in(topology, *each))


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (lambda a, b: a.join(b), lambda a, b: b.join(a), "input 1 table of orders"),
        (lambda a, b: a.join(b), lambda a, b: a.join(b, "outer"), "does not have inner"),
        (lambda a, b: a.join(b), lambda a, b: a[a["n"] > 5].join(b), "table of orders > filter (n > 5)"),
        (lambda a, b: a.filter(len).join(b), lambda a, b: a.apply(len).join(b), "orders > apply len"),
        (
            lambda a, b: a.group_by("n").agg(all=Count()),
            lambda a, b: a[["n"]].group_by("n").agg(all=Count()),
            "orders > apply",
        ),
        (
            lambda a, b: a.group_by("n").top(3, by="m"),
            lambda a, b: a.filter(len).group_by("n").top(3, by="m"),
            "filter",
        ),
        (lambda a, b: a.join(b, on="n"), lambda a, b: a.join(b.filter(len), on="n"), "prices > filter len"),
    ],
)
def test_what_is_above_rows_is_compared(
    before: TableOf, after: TableOf, said: str, partitions: int, caplog: pytest.LogCaptureFixture
) -> None:
    versions = [kept_rows(define, partitions) for define in (before, after)]
    (text,) = warnings(versions[0], versions[1], caplog, rows=True)
    assert said in text
    assert "streamrt reset" in text
    assert warnings(versions[0], versions[0], caplog, rows=True) == []
    # Of earlier versions of StreamRT, it is not known.
    assert warnings((), versions[0], caplog, rows=True) == []


def test_operators_on_rows_say_that_they_keep_them() -> None:
    classes = (each for each in vars(relations).values() if type(each) is type(Operator) and issubclass(each, Operator))
    silent = {each.__name__ for each in classes if each.stores is not Operator.stores and each.keeps_rows is False}
    # They get records, and not rows: captured changes, and requests.
    assert silent == {"ApplyChanges", "Maintain"}


def test_a8_functions_with_state_are_not_compared() -> None:
    assert kept(lambda sdf, _: sdf.apply(lambda value, state: value, stateful=True)) == ()
    assert kept(lambda sdf, _: sdf.reduce(lambda old, new: new)) == ()


class _Admin:
    """Answers requests for ids in order, the last one for ever."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)

    def topic_ids(self, topic_names: Collection[str], timeout: float) -> dict[str, str | None]:
        return dict.fromkeys(topic_names, self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])


@pytest.mark.parametrize(
    ("answers", "abandoned"),
    [(["id"], False), ([None, None, "id"], False), (["old", "id"], False), ([None], True), (["new"], True)],
)
def test_a3_a_layout_is_abandoned_only_if_brokers_repeat_it(answers: list[str | None], abandoned: bool) -> None:
    layout = GroupLayout("g", {}, {("orders", "default"): LaidStore("log", "id", 3, ())})
    admin: Any = _Admin(*answers)
    connection: Any = None
    topic = LayoutTopic(admin, connection, "g", 1.0)
    assert _is_abandoned(topic, layout) is abandoned
