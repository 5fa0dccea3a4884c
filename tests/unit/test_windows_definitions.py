"""How windows are defined: what is refused, names of stores, and what a topology says of them."""

import copy
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import cloudpickle
import pytest

from streamrt.errors import ConfigurationError, InvalidOperationError, UnfinishedWindowError
from streamrt.state import MemoryStore
from streamrt.state.transactions.timed import TimedTransaction
from streamrt.topics.internal import changelog_topic_name
from streamrt.topology import WatermarkStrategy
from streamrt.windows import Aggregator, Collect, Count, Earliest, Reduce, Sum
from tests.unit.apps import Stage


class Unmergeable(Aggregator):
    def initialize(self) -> int:
        return 0

    def agg(self, old: int, new: Any, timestamp: int) -> int:
        return old + 1

    def result(self, value: int) -> int:
        return value


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda sdf: sdf.tumbling_window(0), "tumbling_window.duration_ms=.*must be 1 ms or more, got 0"),
        (lambda sdf: sdf.tumbling_window(True), "int of milliseconds or a timedelta, got bool"),
        (lambda sdf: sdf.tumbling_window(1.5), "got float"),
        (lambda sdf: sdf.tumbling_window(timedelta(microseconds=499)), "must be 1 ms or more, got 0"),
        (lambda sdf: sdf.tumbling_window(timedelta(0)), "must be 1 ms or more"),
        (lambda sdf: sdf.tumbling_window(10, grace_ms=-1), "grace_ms=.*must be 0 ms or more, got -1"),
        (lambda sdf: sdf.hopping_window(10, 10), r"step_ms=10\): step_ms must be less than the duration of 10 ms"),
        (lambda sdf: sdf.hopping_window(10, 0), "step_ms=.*must be 1 ms or more"),
        (lambda sdf: sdf.sliding_window(0), "sliding_window.duration_ms"),
        (lambda sdf: sdf.session_window(0), "inactivity_gap_ms"),
        (lambda sdf: sdf.tumbling_count_window(1), "at least 2, got 1"),
        (lambda sdf: sdf.tumbling_count_window(2.0), "number of records"),
        (lambda sdf: sdf.hopping_count_window(2, 0), "at least 1, got 0"),
        (lambda sdf: sdf.hopping_count_window(2, 3), "at most the count of 2"),
        (lambda sdf: sdf.sliding_count_window(1), "at least 2"),
        (lambda sdf: sdf.tumbling_window(10, name=""), "letters, digits"),
        (lambda sdf: sdf.tumbling_window(10, name="a.b"), "letters, digits"),
        (lambda sdf: sdf.tumbling_window(10, name="a" * 200).sum().final(), "120"),
        (lambda sdf: sdf.tumbling_window(10).sum().final(closing_strategy="never"), "'watermark'"),
        (lambda sdf: sdf.tumbling_window(10).sum().final(idle_timeout_ms=10_000), "only closing_strategy='watermark'"),
        (lambda sdf: sdf.tumbling_window(10).sum().final("watermark", idle_timeout_ms=0), "idle_timeout_ms"),
        (lambda sdf: sdf.tumbling_window(10).sum().final(when_all_idle="hold"), "only closing_strategy='watermark'"),
        (lambda sdf: sdf.tumbling_window(10).sum().final("watermark", when_all_idle="stop"), "'advance'.*'hold'"),
    ],
)
def test_values_that_make_no_sense_are_refused(define: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        define(Stage().sdf)


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda sdf: sdf.tumbling_window(10, on_late=5), "tumbling_window.on_late=.*needs a function"),
        (lambda sdf: sdf.hopping_window(10, 5, before_update=5), "before_update"),
        (lambda sdf: sdf.tumbling_window(10, after_update=5), "after_update"),
        (lambda sdf: sdf.session_window(10, on_late=5), "on_late"),
        (lambda sdf: sdf.tumbling_window(10).reduce(1, 2), "reducer"),
        (lambda sdf: sdf.tumbling_window(10).reduce(max, 2), "initializer"),
        (lambda sdf: sdf.tumbling_window(10).agg(), "at least one"),
        (lambda sdf: sdf.tumbling_window(10).agg(start=Sum()), "already have start and end"),
        (lambda sdf: sdf.tumbling_window(10).agg(x=5), r"agg\(x=\.\.\.\) needs an object of Sum"),
        (lambda sdf: sdf.tumbling_window(10).agg(x=Sum), "got the class Sum"),
        (lambda sdf: Sum(5), "name of a column"),  # type: ignore[arg-type]
        (lambda sdf: sdf.tumbling_window(10).collect().current(), "current.* cannot emit windows that collect"),
        (lambda sdf: sdf.sliding_count_window(2).agg(n=Count(), all=Collect()).current(), "use final"),
        (lambda sdf: sdf.session_window(10).reduce(max, abs), r"reduce\(\) needs a merger"),
        (lambda sdf: sdf.session_window(10).agg(n=Count(), x=Unmergeable()), "x need a merge"),
    ],
)
def test_definitions_without_a_meaning_are_refused(define: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(InvalidOperationError, match=message):
        define(Stage().sdf)


@pytest.mark.parametrize(
    ("define", "store"),
    [
        (lambda sdf: sdf.tumbling_window(1000).sum().final(), "tumbling_window_1000_sum"),
        (lambda sdf: sdf.tumbling_window(timedelta(seconds=1)).mean().current(), "tumbling_window_1000_mean"),
        (lambda sdf: sdf.hopping_window(2000, 1000).count().final(), "hopping_window_2000_1000_count"),
        (lambda sdf: sdf.sliding_window(1500).max().final(), "sliding_window_1500_max"),
        (lambda sdf: sdf.session_window(10).collect().final(), "session_window_10_collect"),
        (lambda sdf: sdf.tumbling_window(1000, name="a").count().final(), "a_tumbling_window_1000_count"),
        (lambda sdf: sdf.tumbling_window(1000).agg(n=Count()).final(), "tumbling_window_1000"),
        (lambda sdf: sdf.tumbling_window(10).reduce(max, abs).final(), "tumbling_window_10_reduce"),
        (lambda sdf: sdf.tumbling_count_window(3).sum().final(), "tumbling_count_window_sum"),
        (lambda sdf: sdf.hopping_count_window(3, 3, name="b").first().final(), "b_hopping_count_window_first"),
        (lambda sdf: sdf.sliding_count_window(3).latest().final(), "sliding_count_window_latest"),
        (lambda sdf: sdf.group_by("who").tumbling_window(10).last().final(), "tumbling_window_10_last.who"),
    ],
)
def test_stores_are_named_after_window_and_aggregation(define: Callable[[Any], Any], store: str) -> None:
    stage = Stage()
    frame = define(stage.sdf)
    (found,) = stage.app.topology.stores(frame.stream_id)
    assert found.name == store
    assert found.transaction is TimedTransaction


def test_the_changelog_behind_a_grouping_goes_without_its_name() -> None:
    name = changelog_topic_name("shop", "repartition__shop--orders--customer", "tumbling_window_1000_sum.customer")
    assert name == "changelog__shop--repartition.orders.customer--tumbling_window_1000_sum"


def test_the_kind_of_store_is_that_of_the_dataframe() -> None:
    stage = Stage()
    stage.sdf.register_store(MemoryStore)
    stage.sdf.tumbling_window(10).sum().final()
    kinds = {store.name: store.store_type for store in stage.app.topology.stores("in")}
    assert kinds["tumbling_window_10_sum"] is MemoryStore


def test_the_same_window_twice_is_refused_unless_one_has_a_name() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(10).sum().final()
    with pytest.raises(InvalidOperationError, match=r"already has .*'tumbling_window_10_sum'.*name='...'"):
        stage.sdf.filter(bool).tumbling_window(10).sum().current()
    stage.sdf.tumbling_window(10, name="other").sum().final()
    stage.sdf.tumbling_window(10).count().final()
    stage.sdf.group_by("who").tumbling_window(10).sum().final()
    other = stage.app.dataframe(stage.app.topic("other"))
    other.tumbling_window(10).sum().final()


def test_only_watermarks_ask_for_watermarks() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(10).sum().final()
    stage.sdf.tumbling_window(10).count().final(closing_strategy="partition")
    stage.sdf.tumbling_window(10).min().final(closing_strategy="watermark")
    stage.sdf.session_window(10).min().current("watermark", timedelta(minutes=1), when_all_idle="hold")
    assert stage.app.topology.watermarks("in") == {
        "tumbling_window_10_min": WatermarkStrategy(),
        "session_window_10_min": WatermarkStrategy(0, 60_000, "hold"),
    }


def test_windows_survive_pickling_and_say_what_they_are() -> None:
    stage = Stage()
    stage.sdf.tumbling_window(10, on_late=lambda *_: False).reduce(lambda old, new: old, abs).final()
    stage.sdf.session_window(10).agg(n=Count("x"), e=Earliest(), all=Collect()).final()
    copy = pickle.loads(cloudpickle.dumps(stage.app.topology))
    words = [node.operator.describe() for node in copy.nodes]
    assert words == ["in", "tumbling_window_10_reduce, final", "session_window_10, final"]


def test_state_suffixes_tell_aggregations_apart() -> None:
    assert [item.state_suffix for item in (Sum(), Sum("x"), Reduce(max, abs), Collect("y"), Unmergeable())] == [
        "Sum",
        "Sum/x",
        "Reduce",
        "Collect/y",
        "Unmergeable",
    ]


@pytest.mark.parametrize(
    ("define", "named"),
    [
        (lambda sdf: sdf.tumbling_window(60), "tumbling_window(duration_ms=60)"),
        (lambda sdf: sdf.hopping_window(999, 10), "hopping_window(duration_ms=999)"),
        (lambda sdf: sdf.sliding_window(1), "sliding_window(duration_ms=1)"),
        (lambda sdf: sdf.session_window(30), "session_window(inactivity_gap_ms=30)"),
    ],
)
def test_a_window_that_may_be_meant_in_seconds_is_warned_of_once(
    define: Callable[[Any], Any], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    define(Stage().sdf).count().final()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"{named} defined at test_windows_definitions.py:")
    assert "durations are in milliseconds" in warning
    assert "timedelta(seconds=" in warning


def test_windows_of_a_second_or_of_a_timedelta_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    sdf = Stage().sdf
    sdf.tumbling_window(1_000)
    sdf.tumbling_window(timedelta(milliseconds=60))
    sdf.tumbling_count_window(60)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            lambda sdf: sdf.tumbling_window(60_000).count().to_topic("out"),
            r"no to_topic yet: .*final\(\) or \.current\(\)",
        ),
        (
            lambda sdf: sdf.tumbling_window(60_000).agg(n=Count()).apply(len),
            r"no apply yet: .*final\(\) or \.current\(\)",
        ),
        (
            lambda sdf: sdf.tumbling_count_window(2).sum()["value"],
            r"no columns yet: .* by \.final\(\) or \.current\(\)",
        ),
        (lambda sdf: sdf.tumbling_count_window(2).sum().__setitem__("a", 1), r"no columns yet: .* by \.final\(\)"),
        (
            lambda sdf: sdf.session_window(60_000).final(),
            r"no final yet: say what it computes, such as \.count\(\), and when",
        ),
        (lambda sdf: sdf.tumbling_count_window(2).print(), r"no print yet: say what it computes"),
    ],
)
def test_a_window_that_is_used_as_a_dataframe_names_the_missing_call(use: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(UnfinishedWindowError, match=message):
        use(Stage().sdf)


def test_an_unfinished_window_is_an_ordinary_object_otherwise() -> None:
    """Attributes that it lacks are not attributes, as `hasattr` and `copy` expect."""
    window = Stage().sdf.tumbling_window(60_000).count()
    assert not hasattr(window, "print")
    assert copy.copy(window).final() is not None
