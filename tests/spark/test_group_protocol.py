"""Applications in groups of the protocol `consumer` (KIP-848)."""

import pytest

from streamrt import State
from streamrt.kafka.membership.group_member import GroupMember
from tests.support import Kafka, running, unique, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


def count(value: int, state: State) -> int:
    seen: int = state.get("seen", 0) + 1
    state.set("seen", seen)
    return seen


@pytest.mark.only_mode("resident", reason="the member is the same", always=False)
def test_an_application_goes_on_with_either_protocol(kafka: Kafka, processing_mode: str) -> None:
    """Each run continues where the one before it ended, which had the other protocol."""
    source, target, group = kafka.topic("in", 2), kafka.topic("out"), unique("group")
    for number, protocol in enumerate(("consumer", "classic", "consumer"), 1):
        for partition in (0, 1):
            kafka.produce(source, [1], key=b"%d" % partition, partition=partition)
        app = kafka.app(group, processing_guarantee="exactly-once", group_protocol=protocol)
        frame = app.dataframe(app.topic(source)).apply(count, stateful=True)
        frame.to_topic(app.topic(target))
        app.run(count=2, timeout=120)
        assert kafka.values(target, 2 * number)[-2:] == [number, number]
        assert kafka.admin.list_groups()[group].protocol == protocol
        assert not kafka.admin.group_is_active(group)


@pytest.mark.only_mode("micro-batch", reason="resident tasks follow the member themselves", always=False)
@pytest.mark.usefixtures("processing_mode")
def test_partitions_of_an_instance_that_leaves_are_processed(kafka: Kafka) -> None:
    """They are added, and nothing is taken from the instance that gets them."""
    source, target, group = kafka.topic("in", 2), kafka.topic("out"), unique("group")
    options = {"group.protocol": "consumer"}
    other = GroupMember(kafka.address, group, [source], member_options=options, on_revoke=lambda partitions: None)
    with other:
        wait_until(lambda: len(other.assignment(30) or ()) == 2)
        app = kafka.app(group, group_protocol="consumer")
        app.dataframe(app.topic(source)).to_topic(app.topic(target))
        with running(app):
            wait_until(lambda: len(other.assignment(30) or ()) == 1)
            theirs = min(other.assignment(30) or ())
            kafka.produce(source, ["kept"], partition=1 - theirs.partition)
            assert kafka.values(target, 1) == ["kept"]
            other.close()
            kafka.produce(source, ["added"], partition=theirs.partition)
            assert kafka.values(target, 2) == ["kept", "added"]
