"""How the command line reads and shows keys, values and times; the connection that its options describe."""

import io
import json
import re
from datetime import datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamrt.cli import main
from streamrt.cli.broker import connection_from
from streamrt.cli.output import print_table
from streamrt.cli.records.record_values import ReadFormat, decode, json_form, parse_time_ms, stored_form
from streamrt.cli.tables.row_input import parse_key, read_keys, read_rows
from streamrt.cli.tables.row_output import write_rows
from streamrt.errors import ConfigurationError, SchemaMismatchError, SerializationError
from streamrt.kafka.checks import release_of, requests_table
from streamrt.kafka.cluster.groups import assigned_partitions
from streamrt.schema import Schema
from tests.command_line import every_command, streamrt
from tests.servers import free_port


@pytest.mark.parametrize(
    ("data", "text", "name"),
    [
        (b'{"a": 1}', '{"a": 1}', "json"),
        (b"17", "17", "json"),
        (b"NaN", "NaN", "string"),
        (b"ann", "ann", "string"),
        (b"", "", "string"),
        ("é".encode(), "é", "string"),
        (b"\x00\x00\x00\x00\x01\xff", "0000000001ff", "hex"),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes, text: str, name: str) -> None:
    assert decode(data, ReadFormat.auto) == (text, name)
    form = json.loads(json.dumps(text)) if name != "json" else json.loads(text)
    assert stored_form(form, name) == (data if name != "json" else json.dumps(form, separators=(",", ":")).encode())


def test_formats_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SerializationError, match="it is not JSON"):
        decode(b"{", ReadFormat.json)
    with pytest.raises(SerializationError, match="it is not UTF-8"):
        decode(b"\xff", ReadFormat.string)
    with pytest.raises(SerializationError, match="it is not hex"):
        stored_form("xyz", "hex")
    with pytest.raises(SerializationError, match="format 'avro' is unknown"):
        stored_form("xyz", "avro")
    with pytest.raises(SerializationError, match="must be a text, not int"):
        stored_form(1, "string")


def test_a_json_line_stays_one_line() -> None:
    assert json_form('{\n"a": 1}', "json") == {"a": 1}
    assert stored_form(None, "json") == b"null"
    assert stored_form(None, None) is None


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:01+01:00", 1_000),
        ("1970-01-01T00:00:00.250", 250),
        ("1970-01-02", 86_400_000),
        ("yesterday", None),
        ("", None),
    ],
)
def test_times_are_iso_8601_in_utc(text: str, milliseconds: int | None) -> None:
    assert parse_time_ms(text) == milliseconds


def test_assignments_of_other_protocols_name_no_partitions() -> None:
    assert assigned_partitions(b"") == ()
    assert assigned_partitions(b"\x00\x01\x00\x00\x00\x05abc") == ()
    assert assigned_partitions(b"\x7f" * 40) == ()


def test_releases_are_told_by_the_requests() -> None:
    assert release_of({"Produce": 13}) == "4.1"
    assert release_of({"Produce": 13, "OffsetCommit": 10, "TxnOffsetCommit": 6}) == "4.4 or newer"
    assert release_of({"Produce": 3}) == "older than 2.8"


def test_the_documentation_has_the_requests_that_brokers_need() -> None:
    text = (Path(__file__).parents[2] / "docs" / "kafka-versions.md").read_text(encoding="utf-8")
    assert requests_table() in text


def test_a_table_in_a_pipe_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 500
    print_table(["A", "B"], [[1, long], [10, "[red]y[/red]"]])
    assert capsys.readouterr().out == f" A  B\n 1  {long}\n10  [red]y[/red]\n"


# -- The connection --------------------------------------------------------------------------------------------------


def test_the_file_has_login_and_address(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# login\nbootstrap.servers = kafka:9093\nsasl.password=a=b#c\n\nsasl.username=shop\n")
    found = connection_from(None, path)
    assert found.bootstrap_servers == "kafka:9093"
    assert found.as_librdkafka_dict()["sasl.password"] == "a=b#c"
    assert connection_from("other:9092", path).bootstrap_servers == "other:9092"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sasl.password", "line 1: write name=value"),
        ("sasl.password=canary\nsasl.password=canary", "line 2: sasl.password is set twice"),
        ("linger.ms=canary", "linger.ms is not a connection option of librdkafka: remove it"),
        ("sasl.jaas.config=canary", "use sasl.username and sasl.password"),
        ("security.protocol=canary\nbootstrap.servers=a:1", "security_protocol"),
        ("sasl.password=canary", "the address of a broker is missing"),
    ],
)
def test_a_wrong_file_is_explained_without_its_values(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=why) as caught:
        connection_from(None, path)
    assert "canary" not in str(caught.value)


def test_the_address_is_required(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STREAMRT_BROKER_ADDRESS", raising=False)
    assert "pass --broker host:port" in streamrt("topics", "list").sentence
    assert "cannot be read: No such file" in streamrt("topics", "list", "--config", tmp_path / "none").sentence


@pytest.mark.parametrize("command", [("topics", "list"), ("consume", "orders"), ("lag", "shop")])
def test_a_broker_that_is_away_is_one_sentence(command: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    outcome = streamrt(*command, "--broker", f"127.0.0.1:{free_port()}", "--timeout", "0.3")
    assert "no Kafka broker answered at 127.0.0.1" in outcome.sentence
    assert "within 0.3 s" in outcome.sentence
    assert outcome.err.splitlines()[1:] == ["streamrt explain E201 says more"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "orders", "1", "--format", "bytes"),
        ("produce", "orders", "--format", "records", "--key", "k"),
        ("produce", "orders", "1", "--key-format", "json"),
        ("produce", "orders", "1", "--registry", "http://registry"),
        ("produce", "orders", "1", "--header", "novalue"),
        ("produce", "orders", "1", "--timestamp", "soon"),
        ("consume", "orders", "--values", "--json"),
        ("consume", "orders", "--max", "0"),
        ("topics", "create", "orders", "--set", "retention.ms"),
        ("topics", "create", "orders", "--partitions", "0"),
    ],
)
def test_a_wrong_call_has_exit_code_2(arguments: tuple[str, ...]) -> None:
    outcome = streamrt(*arguments, "--broker", "127.0.0.1:1")
    assert outcome.code == 2, outcome
    assert "Usage: " in outcome.err


def test_every_command_has_examples() -> None:
    commands = dict(every_command())
    assert {"run", "reset", "topics list", "state get", "dev kafka", "table schema detect"} <= commands.keys()
    for words, command in commands.items():
        heading, *lines = (command.epilog or "").split("\n\n")
        assert heading == "Examples:", words
        # `show` of `plan` and `run` of `dev` may be left out.
        shown = words.removesuffix(" show") if words == "plan show" else words.removesuffix(" run")
        assert any(f"streamrt {shown} " in f"{line} " for line in lines), words
        for line in lines:
            assert line.startswith("$ "), words
    text = streamrt("lag", "--help").out
    assert "\n Examples:" in text
    assert "\n $ streamrt lag shop" in text


def test_examples_have_options_that_exist() -> None:
    commands = dict(every_command())
    for words, command in commands.items():
        own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        for line in command.epilog.split("\n\n")[1:]:
            # What is behind a pipe, and what is quoted, is not an option of this command.
            part = re.sub(r"'[^']*'|\"[^\"]*\"", "text", line.partition(" | ")[0])
            if part.startswith(f"$ streamrt {words} "):
                used = set(re.findall(r"(?<= )-{1,2}[a-z][a-z-]*", part))
                assert used <= own, f"{line}: {used - own}"


def test_every_command_has_json_or_the_page_says_why() -> None:
    page = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    [told] = [text for text in page.split("\n\n") if text.startswith("These commands have no `--json`")]
    without = {
        words
        for words, command in every_command()
        if "--json" not in {name for each in command.params for name in each.opts}
    }
    assert set(re.findall(r"`streamrt ([a-z ]+)`", told)) == without


def test_every_command_with_a_broker_takes_logins() -> None:
    reasons = {
        "run": "the application has its own login",
        "dev run": "the program has its own login; the broker is one for development",
    }
    options = {words: {name for each in command.params for name in each.opts} for words, command in every_command()}
    with_broker = {words for words, names in options.items() if names & {"--broker", "--broker-address"}}
    assert {"consume", "state forget", "table copy"} <= with_broker
    assert {words for words in with_broker if "--config" not in options[words]} == reasons.keys()
    # They have all of the shared ones.
    assert {words for words in with_broker - reasons.keys() if not {"--broker", "--timeout"} <= options[words]} == set()


def test_a_store_is_forgotten_at_the_broker_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMRT_BROKER_ADDRESS", raising=False)
    store = ["state", "forget", "--group", "shop", "--topic", "orders", "--store", "default", "--timeout", "0.1"]
    assert "the address of a broker is missing" in streamrt(*store).sentence
    path = tmp_path / "connection.properties"
    path.write_text("bootstrap.servers=127.0.0.1:1\n")
    assert "127.0.0.1:1" in streamrt(*store, "--config", path).sentence
    path.write_text("sasl.pasword=canary\n")
    sentence = streamrt(*store, "--config", path).sentence
    assert "sasl.pasword is not a connection option" in sentence
    assert "canary" not in sentence


def test_the_shell_can_complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # As the script of bash calls the command.
    monkeypatch.setenv("_STREAMRT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "streamrt topics ")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        main()
    assert {"list", "show", "create", "delete"} == set(capsys.readouterr().out.split())


@pytest.mark.parametrize("row_format", ["jsonl", "csv"])
def test_printed_rows_can_be_written_again(row_format: str, tmp_path: Path) -> None:
    schema = Schema(
        "id BIGINT, paid BOOLEAN, price DECIMAL(20, 10), share DOUBLE, at TIMESTAMP_LTZ, alarm TIME, photo BINARY, "
        "tags ARRAY<STRING>"
    )
    moment, alarm = datetime(2026, 3, 29, 8, tzinfo=timezone.utc), time(10, 0, 0, 500_000)
    rows: list[dict[str, Any]] = [
        dict(zip(schema.names, (1, True, Decimal("1E-10"), 0.5, moment, alarm, b"\xca\xfe", ["a", None]), strict=True)),
        dict.fromkeys(schema.names),
    ]
    path = tmp_path / "rows"
    with path.open("w", newline="") as file:
        write_rows(file, row_format, schema.names, [pa.RecordBatch.from_pylist(rows, schema.arrow)])
    # All digits, as in the records of the table.
    assert "0.0000000001" in path.read_text()
    assert [schema.check(row) for row in read_rows(schema, None, path, row_format)] == rows


def test_cells_have_the_texts_of_csv_in_topics() -> None:
    shown = io.StringIO()
    write_rows(shown, "csv", ["n"], [pa.RecordBatch.from_pydict({"n": [float("nan"), float("-inf"), -0.5]})])
    assert shown.getvalue().split() == ["n", "NaN", "-Infinity", "-0.5"]


@pytest.mark.parametrize(
    ("columns", "text", "key"),
    [
        ("k BIGINT", "7", 7),
        ("k BIGINT", " 7 ", 7),
        ("k BIGINT", "[7]", [7]),
        ("k BIGINT", '{"k": 7}', {"k": 7}),
        ("k BIGINT", "7.5", "7.5"),
        ("k BIGINT", "ann", "ann"),
        ("k BOOLEAN", "true", True),
        ("k STRING", "ann", "ann"),
        ("k STRING", "7", "7"),
        ("k STRING", "true", "true"),
        ("k STRING", "null", "null"),
        ("k STRING", "", ""),
        ("k STRING", " a b ", " a b "),
        ("k STRING", '"7"', "7"),
        ("k STRING", '["a b"]', ["a b"]),
        ("k DECIMAL(10, 2)", "9.50", "9.50"),
        ("k DATE", "2026-11-23", "2026-11-23"),
        ("k BINARY", "AP8=", b"\x00\xff"),
        ("k BINARY", '{"k": "AP8="}', {"k": b"\x00\xff"}),
        ("k STRING, n BIGINT", '["a", 7]', ["a", 7]),
        ("k STRING, n BIGINT", '["a"]', ["a"]),
        ("k BINARY, n BIGINT", '["AP8=", 7]', [b"\x00\xff", 7]),
        ("k STRING, n BIGINT", '{"n": 7, "k": "a"}', {"n": 7, "k": "a"}),
    ],
)
def test_keys_of_rows(columns: str, text: str, key: Any) -> None:
    names = ", ".join(each.split()[0] for each in columns.split(", ") if " " in each)
    assert parse_key(Schema(f"v INT, {columns}, PRIMARY KEY ({names})"), text) == key


def test_keys_that_cannot_be_read(tmp_path: Path) -> None:
    schema = Schema("a BINARY, b INT, PRIMARY KEY (b, a)")
    for text in ("7", "x", "null", "7.5"):
        with pytest.raises(SchemaMismatchError, match=r"^a key must be a JSON array or object with the columns b, a$"):
            parse_key(schema, text)
    with pytest.raises(
        SchemaMismatchError, match=r"^argument 2: column 'a' must be base64; earlier ones were deleted$"
    ):
        list(read_keys(schema, ['[1, "AA=="]', '[1, "?"]'], None))
    path = tmp_path / "keys"
    path.write_text('[1, "AA=="]\r\n\n[2\n')
    read = read_keys(schema, None, path)
    assert next(read) == [1, b"\x00"]
    with pytest.raises(SchemaMismatchError, match=r"^line 3: a key must be a JSON array"):
        next(read)
