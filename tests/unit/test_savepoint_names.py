"""Savepoints of one group are restored into topics with the very names that an application of another group has."""

from collections.abc import Callable
from typing import Any

import pytest

from streamrt import Application
from streamrt.app import definition_of
from streamrt.kafka import TopicConfig
from streamrt.savepoints.format import SavedInput, SavedLog, SavedName, SavedStore, Savepoint
from streamrt.savepoints.restore import rename_topics
from streamrt.topics import changelog_topic_name
from streamrt.topology import Topology
from streamrt.windows import Count

Define = Callable[[Any, Any], Any]


def resolve(group: str, define: Define) -> tuple[Topology, dict[str, SavedName]]:
    """Return the topology of a group, and what the names of its repartition topics are made of."""
    app = Application("localhost:1", consumer_group=group, loglevel=None)
    define(*(app.table(app.topic(name, config=TopicConfig(2, 1))) for name in ("bills", "users")))
    definition = definition_of(app)
    names = {topic: SavedName(*parts) for topic, parts in definition.topics.names().items()}
    return definition.topology.resolve({"bills": 2, "users": 2}), names


def save(group: str, define: Define) -> Savepoint:
    """Return a savepoint of an application that has committed nothing."""
    topology, names = resolve(group, define)
    stores = [
        SavedStore(scope, topics, store.name, None, SavedLog(changelog_topic_name(group, scope, store.name), 2, 1))
        for scope, topics in topology.scopes.items()
        for store in topology.stores(scope)
    ]
    return Savepoint(
        "saved",
        group,
        0,
        "exactly-once",
        {topic: SavedInput(None, 2) for topic in topology.sources},
        tuple(map(tuple, topology.streams.values())),
        tuple(stores),
        (),
        tuple(SavedLog(topic, 2, 1) for topic in topology.exchanges),
        names,
    )


@pytest.mark.parametrize("groups", [("first", "fork"), ("a", "zebra" * 12), ("shop--eu", "shop"), ("z" * 60, "b")])
@pytest.mark.parametrize(
    "define",
    [
        lambda bills, users: users.join(bills, on="n"),
        lambda bills, users: (
            bills.join(users, on="n").group_by("m").agg(count=Count()).group_by("count").agg(n=Count())
        ),
        # Behind so many joins, names have digests.
        lambda bills, users: bills.join(users, on="a").join(users, on="b").join(users, on="c").join(users, on="d"),
        lambda bills, users: bills.join(users, on=("n", "m")).group_by("m").agg(count=Count()),
    ],
)
def test_names_are_those_of_the_other_group(define: Define, groups: tuple[str, str]) -> None:
    before, after = groups
    saved = save(before, define)
    moved, expected = rename_topics(Savepoint.decode(saved.encode(), saved.topic), after), save(after, define)
    assert set(moved.inputs) == set(expected.inputs)
    assert {log.topic for log in moved.exchanges} == {log.topic for log in expected.exchanges}
    assert set(moved.streams) == set(expected.streams)
    assert {(each.scope, each.topics, each.store, each.log.topic) for each in moved.stores} == {
        (each.scope, each.topics, each.store, each.log.topic) for each in expected.stores
    }


def test_those_of_earlier_versions_have_the_group_in_their_middle() -> None:
    def define(bills: Any, users: Any) -> None:
        bills.join(users, on="n").group_by("m").agg(count=Count())

    saved, expected = save("first", define), save("fork", define)
    saved.names.clear()  # type: ignore[attr-defined]
    assert {each.log.topic for each in rename_topics(saved, "fork").stores} == {
        each.log.topic for each in expected.stores
    }
