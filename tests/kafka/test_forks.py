"""Processes that are forked from one with Kafka clients: they end, refuse what is not theirs, and disturb nothing."""

import json
import os
import subprocess
import sys

import pytest

from tests.support import Kafka, unique

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PROGRAM = """
import json, os, signal, sys
from streamrt import Application
from streamrt.errors import InvalidOperationError
from streamrt.kafka import TopicAdmin
from streamrt.models import TopicPartition

address, group, topic = sys.argv[1:]
ends = {}


def fork(what, act=lambda: None):
    child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            act()
        except InvalidOperationError as error:
            sys.exit(7 if "forked" in str(error) else 8)
        sys.exit(0)
    ends[what] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def leave(client):
    with client:
        sys.exit(0)


app = Application(address, consumer_group=group, auto_offset_reset="earliest")
admin = TopicAdmin(address)
admin.committed(group, [TopicPartition(topic, 0)])
admin.inspect_topics([topic])
fork("admin")
fork("close an admin", admin.close)
with app.get_producer() as producer, app.get_consumer() as consumer:
    producer.produce(topic, b"1")
    fork("records that wait")
    fork("produce", lambda: producer.produce(topic, b"2"))
    fork("flush", producer.flush)
    fork("leave a producer", lambda: leave(producer))
    consumer.subscribe([topic])
    while (message := consumer.poll(1)) is None:
        pass
    fork("member of a group")
    fork("poll", lambda: consumer.poll(1))
    fork("close", consumer.close)
    fork("leave a consumer", lambda: leave(consumer))
    # The member is still in the group.
    consumer.commit(message=message, asynchronous=False)
# These children make clients of their own, so no client of the parent may be connecting during the fork.
fork("ask for offsets", lambda: admin.committed(group, [TopicPartition(topic, 0)], timeout=30))
fork("ask for topics", lambda: admin.inspect_topics([topic]))
print(json.dumps(ends))
"""


def test_forked_processes(kafka: Kafka) -> None:
    started = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, kafka.address, unique("group"), kafka.topic()],
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert started.returncode == 0, started.stderr
    refused = dict.fromkeys(("produce", "flush", "poll"), 7)
    asked = ("admin", "ask for offsets", "ask for topics", "close an admin")
    ended = ("records that wait", "leave a producer", "member of a group", "close", "leave a consumer")
    assert json.loads(started.stdout) == dict.fromkeys((*asked, *ended), 0) | refused
