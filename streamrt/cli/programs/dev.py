"""`streamrt dev`: tools for a developer's machine."""

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from streamrt.cli.broker import NewTopic
from streamrt.cli.output import echo, examples, plural

if TYPE_CHECKING:
    from streamrt.testing.kafka import EmbeddedKafka

__all__ = ["app"]

_EVERY_S = 3.0


class _ProgramOrCommand(TyperGroup):
    """Treats an argument that is not a command as the program to run, or its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_ProgramOrCommand, no_args_is_help=True, help="Tools for development.")


@app.callback()
def _group() -> None:
    """Tools for development."""


@app.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples("streamrt dev app.py", "streamrt dev --topic orders:3 --data-dir kafka-data app.py"),
)
def run(
    program: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The file that calls app.run().")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the program.")] = None,
    broker_address: Annotated[
        str | None,
        typer.Option(envvar="STREAMRT_BROKER_ADDRESS", help="host:port of a broker; without it, one is started."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the started broker.")] = 9092,
    data_dir: Annotated[
        Path | None, typer.Option(file_okay=False, help="Directory for the data of the started broker.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:PARTITIONS]", help="Create a topic if it is missing; may be repeated."),
    ] = None,
    watch: Annotated[
        list[Path] | None, typer.Option(exists=True, help="Another directory or file to watch for changes.")
    ] = None,
) -> None:
    """Run a program, and restart it when a file in its directory changes; `run` may be left out."""
    from streamrt.cli.programs.reload import Reloader

    topics = [_parse_topic(text) for text in topic or ()]
    environment = dict(os.environ)
    watched = [program.absolute().parent, *(watch or ())]
    with contextlib.ExitStack() as stack:
        if broker_address is None:
            broker_address = stack.enter_context(_run_broker(port, data_dir)).bootstrap_servers
            kept = f"data: {data_dir}"
            if data_dir is None:
                kept = "topics and state are deleted at the end; keep them with --data-dir"
                # The state of an application belongs to its cluster, and is useless without it.
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="streamrt-dev-"))
                environment.setdefault("STREAMRT_STATE_DIR", directory)
            echo(f"streamrt dev: Kafka is ready at {broker_address}; {kept}", err=True)
        environment["STREAMRT_BROKER_ADDRESS"] = broker_address
        _create_topics(broker_address, topics)
        Reloader(program, arguments or (), watched, environment).run()


@contextlib.contextmanager
def _run_broker(port: int, data_dir: Path | None) -> Iterator["EmbeddedKafka"]:
    """Run a broker; print its startup time every few seconds."""
    from streamrt.testing.kafka import EmbeddedKafka

    with contextlib.ExitStack() as stack:
        with _report_waiting("Kafka"):
            broker = stack.enter_context(EmbeddedKafka(port, data_dir=data_dir))
        yield broker


@contextlib.contextmanager
def _report_waiting(what: str) -> Iterator[None]:
    """Print every few seconds that something is still starting."""
    over = threading.Event()
    begun = time.monotonic()

    def tell() -> None:
        while not over.wait(_EVERY_S):
            echo(f"starting {what}, {time.monotonic() - begun:.0f} s so far", err=True)

    thread = threading.Thread(target=tell, name="streamrt-telling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@app.command("kafka", epilog=examples("streamrt dev kafka --topic orders:3 --data-dir kafka-data"))
def kafka(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 9092,
    data_dir: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Directory for the data; without it, data is deleted at the end."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:PARTITIONS]", help="Create a topic if it is missing; may be repeated."),
    ] = None,
) -> None:
    """Run a Kafka broker in the foreground until Ctrl+C."""
    from streamrt.errors import KafkaStartError

    topics = [_parse_topic(text) for text in topic or ()]
    # Installed before the start, so that a signal during the start also leads to a clean shutdown.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _raise_exit)
    with _run_broker(port, data_dir) as broker:
        present = _create_topics(broker.bootstrap_servers, topics)
        lines = [
            f"Kafka is ready at {broker.bootstrap_servers}",
            *(f"  topic {name}: {plural(count, 'partition')}" for name, count in present.items()),
            f"  data: {data_dir if data_dir is not None else 'temporary; keep it with --data-dir'}",
            f"  connect: Application(broker_address={broker.bootstrap_servers!r})",
            "  stop: Ctrl+C",
        ]
        echo("\n".join(lines))
        broker.wait()
        last = broker.logs(1) or ["it logged nothing"]
        raise KafkaStartError(f"the embedded Kafka broker ended unexpectedly: {last[0]}")


def _raise_exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    # A second Ctrl+C must not interrupt the shutdown, which has a time limit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(0)


def _parse_topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if not name or (colon and not (partitions.isdecimal() and int(partitions) > 0)):
        raise typer.BadParameter(f"{text!r} is not NAME or NAME:PARTITIONS", param_hint="--topic")
    return name, int(partitions) if colon else 1


def _create_topics(broker_address: str, topics: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Create missing topics; return the current partition counts of all topics."""
    if not topics:
        return {}
    from streamrt.kafka import TopicAdmin, TopicConfig

    admin = TopicAdmin(broker_address)
    admin.create_topics([NewTopic(name, TopicConfig(partitions, 1)) for name, partitions in topics])
    found = admin.inspect_topics([name for name, _ in topics])
    return {name: config.num_partitions or 0 for name, config in found.items() if config is not None}
