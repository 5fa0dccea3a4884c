"""`streamrt dlq`: dead letters, which are looked at, sent to their topics again, or dropped."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, TimeoutOption, open_cluster
from streamrt.cli.output import JsonOption, echo, examples, note, plural, print_json, print_table, time_text
from streamrt.cli.programs.loading import load_application
from streamrt.cli.records.record_values import ReadFormat, decode, json_form
from streamrt.cli.records.schemas import Decoder, MessageOption, RegistryOption, decoders
from streamrt.common.texts import readable
from streamrt.errors import ConfigurationError, SerializationError

if TYPE_CHECKING:
    from streamrt.topics.dead_letter_queue import DeadLetterQueue, Letter

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Dead letters: records that an application could not process.")

TopicArgument = Annotated[str, typer.Argument(help="The topic for dead letters, such as dead-letters__shop.")]
FromOption = Annotated[list[str] | None, typer.Option("--from-topic", help="Only records of this topic.")]
StageOption = Annotated[
    list[str] | None, typer.Option("--stage", help="Only what failed there: deserialize, process, produce or sink.")
]
ErrorOption = Annotated[list[str] | None, typer.Option("--error", help="Only errors of this class, such as KeyError.")]
OperatorOption = Annotated[
    str, typer.Option("--operator", help="Only failures of operators whose description contains this text.")
]
AtOption = Annotated[
    list[str] | None,
    typer.Option("--at", metavar="PARTITION:OFFSET", help="Only the dead letter at this place of the topic."),
]
LimitOption = Annotated[int, typer.Option("--limit", min=0, help="Stop after so many; 0 for all.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

Selection = Callable[["Letter"], bool]


@app.callback()
def _group() -> None:
    """Dead letters: records that an application could not process."""


@app.command(
    "list",
    epilog=examples("streamrt dlq list dead-letters__shop", "streamrt dlq list dead-letters__shop --each --json"),
)
def list_letters(
    topic: TopicArgument,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 10.0,
    from_topic: FromOption = None,
    stage: StageOption = None,
    error: ErrorOption = None,
    operator: OperatorOption = "",
    each: Annotated[
        bool, typer.Option("--each", help="One line for each dead letter, instead of one for each kind.")
    ] = False,
    limit: LimitOption = 0,
    as_json: JsonOption = False,
) -> None:
    """List dead letters: how many there are of each kind, or each of them."""
    with open_cluster(broker, config, timeout) as cluster:
        found = _iterate_selected(
            _open_queue(cluster.connection, topic, timeout),
            _make_selection(from_topic, stage, error, operator, None),
            limit,
        )
        if each:
            _print_each(found, as_json=as_json)
        else:
            _print_kinds(found, as_json=as_json)


@app.command(
    "show",
    epilog=examples(
        "streamrt dlq show dead-letters__shop 0:17",
        "streamrt dlq show dead-letters__shop 0:17 --format avro --registry http://registry:8081",
    ),
)
def show(
    topic: TopicArgument,
    place: Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="Where it is, as `list --each` shows it.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 10.0,
    read_format: Annotated[
        ReadFormat, typer.Option("--format", help="How to show the value, as for streamrt consume.")
    ] = ReadFormat.auto,
    key_format: Annotated[
        ReadFormat | None,
        typer.Option("--key-format", help="How to show the key; by default as the value, and auto beside a schema."),
    ] = None,
    registry: RegistryOption = None,
    message: MessageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter: what failed, and the record."""
    if key_format is None:
        key_format = ReadFormat.auto if read_format.needs_schema else read_format
    show_value, show_key = decoders(topic, read_format, key_format, registry, config, message)
    with open_cluster(broker, config, timeout) as cluster:
        found = list(
            _iterate_selected(
                _open_queue(cluster.connection, topic, timeout), _make_selection(None, None, None, "", [place]), 1
            )
        )
    if not found:
        raise typer.BadParameter(f"{topic} has no dead letter at {place} any more")
    document = _make_document(
        found[0],
        _check_decoder(show_value, "value", "--format", read_format, place),
        _check_decoder(show_key, "key", "--key-format", key_format, place),
    )
    if as_json:
        print_json(document)
        return
    for name, value in document.items():
        shown = ", ".join(f"{key}={text}" for key, text in value) if name == "headers" else value
        echo(f"{name:<12}{readable(str(shown))}")


@app.command(
    "replay",
    epilog=examples(
        "streamrt dlq replay dead-letters__shop",
        "streamrt dlq replay dead-letters__shop --error KeyError --limit 10 --yes",
        "streamrt dlq replay dead-letters__shop --through repair:app",
    ),
)
def replay(
    topic: TopicArgument,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    from_topic: FromOption = None,
    stage: StageOption = None,
    error: ErrorOption = None,
    operator: OperatorOption = "",
    at: AtOption = None,
    to: Annotated[str | None, typer.Option("--to", help="Send them to this topic instead.")] = None,
    through: Annotated[
        str | None,
        typer.Option(
            "--through", metavar="MODULE:APP", help="Send them to the input topic of this application, which has one."
        ),
    ] = None,
    most_attempts: Annotated[
        int, typer.Option("--max-attempts", min=0, help="Leave records that have failed as often; 0 for no limit.")
    ] = 3,
    limit: LimitOption = 0,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters to the topics that they come from, and take them out of the topic for dead letters.

    Both happen in Kafka transactions: each record is sent once, also if the command is ended and given again.
    """
    if to is not None and through is not None:
        raise typer.BadParameter("give one of --to and --through", param_hint="--through")
    if to == topic:
        raise typer.BadParameter(
            f"{topic} is the topic that they are in: they would come back to it without their reasons; name another topic",
            param_hint="--to",
        )
    if through is not None:
        to = _input_of(through, topic)
    with open_cluster(broker, config, timeout) as cluster:
        queue = _open_queue(cluster.connection, topic, timeout)
        selection = _make_selection(from_topic, stage, error, operator, at)
        _confirm_selection(queue, selection, limit, "Send", yes=yes)
        handled = queue.replay(selection, to=to, most_attempts=most_attempts, limit=limit)
    if as_json:
        print_json(asdict(handled))
        return
    note(f"Sent {plural(handled.done, 'record')}, left {handled.left}.")
    for name, count in sorted(handled.topics.items()):
        note(f"  {name}: {count}")
    if handled.exhausted:
        note(
            f"{plural(handled.exhausted, 'record')} failed {most_attempts} times or more, and stayed: --max-attempts 0 sends "
            "them, too"
        )


@app.command("drop", epilog=examples("streamrt dlq drop dead-letters__shop --error UnicodeDecodeError"))
def drop(
    topic: TopicArgument,
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    from_topic: FromOption = None,
    stage: StageOption = None,
    error: ErrorOption = None,
    operator: OperatorOption = "",
    at: AtOption = None,
    limit: LimitOption = 0,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete dead letters permanently."""
    with open_cluster(broker, config, timeout) as cluster:
        queue = _open_queue(cluster.connection, topic, timeout)
        selection = _make_selection(from_topic, stage, error, operator, at)
        _confirm_selection(queue, selection, limit, "Delete", yes=yes)
        handled = queue.drop(selection, limit=limit)
    if as_json:
        print_json(asdict(handled))
    else:
        note(f"Deleted {plural(handled.done, 'dead letter')}, left {handled.left}.")


def _input_of(name: str, letters: str) -> str:
    """Return the topic that an application reads.

    Args:
        name: the application, as `module:app`.
        letters: the topic for dead letters.

    Raises:
        ConfigurationError: if it reads none, or several, or the topic for dead letters.
    """
    topology = load_application(name).topology
    inputs = sorted(topic for topic in topology.sources if topic not in topology.exchanges)
    if inputs == [letters]:
        raise ConfigurationError(
            f"{name} reads {letters} itself, so it gets dead letters without a replay, which would send them there again "
            "without their reasons: run it, or choose another topic with --to TOPIC"
        )
    if len(inputs) == 1:
        return inputs[0]
    found = f"the topics {', '.join(inputs)}" if inputs else "no topic"
    raise ConfigurationError(
        f"{name} reads {found}, so --through names no single topic: choose the topic with --to TOPIC"
    )


def _open_queue(connection: Any, topic: str, timeout: float) -> "DeadLetterQueue":
    from streamrt.topics.dead_letter_queue import DeadLetterQueue

    return DeadLetterQueue(connection, topic, timeout)


def _iterate_selected(queue: "DeadLetterQueue", selection: Selection, limit: int) -> "Iterable[Letter]":
    return itertools.islice(filter(selection, queue.pending()), limit or None)


def _make_selection(
    topics: list[str] | None,
    stages: list[str] | None,
    errors: list[str] | None,
    operator: str,
    places: list[str] | None,
) -> Selection:
    """Return the condition that the options make."""
    wanted = {_read_place(text) for text in places or ()}

    def selected(letter: "Letter") -> bool:
        why = letter.why
        if wanted and (letter.record.partition, letter.record.offset) not in wanted:
            return False
        if why is None:
            return not (topics or stages or errors or operator)
        names = {why.error_class, why.error_class.rpartition(".")[2]}
        return (
            (not topics or why.topic in topics)
            and (not stages or why.stage in stages)
            and (not errors or not names.isdisjoint(errors))
            and operator in why.operator
        )

    return selected


def _read_place(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise typer.BadParameter(f"{text!r} is not PARTITION:OFFSET, such as 0:17")
    return int(partition), int(offset)


def _confirm_selection(queue: "DeadLetterQueue", selection: Selection, limit: int, verb: str, *, yes: bool) -> None:
    if not yes:
        count = sum(1 for _ in _iterate_selected(queue, selection, limit))
        typer.confirm(f"{verb} {plural(count, 'dead letter')}?", abort=True, err=True)


def _print_kinds(found: "Iterable[Letter]", *, as_json: bool) -> None:
    kinds: Counter[tuple[str, ...]] = Counter()
    oldest: dict[tuple[str, ...], int] = {}
    example: dict[tuple[str, ...], str] = {}
    for letter in found:
        why = letter.why
        kind = ("", "", "", "no dead letter") if why is None else (why.topic, why.stage, why.operator, why.error_class)
        kinds[kind] += 1
        oldest[kind] = min(oldest.get(kind, letter.record.timestamp), letter.record.timestamp)
        example.setdefault(kind, "" if why is None else why.message)
    names = ("topic", "stage", "operator", "error_class")
    if as_json:
        print_json(
            {
                "kinds": [
                    {
                        **dict(zip(names, kind, strict=True)),
                        "count": count,
                        "oldest": oldest[kind],
                        "message": example[kind],
                    }
                    for kind, count in kinds.most_common()
                ]
            }
        )
        return
    rows = [[count, *kind, time_text(oldest[kind]), readable(example[kind])] for kind, count in kinds.most_common()]
    print_table(["COUNT", "TOPIC", "STAGE", "OPERATOR", "ERROR", "OLDEST", "FIRST MESSAGE"], rows)


def _print_each(found: "Iterable[Letter]", *, as_json: bool) -> None:
    if as_json:
        print_json(
            {"letters": [_make_document(letter, _decode_auto, _decode_auto, json_values=True) for letter in found]}
        )
        return
    rows = []
    for letter in found:
        record, why = letter.record, letter.why
        told = ["", "", "no dead letter", "", ""]
        if why is not None:
            told = [
                f"{why.topic}[{why.partition}] {why.offset}",
                why.stage,
                why.error_class,
                readable(why.message),
                str(why.attempt),
            ]
        rows.append([f"{record.partition}:{record.offset}", time_text(record.timestamp), *told])
    print_table(["PLACE", "TIME", "RECORD", "STAGE", "ERROR", "MESSAGE", "ATTEMPT"], rows)


def _check_decoder(show: Decoder, what: str, option: str, read_format: ReadFormat, place: str) -> Decoder:
    """Return a decoder whose error names the dead letter, and what shows it all the same."""

    def checked(data: bytes, headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, str]:
        try:
            return show(data, headers)
        except SerializationError as error:
            raise SerializationError(
                f"the {what} of the dead letter at {place} does not have the format {read_format.value}: {error}; use "
                f"{option} auto or hex"
            ) from None

    return checked


def _decode_auto(data: bytes, headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, str]:
    return decode(data, ReadFormat.auto)


def _make_document(
    letter: "Letter", show_value: Decoder, show_key: Decoder, *, json_values: bool = False
) -> dict[str, Any]:
    """Return what is known about a dead letter."""
    from streamrt.topics.dead_letters import without_error_headers

    record = letter.record

    def text(data: bytes | str | None, show: Decoder) -> Any:
        if data is None or isinstance(data, str):
            return data
        shown, name = show(data, headers)
        return json_form(shown, name) if json_values else shown

    own = without_error_headers(record.headers)
    # The id of a schema may be in a header.
    headers = [(name, value.encode() if isinstance(value, str) else value) for name, value in own]
    return {
        "place": f"{record.partition}:{record.offset}",
        "time": time_text(record.timestamp),
        **({} if letter.why is None else asdict(letter.why)),
        "key": text(record.key, show_key),
        "value": text(record.value, show_value),
        "headers": [[name, text(value, _decode_auto)] for name, value in own],
    }
