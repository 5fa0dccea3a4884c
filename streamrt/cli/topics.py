"""`streamrt topics`: lists, shows, creates and deletes topics."""

from dataclasses import asdict
from typing import Annotated

import typer

from streamrt.cli.broker import BrokerOption, ConfigOption, NewTopic, TimeoutOption, open_cluster
from streamrt.cli.output import JsonOption, echo, examples, plural, print_json, print_table
from streamrt.errors import ConfigurationError

__all__ = ["app"]

_SHOWN = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
)
"""Options that `show` prints; brokers have about thirty more."""
_KINDS = ("changelog", "repartition")

app = typer.Typer(no_args_is_help=True, help="List, show, create and delete topics.")


@app.callback()
def _group() -> None:
    """List, show, create and delete topics."""


@app.command(
    "list",
    epilog=examples(
        "streamrt topics list --broker localhost:9092",
        "streamrt topics list --prefix changelog__shop--",
        "streamrt topics list --json | jq -r '.topics[].name'",
    ),
)
def list_topics(
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 10.0,
    prefix: Annotated[str, typer.Option(help="Only topics whose names begin with this text.")] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Also topics of Kafka itself, whose names begin with two underscores.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the topics of a cluster, with partitions and replicas."""
    with open_cluster(broker, config, timeout) as cluster:
        found = cluster.admin.list_topics(timeout)
    topics = []
    for name in sorted(found):
        if name.startswith(prefix) and (every or not name.startswith("__")):
            partitions = found[name].partitions
            replicas = min((len(partition.replicas) for partition in partitions.values()), default=0)
            topics.append(
                {"name": name, "partitions": len(partitions), "replicas": replicas, "kind": _topic_kind(name)}
            )
    if as_json:
        print_json({"topics": topics})
    else:
        print_table(["TOPIC", "PARTITIONS", "REPLICAS", "KIND"], [list(topic.values()) for topic in topics])


@app.command(
    "show",
    epilog=examples("streamrt topics show orders", "streamrt topics show orders --json | jq .options"),
)
def show(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show partitions, offsets and options of a topic; --json has all options."""
    with open_cluster(broker, config, timeout) as cluster:
        settings = cluster.configs_of([topic])[topic]
        replicas = cluster.admin.partition_replicas(topic, timeout)
        partitions = cluster.partitions_of(topic)
        # In this order, no stable end is above the end.
        stable = cluster.admin.offset_bounds(partitions, timeout, isolation_level="read_committed")
        bounds = cluster.admin.offset_bounds(partitions, timeout)
    rows = [
        {**asdict(at), "first_offset": bounds[place][0], "stable_end": stable[place][1], "end_offset": bounds[place][1]}
        for at, place in zip(replicas, partitions, strict=True)
    ]
    options = dict(sorted(settings.extra_config.items()))
    if as_json:
        print_json({"name": topic, "kind": _topic_kind(topic), "partitions": rows, "options": options})
        return
    echo(f"{topic}: {plural(len(rows), 'partition')}, replicas: {settings.replication_factor}")
    print_table(
        ["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "FIRST OFFSET", "STABLE END", "END"],
        [
            [
                _format_numbers(value) if isinstance(value, list) else "none" if value is None else value
                for value in row.values()
            ]
            for row in rows
        ],
    )
    print_table(["OPTION", "VALUE"], [[name, options[name]] for name in _SHOWN if name in options])


@app.command(
    "create",
    epilog=examples(
        "streamrt topics create orders --partitions 6 --replication-factor 3",
        "streamrt topics create prices --set cleanup.policy=compact --set min.insync.replicas=2",
        "streamrt topics create orders payments --if-missing",
    ),
)
def create(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of the topics.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Number of partitions; by default that of the cluster.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="Number of replicas; by default that of the cluster.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="Option of the topics; may be repeated.")
    ] = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Leave topics that exist as they are, instead of refusing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create topics, and wait until they can be used."""
    from streamrt.kafka import TopicConfig

    chosen = dict(_read_option(text) for text in options or ())
    with open_cluster(broker, config, timeout) as cluster:
        found = cluster.admin.inspect_topics(topics, timeout)
        existing = [name for name, settings in found.items() if settings is not None]
        if existing and not if_missing:
            raise ConfigurationError(
                f"{', '.join(existing)} already {'exist' if len(existing) > 1 else 'exists'}, and nothing was created: "
                "choose another name, or pass --if-missing to leave existing topics as they are"
            )
        missing = [name for name, settings in found.items() if settings is None]
        cluster.admin.create_topics(
            [NewTopic(name, TopicConfig(partitions, replication_factor, chosen)) for name in missing], timeout, timeout
        )
        created = cluster.configs_of(missing)
    if as_json:
        present = {**{name: settings for name, settings in found.items() if settings is not None}, **created}
        print_json(
            {
                "topics": [
                    {
                        "name": name,
                        "partitions": present[name].num_partitions,
                        "replicas": present[name].replication_factor,
                        "created": name in created,
                    }
                    for name in found
                ]
            }
        )
        return
    for name in found:
        if name in created:
            count = plural(created[name].num_partitions or 0, "partition")
            echo(f"created {name}: {count}, replicas: {created[name].replication_factor}")
        else:
            echo(f"{name} exists already, and was not changed")


@app.command(
    "delete",
    epilog=examples("streamrt topics delete orders", "streamrt topics delete orders payments --yes"),
)
def delete(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of the topics.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 30.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete topics with all their records.

    If one of the topics does not exist, none is deleted.
    """
    with open_cluster(broker, config, timeout) as cluster:
        found = cluster.configs_of(topics)
        if not yes:
            for name, settings in found.items():
                kind = _topic_kind(name)
                state = f", the {kind} topic of an application" if kind else ""
                echo(f"{name}: {plural(settings.num_partitions or 0, 'partition')}{state}", err=as_json)
            typer.confirm("Delete with all records?", abort=True, err=as_json)
        cluster.admin.delete_topics(list(found), timeout)
    if as_json:
        print_json({"deleted": list(found)})
    else:
        echo(f"deleted {', '.join(found)}")


def _read_option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} is not OPTION=VALUE", param_hint="--set")
    return name, value


def _topic_kind(topic: str) -> str | None:
    """Return which kind of internal topic of an application this is."""
    return next((kind for kind in _KINDS if topic.startswith(f"{kind}__")), None)


def _format_numbers(values: list[int]) -> str:
    return ",".join(map(str, values))
