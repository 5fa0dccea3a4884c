"""The gallery of examples: what each shows, how to run it, and what it puts out. `python -m tests.gallery` writes it.

Only the head and the groups are written by hand. Descriptions and commands are in the docstrings of the examples. Outputs are
those of the test driver, for the records of `tests.example_inputs` or for those of `tests.gallery.runs`.
"""

import tempfile
from pathlib import Path

from streamrt.cli.programs.example_programs import ExampleProgram, find_examples
from tests.example_programs import EXAMPLES
from tests.gallery.runs import Run, run_example

__all__ = ["GROUPS", "PAGE", "page_text"]

PAGE = EXAMPLES.parent / "docs" / "examples.md"
HEAD = """# Examples

For those who learn from programs that run: find the one that is close to your own, see what it reads and writes, and copy it.

`streamrt dev kafka` starts a broker at port 9092, and `streamrt examples copy NAME` puts an example into the current
directory. The blocks show runs with few records: `read` are the first records that the example got, with topic and key,
`wrote` the last ones that it wrote, and `stored` what is in its files. Other lines are on the terminal. Of `endpoints_sse`,
which needs a server and a queue, they are the topology; `demo`, which starts Kafka and Spark, was not run.

`python -m tests.gallery` makes this page by running the examples.
"""
GROUPS = {
    "Records and columns": (
        *("words", "routing", "several_topics", "late_flights", "columns", "metadata", "avro_orders", "dead_letters"),
    ),
    "State and windows": (
        *("inventory", "card_payments", "routes", "flights_per_hour", "click_sessions", "energy", "weeks"),
    ),
    "Joins, timers and calls": ("asof_readings", "discounts", "unpaid_orders", "enriched_orders"),
    "Sources and sinks": ("frost", "outbox", "logs", "sensors", "ledger", "parquet", "lake", "partner"),
    "Tables": (
        "tables_log",
        "tables_keyed",
        "tables_maintained",
        "tables_lookup",
        "tables_cdc",
        "sql_adhoc",
        "endpoints",
        "endpoints_sse",
    ),
    "SQL": ("sql_views", "sql_and_python"),
    "Tests, a benchmark and a demonstration": ("test_thermostat", "nexmark", "demo"),
}


def page_text() -> str:
    """Return what the page should be."""
    known = {example.name: example for example in find_examples()}
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"\n## {title}\n")
        for name in names:
            with tempfile.TemporaryDirectory() as directory:
                parts.append(_section(known[name], run_example(name, Path(directory))))
    return "".join(parts)


def _section(example: ExampleProgram, run: Run) -> str:
    """Return the part of the page about one example."""
    verbs = {"Reads": run.reads, "writes": run.writes}
    told = "; ".join(
        f"{verb} {', '.join(f'`{topic}`' for topic in topics)}" for verb, topics in verbs.items() if topics
    )
    topics = f"\n{told[0].upper()}{told[1:]}." if told else ""
    shown = "".join(f"{line}\n" for line in run.lines)
    return (
        f"\n### {example.name}\n\n"
        f"[{example.name}.py](../examples/{example.name}.py): {example.description}{topics}\n\n"
        f"```console\n$ {example.command}\n```\n" + (f"\n```text\n{shown}```\n" if shown else "")
    )
