"""`streamrt dlq` without a broker: what is refused before one is asked."""

from pathlib import Path

import pytest

from streamrt.errors import ArgumentValueError
from streamrt.kafka import ConnectionConfig
from streamrt.topics.dead_letter_queue import DeadLetterQueue
from tests.command_line import streamrt
from tests.support import unique

PROGRAM = """
from streamrt import Application

app = Application("127.0.0.1:1", consumer_group="repair", loglevel=None)
app.dataframe(app.topic("dead-letters__shop")).to_topic(app.topic("orders"))
"""
NOWHERE = ["--broker", "127.0.0.1:1", "--timeout", "0.1", "--yes"]


def test_dead_letters_are_not_sent_to_the_topic_that_they_are_in() -> None:
    outcome = streamrt("dlq", "replay", "dead-letters__shop", "--to", "dead-letters__shop", *NOWHERE)
    assert outcome.code == 2
    assert "dead-letters__shop is the topic that they are in" in " ".join(outcome.err.replace("│", " ").split())
    queue = DeadLetterQueue(ConnectionConfig(bootstrap_servers="127.0.0.1:1"), "dead-letters__shop", 0.1)
    with pytest.raises(ArgumentValueError, match="cannot be sent to dead-letters__shop"):
        queue.replay(to="dead-letters__shop")


def test_an_application_that_reads_them_gets_no_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = unique("repair").replace("-", "_")
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    through = ["--through", f"{name}:app", *NOWHERE]
    assert streamrt("dlq", "replay", "dead-letters__shop", *through).sentence == (
        f"streamrt: {name}:app reads dead-letters__shop itself, so it gets dead letters without a replay, which would send "
        "them there again without their reasons: run it, or choose another topic with --to TOPIC"
    )
    # Those of another application are sent to it: the command asks the broker.
    assert "127.0.0.1:1" in streamrt("dlq", "replay", "dead-letters__other", *through).sentence
