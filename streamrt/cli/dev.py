"""`streamrt dev`: what a developer's machine needs beside the application."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Tools for development.")


@app.callback()
def _group() -> None:
    """Tools for development."""


@app.command("kafka")
def kafka(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 9092,
    data_dir: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Keep the data here; without it, it is gone when the broker ends."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:PARTITIONS]", help="Create a topic if it is missing; may be repeated."),
    ] = None,
) -> None:
    """Run a Kafka broker in the foreground until Ctrl+C."""
    from streamrt.errors import KafkaStartError
    from streamrt.testing.kafka import EmbeddedKafka

    topics = [_parse_topic(text) for text in topic or ()]
    # Installed before the start, so that a signal during it also ends in good order.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    with EmbeddedKafka(port, data_dir=data_dir) as broker:
        present = _create_topics(broker.bootstrap_servers, topics)
        lines = [
            f"Kafka is ready at {broker.bootstrap_servers}",
            *(f"  topic {name}: {_plural(count, 'partition')}" for name, count in present.items()),
            f"  data: {data_dir if data_dir is not None else 'temporary; keep it with --data-dir'}",
            f"  connect: Application(broker_address={broker.bootstrap_servers!r})",
            "  stop: Ctrl+C",
        ]
        typer.echo("\n".join(lines))
        broker.wait()
        last = broker.logs(1) or ["it logged nothing"]
        raise KafkaStartError(f"the embedded Kafka broker ended by itself: {last[0]}")


def _leave(_signal: int, _frame: FrameType | None) -> NoReturn:
    # A second Ctrl+C must not interrupt the shutdown, whose time is limited anyway.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(0)


def _parse_topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if not name or (colon and not (partitions.isdecimal() and int(partitions) > 0)):
        raise typer.BadParameter(f"{text!r} is not NAME or NAME:PARTITIONS", param_hint="--topic")
    return name, int(partitions) if colon else 1


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _create_topics(broker_address: str, topics: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Create the topics that are missing; return the partition counts that they have now."""
    if not topics:
        return {}
    from streamrt.kafka.admin import TopicAdmin, TopicConfig

    @dataclass(frozen=True)
    class Definition:
        name: str
        config: TopicConfig

    admin = TopicAdmin(broker_address)
    admin.create_topics([Definition(name, TopicConfig(partitions, 1)) for name, partitions in topics])
    found = admin.inspect_topics([name for name, _ in topics])
    return {name: config.num_partitions or 0 for name, config in found.items() if config is not None}
