"""`streamrt table scan`, `get`, `tail`, `write`, `delete` and `schema detect`, with a broker."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests.command_line import Outcome, streamrt
from tests.support import Kafka, unique

COLUMNS = "id BIGINT NOT NULL, name STRING, amount DECIMAL(10, 2), day DATE, data BINARY, tags ARRAY<STRING>"


@pytest.fixture
def run(kafka: Kafka, tmp_path: Path) -> Any:
    """Run a command of tables; the catalogue is in files, so that tests do not meet."""

    def call(*arguments: object, stdin: str | None = None) -> Outcome:
        where = ("--broker", kafka.address, "--catalog", tmp_path / "catalog")
        return streamrt("table", *arguments, *where, stdin=stdin)

    return call


def test_rows_in_and_out(run: Any, tmp_path: Path) -> None:
    name, copy = (f"default.{unique(each)}".replace("-", "_") for each in ("events", "copies"))
    for each in (name, copy):
        assert run("create", each, COLUMNS).code == 0
    rows = [
        {"id": 1, "name": 'a,"b"', "amount": "1.50", "day": "2026-11-23", "data": "AP8=", "tags": ["x", "y"]},
        {"id": 2, "name": None, "amount": None, "day": None, "data": None, "tags": None},
    ]
    assert run("write", name, *map(json.dumps, rows)).out == f"wrote 2 rows to {name}\n"
    assert run("scan", name, "--format", "jsonl").lines == rows
    as_csv = run("scan", name, "--format", "csv").out
    assert as_csv.splitlines()[0] == "id,name,amount,day,data,tags"
    written = run("write", copy, "--format", "csv", "--json", stdin=as_csv).json
    assert written["written"] == 2
    assert run("scan", copy, "--format", "jsonl", "--from", "earliest", "--until", written["token"]).lines == rows
    file = tmp_path / "rows.parquet"
    assert run("scan", name, "--format", "parquet", "--output", file).code == 0
    assert parquet.read_table(file).num_rows == 2
    assert run("write", copy, "--format", "parquet", "--file", file).code == 0
    assert run("scan", copy, "--format", "jsonl", "--from", "-2", "--columns", "id").lines == [{"id": 1}, {"id": 2}]
    shown = run("scan", name, "--columns", "name,id", "--metadata", "--limit", "1").out.splitlines()
    assert shown[0].split() == ["name", "id", "_change_type", "_offset", "_timestamp", "_partition"]
    assert shown[1].split()[:4] == ['a,"b"', "1", "+A", "0"]
    tailed = run("tail", name, "--from", "1", "--max", "1", "--columns", "id")
    assert tailed.lines == [{"id": 2}]
    assert len(run("tail", name, "--from", "2026-11-23", "--max", "2", "--format", "csv").out.splitlines()) == 3
    detected = run("schema", "detect", name, "--types", "--json").json
    assert (detected["new_columns"], detected["records"]) == ([], 2)
    assert detected["columns"][0]["type"] == "BIGINT"


def test_rows_and_keys_of_a_table_with_a_primary_key(run: Any, tmp_path: Path) -> None:
    name, log = (f"default.{unique(each)}".replace("-", "_") for each in ("people", "events"))
    assert run("create", name, "country STRING, id BIGINT, name STRING, PRIMARY KEY (country, id)").code == 0
    assert run("create", log, "id BIGINT").code == 0
    rows = [{"country": "FR", "id": number, "name": f"n{number}"} for number in range(5)]
    assert run("write", name, "--upsert", *map(json.dumps, rows)).out == f"wrote 5 rows to {name}\n"
    assert run("write", name, '{"country": "FR", "id": 0, "name": "Ann"}').code == 0
    assert run("delete", name, '["FR", 1]', '{"id": 2, "country": "FR"}').out == f"deleted 2 keys of {name}\n"
    deleted = run("delete", name, "--json", stdin='["FR", 3]\n\n').json
    assert (deleted["table"], deleted["deleted"]) == (name, 1)
    keys = tmp_path / "keys"
    keys.write_text('["XX", 9]\n["FR", "x"]\n["FR", 4]\n')
    wrong = run("delete", name, "--file", keys)
    assert f"key 2 does not fit table {name}: column 'id' (BIGINT) must be an integer" in wrong.sentence
    assert "earlier ones were deleted" in wrong.sentence
    assert wrong.out == f"deleted 1 key of {name}\n"
    assert run("delete", name, stdin="").out == f"deleted 0 keys of {name}\n"
    assert run("scan", name, "--format", "jsonl").lines == [rows[4], rows[0] | {"name": "Ann"}]
    after = run("scan", name, "--after", deleted["token"], "--format", "jsonl", "--columns", "id")
    assert after.lines == [{"id": 4}, {"id": 0}]
    assert "leave the other one out" in run("scan", name, "--after", deleted["token"], "--until", "3").sentence
    log_of = run("scan", name, "--changes", "--format", "jsonl", "--columns", "id,name").lines
    assert [(row["_change_type"], row["id"]) for row in log_of] == [
        *(("+U", number) for number in range(5)),
        *(("+U", 0), ("-D", 1), ("-D", 2), ("-D", 3), ("-D", 9)),
    ]
    assert run("get", name, '["FR", 4]', '{"id": 0, "country": "FR"}').lines == [rows[4], rows[0] | {"name": "Ann"}]
    missing = run("get", name, '["FR", 1]', '["FR", 4]', "--columns", "name", "--format", "csv")
    assert (missing.code, missing.out, missing.err) == (1, "name\nn4\n", 'there is no row with the key ["FR", 1]\n')
    found = run("get", name, '["FR"]', "--prefix", "--limit", "1", "--format", "table", "--after", deleted["token"])
    assert [line.split() for line in found.out.splitlines()] == [["country", "id", "name"], ["FR", "0", "Ann"]]
    assert run("get", name, '["FR", 4]', "--limit", "1").code == 2
    assert "argument 1: a key must be a JSON array or object" in run("get", name, "7").sentence
    tailed = run("tail", name, "--from", "5", "--max", "3", "--changes", "full", "--columns", "id,name").lines
    assert [tuple(row.values()) for row in tailed] == [(0, "n0", "-U"), (0, "Ann", "+U"), (1, "n1", "-D")]
    tailed = run("tail", name, "--from", "5", "--max", "2", "--metadata", "--columns", "id").lines
    assert [(row["id"], row["_change_type"], row["_offset"]) for row in tailed] == [(0, "+U", 5), (1, "-D", 6)]
    assert "argument 1: a key must be a JSON array or object" in run("delete", name, "7").sentence
    assert "no primary key, so its rows are appended" in run("write", log, "--upsert", "{}").sentence
    assert "no primary key, so its rows are not deleted" in run("delete", log, "1").sentence
    assert run("delete", name, "7", "--file", keys).code == 2


def test_some_columns_of_rows(run: Any, kafka: Kafka, tmp_path: Path) -> None:
    name, log = (f"default.{unique(each)}".replace("-", "_") for each in ("people", "events"))
    assert run("create", name, "id BIGINT, name STRING, city STRING, PRIMARY KEY (id)", "--maintained").code == 0
    assert run("create", log, "id BIGINT, name STRING, city STRING DEFAULT 'Bonn'").code == 0
    rows = tmp_path / "rows.csv"
    rows.write_text("id,city\n1,Paris\n2,\n")
    written = run("write", name, "--columns", "id, city", "--file", rows, "--format", "csv")
    assert written.out == f"wrote 2 rows to {name}\n"
    requests = [json.loads(each.value or b"") for each in kafka.receive_exactly(f"{name}.requests", 2, linger_s=0.0)]
    assert sorted(requests, key=lambda row: row["id"]) == [{"id": 1, "city": "Paris"}, {"id": 2, "city": None}]
    row = '{"id": 1, "name": "Ann"}'
    assert "row 1 does not fit" in run("write", name, "--columns", "id,city", row).sentence
    assert "primary key" in run("write", name, "--columns", "name", '{"name": "Ann"}').sentence
    assert run("write", name, "--columns", "id,,name", row).code == 2
    assert run("write", log, "--columns", "id,name", row).code == 0
    assert run("scan", log, "--format", "jsonl").lines == [{"id": 1, "name": "Ann", "city": "Bonn"}]


def test_what_goes_wrong(run: Any) -> None:
    name = f"default.{unique('events')}".replace("-", "_")
    assert run("create", name, "id BIGINT NOT NULL").code == 0
    wrong = run("write", name, stdin='{"id": 1}\n\n{"id": "x"}\n{"id": 3}\n')
    assert "row 2 does not fit" in wrong.sentence
    assert wrong.out == f"wrote 1 row to {name}\n"
    assert "line 1 is not JSON" in run("write", name, stdin="{").sentence
    assert "names the column 'n'" in run("write", name, "--format", "csv", stdin="n\n1\n").sentence
    assert "column 'id' must be BIGINT" in run("write", name, "--format", "csv", stdin="id\nx\n").sentence
    assert run("scan", name, "--format", "parquet").code == 2
    assert run("write", name, "--format", "parquet").code == 2
    assert "/dev/null cannot be written" in run("scan", name, "--format", "parquet", "--output", "/dev/null").sentence
    assert run("scan", name, "--from", "soon").code == 2
    assert run("scan", name, "--columns", "").code == 2
    assert "no column 'nope'" in run("scan", name, "--columns", "nope").sentence
    assert "offset 9" in run("scan", name, "--from", "9").sentence
    assert "there is no table" in run("scan", "default.nowhere").sentence
    assert run("scan", name, "--format", "jsonl").lines == [{"id": 1}]
    empty = f"default.{unique('empty')}".replace("-", "_")
    assert run("create", empty).code == 0
    nothing = run("schema", "detect", empty, "--wait", "0")
    assert (nothing.code, nothing.err) == (1, "no record came within 0 s\n")
