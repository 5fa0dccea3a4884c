"""The checks of a start, on a cluster in memory: what the test driver accepts starts, and what a start refuses it refuses."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamrt import Application, StreamingDataFrame, Topic
from streamrt.app import definition_of
from streamrt.connectors import CSVSource, ListSink, SparkSink
from streamrt.errors import ConfigurationError, SourceError, StreamRTError, TopicConfigurationError, TopicCreationError
from streamrt.kafka import TopicConfig
from streamrt.testing import TopologyTestDriver
from streamrt.windows import Count
from tests.unit.apps import application
from tests.unit.cluster import MemoryCluster

Frames = tuple[StreamingDataFrame, StreamingDataFrame]


def frames(app: Application, partitions: int) -> Frames:
    topics = [app.topic(name, key_deserializer="str", config=TopicConfig(partitions, 1)) for name in ("a", "b")]
    left, right = (app.dataframe(topic) for topic in topics)
    return left, right


def count(value: dict[str, Any], state: Any) -> dict[str, Any]:
    state.set("n", state.get("n", 0) + 1)
    return {**value, "n": state.get("n")}


GROUPED: dict[str, Callable[[Frames], Frames]] = {
    "left": lambda both: (both[0].group_by("k"), both[1]),
    "right": lambda both: (both[0], both[1].group_by("k")),
    "both": lambda both: (both[0].group_by("k"), both[1].group_by("k")),
    "one by another name": lambda both: (both[0].group_by("k"), both[1].group_by("k", name="z")),
    "twice": lambda both: (both[0].group_by("k").group_by("j"), both[1].group_by("j")),
    "with what it comes from": lambda both: (both[0].group_by("k"), both[0]),
}
MERGED: dict[str, Callable[[Frames], StreamingDataFrame]] = {
    "join_asof": lambda both: both[0].join_asof(both[1], on_merge="keep-left"),
    "join_interval": lambda both: both[0].join_interval(both[1], on_merge="keep-left", backward_ms=10, forward_ms=10),
    "concat": lambda both: both[0].concat(both[1]).apply(count, stateful=True),
    "concat, grouped again": lambda both: both[0].concat(both[1]).group_by("j").apply(count, stateful=True),
    "concat, window": lambda both: both[0].concat(both[1]).tumbling_window(10).count().final(),
}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("merged", MERGED)
@pytest.mark.parametrize("grouped", GROUPED)
def test_a_group_by_in_front_of_a_merge_starts(grouped: str, merged: str, partitions: int, tmp_path: Path) -> None:
    """Its state has changelogs of as many partitions as the inputs; a second start finds them as they must be."""
    cluster = MemoryCluster()
    found = []
    for _ in range(2):
        app = application()
        MERGED[merged](GROUPED[grouped](frames(app, partitions)))
        spec = definition_of(app).rehearse_start(definition_of(app).task_spec(), cluster, tmp_path)
        assert spec.state is not None
        found.append(spec.state)
        for source in spec.state.sources.values():
            assert source.partitions == partitions
            for changelog in source.stores.values():
                assert changelog is not None
                assert cluster.topics[changelog.topic].num_partitions == partitions
    assert found[0] == found[1]


def test_partitions_added_to_the_inputs_of_a_grouped_join_are_refused(tmp_path: Path) -> None:
    """Where the inputs had one partition, the state of the join lies next to them, under a name of its own."""
    cluster = MemoryCluster()
    for partitions in (1, 3):
        app = application()
        left, right = frames(app, partitions)
        left.group_by("k").join_asof(right)
        if partitions == 1:
            definition_of(app).rehearse_start(definition_of(app).task_spec(), cluster, tmp_path)
    cluster.topics.update({name: TopicConfig(3, 1) for name in ("a", "b")})
    with pytest.raises(
        TopicConfigurationError, match=r"changelog__group--a--b--join_asof.* has 1 partition and topic a--b"
    ):
        definition_of(app).rehearse_start(definition_of(app).task_spec(), cluster, tmp_path)


def unequal_counts(app: Application) -> None:
    left, _ = frames(app, 2)
    left.concat(app.dataframe(app.topic("c", config=TopicConfig(3, 1)))).apply(count, stateful=True)


def colliding_names(app: Application) -> None:
    frames(app, 1)[0].to_topic(app.topic("x.y")).to_topic(app.topic("x_y"))


def driver_sink(app: Application) -> None:
    frames(app, 1)[0].sink(SparkSink(lambda batch: None))


def state(app: Application) -> None:
    frames(app, 1)[0].apply(count, stateful=True)


def source_with_a_lock(app: Application) -> None:
    source = CSVSource("in.csv", name="in")
    vars(source)["lock"] = threading.Lock()
    app.dataframe(source=source)


EXACTLY_ONCE = {"processing_guarantee": "exactly-once"}


@pytest.mark.parametrize(
    ("build", "settings", "error", "message"),
    [
        (unequal_counts, {}, TopicConfigurationError, "must have the same number of partitions"),
        (colliding_names, {}, TopicCreationError, r"x_y: its name collides with that of topic x\.y"),
        (source_with_a_lock, {}, SourceError, "the source in cannot be sent to its process"),
        (driver_sink, EXACTLY_ONCE, ConfigurationError, "use processing_guarantee='at-least-once'"),
        (state, {**EXACTLY_ONCE, "use_changelog_topics": False}, ConfigurationError, "needs changelog topics"),
    ],
)
def test_the_driver_refuses_what_a_start_refuses(
    build: Callable[[Application], None], settings: dict[str, Any], error: type[StreamRTError], message: str
) -> None:
    app = application(**settings)
    build(app)
    with pytest.raises(error, match=message):
        TopologyTestDriver(app)


def test_the_driver_leaves_the_topics_of_the_application_alone() -> None:
    """A program that tests an application may run it afterwards: what the driver found concerns no real cluster."""
    app = application(auto_create_topics=False)
    left, right = frames(app, 3)
    left.group_by("k").join_asof(right)
    with TopologyTestDriver(app):
        assert app.topic_manager.partition_counts() == {}
        assert app.topic_manager.changelog_topics == {}


@pytest.mark.parametrize(
    ("options", "partitions", "warned"),
    [
        ({}, 3, True),
        ({}, 1, False),
        ({"key_serializer": "str", "key_deserializer": "str"}, 3, False),
    ],
)
def test_keys_of_a_group_by_that_the_other_side_writes_in_another_form_are_warned_of(
    options: dict[str, Any], partitions: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Text as JSON has quotes, so that equal keys lie in different partitions."""
    app = application()
    left, right = frames(app, partitions)
    left.group_by("k", **options).join_asof(right)
    with TopologyTestDriver(app):
        found = [message for message in caplog.messages if "keys have different formats" in message]
    assert bool(found) == warned
    assert not warned or "(b: str, repartition__group--a--k: json)" in found[0] or "a--k: json, b: str" in found[0]


def join_grouped(app: Application, **options: Any) -> None:
    left, right = frames(app, 3)
    left.group_by("k", **options).agg(n=Count()).join(right.as_table())


def join_grouped_rows(app: Application, on: str | None = None) -> None:
    left, right = frames(app, 3)
    left.as_table().group_by("k").agg(n=Count()).join(right.as_table(), on=on)


@pytest.mark.parametrize("build", [join_grouped, join_grouped_rows])
def test_tables_whose_keys_the_other_side_writes_in_another_form_are_refused(
    build: Callable[[Application], None],
) -> None:
    app = application()
    build(app)
    with pytest.raises(ConfigurationError, match=r"different formats .*b: str.* on=.* by the columns of the key"):
        TopologyTestDriver(app)


def test_tables_whose_keys_have_one_form_or_that_are_joined_by_columns_are_not_refused() -> None:
    alike, by_column = application(), application()
    join_grouped(alike, key_serializer="str", key_deserializer="str")
    join_grouped_rows(by_column, on="k")
    for app in (alike, by_column):
        with TopologyTestDriver(app):
            pass


def unassigned(sdf: StreamingDataFrame) -> None:
    sdf.filter(bool)


def in_place_only(sdf: StreamingDataFrame) -> None:
    sdf.update(print)
    sdf["x"] = 1
    sdf.drop("x")


def assigned(sdf: StreamingDataFrame) -> None:
    late = sdf[sdf["k"].notnull()].apply(dict)
    late.sink(ListSink())


def used_as_a_column(sdf: StreamingDataFrame) -> None:
    sdf["x"] = sdf.apply(dict)


DROPPED: dict[str, tuple[Callable[[StreamingDataFrame], Any], str | None]] = {
    "filter": (unassigned, "filter-1 (bool) defined at test_start_checks.py:"),
    "apply": (lambda sdf: sdf.apply(dict), "use update() for a function that is called for its effect"),
    "condition": (lambda sdf: sdf[sdf["k"] == 1], "where-1"),
    "columns": (lambda sdf: sdf[["k"]], "apply-1"),
    "timestamp": (lambda sdf: sdf.set_timestamp(lambda *_: 1), "set_timestamp-1"),
    "headers": (lambda sdf: sdf.set_headers(lambda *_: None), "set_headers-1"),
    "grouping": (lambda sdf: sdf.group_by("k"), "group_by-1 (k)"),
    "window": (lambda sdf: sdf.tumbling_window(60_000).count().final(), "window-1"),
    "merge": (lambda sdf: sdf.concat(sdf), "concat-1"),
    "the last of several": (lambda sdf: sdf.filter(bool).set_headers(lambda *_: None), "set_headers-2"),
    "behind a grouping": (lambda sdf: sdf.group_by("k").apply(dict), "apply-3"),
    "in place": (in_place_only, None),
    "assigned": (assigned, None),
    "used as a column": (used_as_a_column, None),
    "grouping that goes on": (lambda sdf: sdf.group_by("k").to_topic(Topic("grouped")), None),
}


def dropped(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "returns a new frame that is not used" in message]


@pytest.mark.parametrize("collect", [False, True])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("case", DROPPED)
def test_a_frame_that_is_not_assigned_is_warned_of(
    case: str, partitions: int, collect: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = application()
    topic = app.topic("a", key_deserializer="str", config=TopicConfig(partitions, 1))
    sdf = app.dataframe(topic)
    build, named = DROPPED[case]
    build(sdf)
    sdf.to_topic(app.topic("out"))
    definition_of(app).rehearse_start(definition_of(app).task_spec(collect=collect), MemoryCluster(), tmp_path)
    found = dropped(caplog)
    assert len(found) == (named is not None)
    assert named is None or named in found[0]
    assert named is None or "test_start_checks.py:" in found[0]


def test_the_driver_warns_of_a_frame_that_is_not_assigned(caplog: pytest.LogCaptureFixture) -> None:
    app = application()
    sdf = app.dataframe(app.topic("a"))
    unassigned(sdf)
    sdf.to_topic(app.topic("out"))
    with TopologyTestDriver(app):
        assert len(dropped(caplog)) == 1


@pytest.mark.parametrize(("collect", "warnings"), [(False, 2), (True, 0)])
def test_ends_of_branches_are_results_where_they_are_collected(
    collect: bool, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`run(count=...)` returns them."""
    app = application()
    sdf = app.dataframe(app.topic("a"))
    sdf.filter(bool)
    sdf.apply(dict)
    definition_of(app).rehearse_start(definition_of(app).task_spec(collect=collect), MemoryCluster(), tmp_path)
    assert len(dropped(caplog)) == warnings
