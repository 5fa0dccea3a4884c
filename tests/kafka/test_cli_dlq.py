"""`streamrt dlq` with a real broker."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import Result

from streamrt.cli import app
from streamrt.topics import DeadLetter
from tests.command_line import CliRunner
from tests.support import Kafka, unique
from tests.unit.registries import KeepingRegistry

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


class Command:
    """The command, with the topics of a test."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.source, self.topic = kafka.topic("orders", 2), kafka.topic("letters")

    def put(self, number: int, error: str = "KeyError", message: str = "'price'", stage: str = "process") -> None:
        why = DeadLetter(stage, error, message, "apply-1 (price)", self.source, 1, number, "shop")
        headers = why.headers([("trace", b"x")])
        self.kafka.produce(self.topic, [{"n": number}], timestamp=1_700_000_000_000 + number, headers=headers)

    def run(self, *arguments: str, answer: str | None = None) -> Result:
        command, *rest = arguments
        return CliRunner().invoke(
            app, ["dlq", command, self.topic, *rest, "--broker", self.kafka.address], input=answer
        )

    def json(self, *arguments: str) -> Any:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return orjson.loads(result.stdout)


@pytest.fixture
def dlq(kafka: Kafka) -> Command:
    command = Command(kafka)
    for number in (1, 2):
        command.put(number)
    command.put(3, "streamrt.errors.ValueDeserializationError", "no JSON\x1b[2J", "deserialize")
    return command


def test_kinds_and_letters_are_listed(dlq: Command) -> None:
    kinds = dlq.json("list")["kinds"]
    assert [(kind["error_class"], kind["stage"], kind["count"]) for kind in kinds] == [
        ("KeyError", "process", 2),
        ("streamrt.errors.ValueDeserializationError", "deserialize", 1),
    ]
    told = dlq.run("list").stdout
    assert told.splitlines()[0].split()[:3] == ["COUNT", "TOPIC", "STAGE"]
    assert "\x1b" not in told
    assert "no JSON\\x1b[2J" in told
    assert [
        each["place"] for each in dlq.json("list", "--each", "--error", "ValueDeserializationError")["letters"]
    ] == ["0:2"]
    assert dlq.run("list", "--each", "--stage", "process", "--limit", "1").stdout.splitlines()[1].split()[:3] == [
        "0:0",
        "2023-11-14T22:13:20.001Z",
        f"{dlq.source}[1]",
    ]


def test_one_is_shown(dlq: Command) -> None:
    shown = dlq.run("show", "0:1").stdout
    assert '{"n": 2}' in shown
    assert "apply-1 (price)" in shown
    assert "trace=x" in shown
    document = dlq.json("show", "0:1")
    assert (document["offset"], document["attempt"], document["key"]) == (2, 1, "key")
    for place, why in (("0:77", "no dead letter at 0:77"), ("77", "not PARTITION:OFFSET")):
        result = dlq.run("show", place)
        assert result.exit_code == 2
        assert why in result.output.replace("\n", " ")


def test_values_with_a_schema_are_shown_as_json(dlq: Command) -> None:
    with KeepingRegistry() as registry:
        registry.keep("orders-value", {"type": "record", "name": "O", "fields": [{"name": "n", "type": "int"}]}, "AVRO")
        why = DeadLetter("process", "KeyError", "'price'", "apply-1 (price)", dlq.source, 1, 4, "shop").headers(None)
        dlq.kafka.produce(dlq.topic, [b"\x00\x00\x00\x00\x01\x0e"], headers=why, raw=True)
        avro = ("--format", "avro", "--registry", registry.url)
        document = dlq.json("show", "0:3", *avro)
        assert (document["value"], document["key"]) == ('{"n":7}', "key")
        assert dlq.json("show", "0:3", "--format", "hex")["value"] == "00000000010e"
        wrong = str(dlq.run("show", "0:1", *avro).exception)
        assert "the value of the dead letter at 0:1 does not have the format avro" in wrong
        assert "use --format auto or hex" in wrong
    assert "needs a schema registry" in str(dlq.run("show", "0:1", "--format", "avro").exception)
    assert "needs the class of the messages" in str(dlq.run("show", "0:1", "--format", "protobuf").exception)


def test_selected_ones_are_replayed_after_a_question(dlq: Command) -> None:
    assert dlq.run("replay", "--error", "KeyError", answer="n\n").exit_code == 1
    result = dlq.run("replay", "--error", "KeyError", answer="y\n")
    assert "Send 2 dead letters?" in result.output
    assert result.exit_code == 0
    sent = dlq.kafka.receive_exactly(dlq.source, 2)
    assert [(record.value, record.partition) for record in sent] == [(b'{"n": 1}', 1), (b'{"n": 2}', 1)]
    assert dlq.json("replay", "--yes", "--max-attempts", "1") == {"done": 0, "left": 1, "exhausted": 1, "topics": {}}


def test_letters_are_replayed_through_another_application(
    dlq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repair, other = dlq.kafka.topic("repair"), unique("other")
    module = unique("repair").replace("-", "_")
    (tmp_path / f"{module}.py").write_text(
        f"""
from streamrt import Application

none = Application("{dlq.kafka.address}", loglevel=None)
one = Application("{dlq.kafka.address}", loglevel=None)
one.dataframe(one.topic("{repair}")).group_by("n").apply(lambda value, state: value, stateful=True)
two = Application("{dlq.kafka.address}", loglevel=None)
two.dataframe(two.topic("{other}"))
two.dataframe(two.topic("{repair}"))
"""
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert str(dlq.run("replay", "--through", f"{module}:two").exception) == (
        f"{module}:two reads the topics {other}, {repair}, so --through names no single topic: choose the topic with "
        "--to TOPIC"
    )
    assert "reads no topic" in str(dlq.run("replay", "--through", f"{module}:none").exception)
    assert dlq.run("replay", "--through", f"{module}:one", "--to", repair).exit_code == 2
    # The topic of its group_by is not an input.
    handled = dlq.json("replay", "--through", f"{module}:one", "--error", "KeyError", "--yes")
    assert (handled["done"], handled["topics"]) == (2, {repair: 2})
    assert [record.value for record in dlq.kafka.receive_exactly(repair, 2)] == [b'{"n": 1}', b'{"n": 2}']


def test_places_are_dropped(dlq: Command) -> None:
    assert dlq.json("drop", "--at", "0:0", "--at", "0:2", "--yes")["done"] == 2
    assert [each["offset"] for each in dlq.json("list", "--each")["letters"]] == [2]


def test_a_missing_topic_is_one_sentence(dlq: Command) -> None:
    dlq.topic = "missing"
    result = dlq.run("list")
    assert str(result.exception) == "there is no topic 'missing'"
