"""The layout of a group on a real broker: offsets that Kafka has forgotten, and topics that are others than before."""

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from streamrt import Application
from streamrt.app import definition_of, environment_of
from streamrt.application.startup_plan import plan_deployment
from streamrt.config import AutoOffsetReset, ProcessingGuarantee
from streamrt.errors import (
    ChangelogError,
    OffsetOutOfRangeError,
    SavepointError,
    StaleTokenError,
    StoreVersionError,
    TopicConfigurationError,
)
from streamrt.kafka import TopicAdmin, TopicConfig
from streamrt.kafka.cluster import topic_ids
from streamrt.kafka.reading.pairs import write_pairs
from streamrt.models import TopicPartition
from streamrt.runtime.driver.starting.group_layout import LayoutTopic, begin_layout
from streamrt.runtime.driver.starting.layout_changes import Kind
from streamrt.runtime.driver.starting.state_setup import complete_spec
from streamrt.runtime.layout_record import LAYOUT_KEY
from streamrt.savepoints.repartition import Repartitioning
from streamrt.topics import repartition_topic_name
from streamrt.topics.internal import layout_topic_name
from streamrt.windows import Count, Sum
from tests.kafka.shops import DAY_MS, Instance, Remind, Shop, by_number, count
from tests.kafka.test_savepoints import check
from tests.support import LONG, Kafka, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


class LateInstance(Instance):
    reset: AutoOffsetReset = "latest"


class ChainedShop(Shop):
    """Two inputs without state, the first one before two groupings; only what is behind them has state.

    Args:
        reset: where partitions without a position begin.
    """

    def __init__(self, *arguments: Any, reset: AutoOffsetReset = "latest") -> None:
        super().__init__(*arguments)
        self.other = self.kafka.topic("other", 2)
        self.reset = reset

    def instance(self) -> type[Instance]:
        return LateInstance if self.reset == "latest" else Instance

    def build(self, app: Application) -> None:
        frame = app.dataframe(app.topic(self.source, key_deserializer="str")).filter(lambda value: value["i"] >= 0)
        frame = frame.group_by("i", partitioner=lambda key, count: int(key) % count)
        frame = frame.apply(lambda value: value).group_by("c", partitioner=by_number)
        frame.apply(partial(count, "m"), stateful=True).to_topic(app.topic(self.output))
        app.dataframe(app.topic(self.other)).apply(lambda value: {**value, "i": value["o"]}).to_topic(
            app.topic(self.output)
        )

    def inputs(self, *, grouped: bool) -> list[str]:
        first = repartition_topic_name(self.group, self.source, "i")
        second = repartition_topic_name(self.group, first, "c")
        return [self.source, self.other, first, second][: 4 if grouped else 2]

    def produce_others(self, *numbers: int) -> None:
        for number in numbers:
            self.kafka.produce(self.other, [{"o": number}], partition=number % 2)


def forget_group(shop: Shop) -> None:
    """Have Kafka forget the offsets of a group, as it does after `offsets.retention.minutes`."""
    admin = AdminClient({"bootstrap.servers": shop.kafka.address})
    for each in admin.delete_consumer_groups([shop.group]).values():
        each.result()
    places = [TopicPartition(shop.source, number) for number in (0, 1)]
    wait_until(
        lambda: all(each.offset is None for each in shop.kafka.admin.committed_now(shop.group, places).values()), 60
    )


@pytest.mark.parametrize(
    ("guarantee", "reset"),
    [
        ("exactly-once", "latest"),
        ("at-least-once", "earliest"),
        *([("exactly-once", "earliest"), ("at-least-once", "latest")] if LONG else []),
    ],
)
def test_a4_a_group_whose_offsets_are_forgotten_goes_on_where_it_was(
    kafka: Kafka,
    stack: contextlib.ExitStack,
    guarantee: ProcessingGuarantee,
    reset: AutoOffsetReset,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shop = ChainedShop(kafka, stack, guarantee, reset=reset)
    # The group exists before the first record: a partition without any has a position as well.
    shop.work()
    shop.produce(9)
    shop.produce_others(100)
    # What waits between the parts is not read twice either.
    shop.work(grouped=False)
    shop.produce(3)
    shop.work()
    shop.produce(5)
    shop.produce_others(101, 102)
    forget_group(shop)
    with caplog.at_level(logging.WARNING, "streamrt"):
        shop.work()
    assert "the position that was kept with its state" in caplog.text
    found = shop.outputs(20)
    assert sorted(found) == [*range(17), 100, 101, 102]
    for group in range(5):
        assert sorted(found[i]["m"] for i in range(17) if i % 5 == group) == list(
            range(1, len(range(group, 17, 5)) + 1)
        )
    # A second pause: what was found in the layout is in it again.
    forget_group(shop)
    shop.produce(1)
    shop.work()
    assert sorted(shop.outputs(21)) == [*range(18), 100, 101, 102]


class LateShop(Shop):
    """One that begins at the ends of its inputs."""

    def instance(self) -> type[Instance]:
        return LateInstance


def test_a4_a_partition_with_state_and_without_a_record_so_far_begins_where_the_group_began(
    kafka: Kafka, stack: contextlib.ExitStack
) -> None:
    shop = LateShop(kafka, stack, "exactly-once")
    shop.produce(4)
    # The group begins behind these.
    shop.work()
    kafka.produce(shop.source, [{"i": 4, "c": "c-4"}], key=b"a", partition=0)
    shop.work()
    forget_group(shop)
    for number in (0, 1):
        kafka.produce(shop.source, [{"i": 5 + number, "c": "c-4"}], key=b"a", partition=number)
    shop.work()
    assert sorted(shop.outputs(3)) == [4, 5, 6]


@pytest.mark.parametrize("reset", ["latest", "earliest"] if LONG else ["latest"])
def test_a4_a_group_of_an_earlier_version_is_refused_if_its_positions_are_not_known(
    kafka: Kafka, stack: contextlib.ExitStack, reset: AutoOffsetReset
) -> None:
    shop = ChainedShop(kafka, stack, "exactly-once", reset="earliest")
    shop.produce(6)
    shop.work()
    name = layout_topic_name(shop.group)
    kafka.admin.delete_topics([name])
    wait_until(lambda: kafka.admin.topic_ids([name])[name] is None)
    shop.reset = reset
    shop.produce(2)
    # With its offsets, it goes on, and gains the layout.
    shop.work()
    assert sorted(shop.outputs(8)) == list(range(8))
    assert kafka.admin.topic_ids([name])[name] is not None
    kafka.admin.delete_topics([name])
    wait_until(lambda: kafka.admin.topic_ids([name])[name] is None)
    forget_group(shop)
    with pytest.raises(OffsetOutOfRangeError, match=r"records may count twice, and from .* records are skipped"):
        shop.work()


def test_what_a_layout_refuses(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    shop = ChainedShop(kafka, stack, "at-least-once")
    shop.work()
    connection = environment_of(shop.app()).connection
    topic = LayoutTopic(kafka.admin, connection, shop.group, 30)
    layout = topic.read()
    assert layout is not None
    assert {name: each.partitions for name, each in layout.inputs.items()} == dict.fromkeys(
        shop.inputs(grouped=True), 2
    )
    assert layout.inputs[shop.source].id == kafka.admin.topic_ids([shop.source])[shop.source]
    place = TopicPartition(topic.name, 0)
    for value, error, said in (
        (b"\xff{", ChangelogError, "StreamRT did not write"),
        (b'{"v":1,"group":"x","inputs":[],"stores":{}}', ChangelogError, "StreamRT did not write"),
        (b'{"v":7}', StoreVersionError, "upgrade StreamRT"),
        (layout.encode().replace(shop.group.encode(), b"other", 1), ChangelogError, "consumer group 'other'"),
    ):
        write_pairs(connection, place, [(LAYOUT_KEY, value)])
        with pytest.raises(error, match=said):
            shop.work()
    topic.write(layout)
    shop.work()
    # An input that no store belongs to directly, and that was deleted and created again.
    kafka.admin.delete_topics([shop.source])
    wait_until(lambda: kafka.admin.topic_ids([shop.source])[shop.source] is None)
    # With one partition, the groupings need no topics, and their stores would be others.
    with pytest.raises(StaleTokenError, match=f"topic '{shop.source}' was deleted and created again: its id was"):
        shop.work()


class LateAdmin(TopicAdmin):
    """Lets something happen after a first look at a topic.

    Args:
        address: address of the brokers.
        topic: the topic.
        meanwhile: what happens.
    """

    def __init__(self, address: str, topic: str, meanwhile: Callable[[], object]) -> None:
        super().__init__(address)
        self._looked_at, self._meanwhile = topic, meanwhile

    def inspect_topics(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, TopicConfig | None]:
        found = super().inspect_topics(topic_names, timeout)
        if self._looked_at in topic_names:
            self._looked_at = ""
            self._meanwhile()
        return found


def test_a2_instances_that_start_at_once_share_one_layout(kafka: Kafka, stack: contextlib.ExitStack) -> None:
    app = ChainedShop(kafka, stack, "at-least-once").app()
    app.setup_topics()
    name = layout_topic_name(app.config.consumer_group)
    connection = environment_of(app).connection
    described = definition_of(app).task_spec(), app.topic_manager, kafka.admin
    spec = complete_spec(*described, Path(kafka.state_dir), None, app.config)

    def start(admin: TopicAdmin) -> None:
        begin_layout(spec, app.topic_manager, admin, connection, app.config)

    made: list[str | None] = []

    def start_other() -> None:
        start(kafka.admin)
        made.append(kafka.admin.topic_ids([name])[name])

    with contextlib.closing(LateAdmin(kafka.address, name, start_other)) as admin:
        start(admin)
    assert made == [kafka.admin.topic_ids([name])[name]]


class LateAnswer(TopicAdmin):
    """Lets something happen after a look at the ids of the changelogs.

    Args:
        address: address of the brokers.
        topic: a changelog.
        looks: how many looks there are, with the one after which it happens.
        meanwhile: what happens.
    """

    def __init__(self, address: str, topic: str, looks: int, meanwhile: Callable[[], object]) -> None:
        super().__init__(address)
        self._topic, self._left, self._meanwhile = topic, looks, meanwhile

    def topic_ids(self, topic_names: Collection[str], timeout: float = 30) -> dict[str, str | None]:
        found = super().topic_ids(topic_names, timeout)
        if self._topic in topic_names:
            self._left -= 1
            if self._left == 0:
                self._meanwhile()
        return found


def test_a1_an_abandoned_layout_is_deleted_once(
    kafka: Kafka, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_ids, "PAUSE_S", 0.01)
    app = ChainedShop(kafka, stack, "at-least-once").app()
    app.setup_topics()
    name = layout_topic_name(app.config.consumer_group)
    connection = environment_of(app).connection
    described = definition_of(app).task_spec(), app.topic_manager, kafka.admin
    spec = complete_spec(*described, Path(kafka.state_dir), None, app.config)
    begin_layout(spec, app.topic_manager, kafka.admin, connection, app.config)
    topic = LayoutTopic(kafka.admin, connection, app.config.consumer_group, 30)
    layout = topic.read()
    assert layout is not None
    # The changelogs were deleted, and so were the offsets: there are none.
    stores = {key: replace(each, id="gone") for key, each in layout.stores.items()}
    changelog = next(iter(stores.values())).changelog
    # After the last look before the deletion.
    for looks in (topic_ids.ANSWERS + 1, 2 * topic_ids.ANSWERS):
        topic.write(replace(layout, stores=stores))
        made: list[str | None] = []

        def start_other(made: list[str | None] = made) -> None:
            begin_layout(spec, app.topic_manager, kafka.admin, connection, app.config)
            made.append(kafka.admin.topic_ids([name])[name])

        with contextlib.closing(LateAnswer(kafka.address, changelog, looks, start_other)) as admin:
            begin_layout(spec, app.topic_manager, admin, connection, app.config)
        assert made == [kafka.admin.topic_ids([name])[name]]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"] if LONG else ["exactly-once"])
def test_a2_applications_that_share_an_input_are_repartitioned_one_after_the_other(
    kafka: Kafka, stack: contextlib.ExitStack, guarantee: ProcessingGuarantee
) -> None:
    shop = Shop(kafka, stack, guarantee)
    other, without = shop.fork(unique("other")), shop.fork(unique("without"))
    shop.produce(12)
    for each in (shop, other):
        each.work()
    without.commit({TopicPartition(shop.source, 0): 1}, {TopicPartition(shop.source, 0): ""})
    app = shop.app()
    planned = app.repartition(5, dry_run=True)
    ours = [each for each in planned.others if each.group in (other.group, without.group)]
    assert sorted((each.group, each.topics, each.stateful, each.lag > 0) for each in ours) == sorted(
        [(other.group, (shop.source,), True, False), (without.group, (shop.source,), False, True)]
    )
    assert f"consumer group {other.group!r} also reads {shop.source}, with state" in "\n".join(planned.lines())
    app.repartition(5)
    # Producers have begun again before the other application was repartitioned.
    shop.produce(6)
    shop.work()
    check(shop.outputs(18), 0, 18)
    with pytest.raises(TopicConfigurationError, match="streamrt repartition --partitions 5"):
        other.work()
    # What it has can be saved, and restored elsewhere, where the same holds.
    other_app = other.app()
    other_app.savepoint("before")
    fork = other.fork(unique("fork"))
    fork.app().restore_savepoint("before", group=other.group)
    with pytest.raises(TopicConfigurationError, match="streamrt repartition --partitions 5"):
        fork.work()
    with pytest.raises(SavepointError, match=r"the record at offset \d+ .* belongs to another one with 7 of them"):
        other.app().repartition(7)
    # An attempt that ends after each step is run again.
    done: list[str] = []
    for last in ("savepoint is made", "starts are", "have their partitions", "are created", "are filled"):
        steps = Repartitioning(kafka.admin, environment_of(other_app).connection, definition_of(other.app()), 5).steps()
        done.append(next(step for step in steps if last in step))
        steps.close()  # type: ignore[attr-defined]
    assert len(done) == 5
    assert other.app().repartition(5).topics[shop.source] == 2
    fork.app().repartition(5)
    for each in (other, fork):
        each.work()
    check(other.outputs(18), 0, 18)
    check(fork.outputs(6), 12, 18)
    with pytest.raises(SavepointError, match="have 5 partitions already"):
        other.app().repartition(5)
    layout = LayoutTopic(kafka.admin, environment_of(app).connection, other.group, 30).read()
    assert layout is not None
    assert {each.partitions for each in layout.inputs.values()} == {5}
    # With offsets that Kafka forgets now, all goes on as well.
    forget_group(other)
    shop.produce(2)
    other.work()
    check(other.outputs(20), 0, 20)


def test_a2_records_that_were_not_processed_before_the_topic_grew_are_refused_where_they_are(
    kafka: Kafka, stack: contextlib.ExitStack
) -> None:
    shop = Shop(kafka, stack, "at-least-once")
    other = shop.fork(unique("other"))
    shop.produce(8)
    for each in (shop, other):
        each.work()
    shop.produce(8)
    shop.work()
    app = shop.app()
    assert [each.lag for each in app.repartition(3, dry_run=True).others if each.group == other.group] == [8]
    app.repartition(3)
    with pytest.raises(
        SavepointError, match=rf"the record at offset \d+ of {shop.source}\[\d\], which was not processed"
    ):
        other.app().repartition(3)


class WindowShop(Shop):
    """One with a window and a process function, which another version changes."""

    window: dict[str, Any] = {"n": Count()}  # noqa: RUF012 - replaced, never changed
    function = "remind"

    def build(self, app: Application) -> None:
        frame = app.dataframe(app.topic(self.source, key_deserializer="str"))
        frame.process(Remind(), name=self.function).to_topic(app.topic(self.output))
        frame.tumbling_window(DAY_MS, name="days").agg(**self.window).final().to_topic(app.topic(self.output))

    def inputs(self, *, grouped: bool) -> list[str]:
        return [self.source]


def test_a8_another_version_is_told_what_it_lacks(
    kafka: Kafka, stack: contextlib.ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    shop = WindowShop(kafka, stack, "at-least-once")
    shop.produce(4)
    with caplog.at_level(logging.WARNING, "streamrt"):
        shop.work()
        shop.work()
        assert "this version" not in caplog.text
        shop.window, shop.function = {"n": Count(), "total": Sum("i")}, "recall"
        planned = plan_deployment(definition_of(shop.app()), environment_of(shop.app()))
        shop.work()
    said = [text for text in caplog.messages if "this version" in text or "renamed" in text]
    assert len(said) == 2
    assert any("this version has total: Sum/i, which is new;" in text for text in said)
    assert any(
        f"store 'process_remind' of {shop.source} is gone; if it was renamed to 'process_recall', the new one begins"
        in text
        for text in said
    )
    found = [str(each) for each in planned.changes if each.kind in (Kind.WARNING, Kind.LOSES_STATE)]
    assert any("total: Sum/i" in text for text in found)
    assert any("'process_remind'" in text for text in found)
    # A version without any store, and one that keeps its stores without changelogs: each has one word for each store.
    for stateful in (False, True):
        app = kafka.app(shop.group, use_changelog_topics=not stateful)
        if stateful:
            shop.build(app)
        else:
            app.dataframe(app.topic(shop.source)).to_topic(app.topic(shop.output))
        app.setup_topics()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "streamrt"):
            described = definition_of(app).task_spec(), app.topic_manager, kafka.admin
            spec = complete_spec(*described, Path(kafka.state_dir), None, app.config)
            assert (
                begin_layout(spec, app.topic_manager, kafka.admin, environment_of(app).connection, app.config) == spec
            )
        said = [text for text in caplog.messages if text.startswith("store ")]
        gone, days = sorted(said, key=lambda text: "days" in text)
        assert "'process_remind' of" in gone
        assert ("no longer uses" if stateful else "is gone") in days
