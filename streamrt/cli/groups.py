"""`streamrt groups` and `streamrt lag`: consumer groups, their members, and what they still have to read."""

from dataclasses import asdict
from typing import Annotated

import typer

from streamrt.cli.broker import BrokerOption, Cluster, ConfigOption, TimeoutOption, open_cluster
from streamrt.cli.output import JsonOption, echo, examples, plural, print_json, print_table
from streamrt.errors import ConfigurationError

__all__ = ["app", "lag"]

app = typer.Typer(no_args_is_help=True, help="Consumer groups and their members.")


@app.callback()
def _group() -> None:
    """Consumer groups and their members."""


@app.command("list", epilog=examples("streamrt groups list", "streamrt groups list --json | jq -r '.groups[].name'"))
def list_groups(
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 10.0,
    prefix: Annotated[str, typer.Option(help="Only groups whose names begin with this text.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the consumer groups of a cluster, with their states."""
    with open_cluster(broker, config, timeout) as cluster:
        groups = [group for name, group in cluster.admin.list_groups(timeout).items() if name.startswith(prefix)]
    if as_json:
        print_json({"groups": [asdict(group) for group in groups]})
    else:
        print_table(["GROUP", "STATE", "PROTOCOL"], [[group.name, group.state, group.protocol] for group in groups])


@app.command("show", epilog=examples("streamrt groups show shop", "streamrt groups show shop --json"))
def show(
    group: Annotated[str, typer.Argument(help="Name of the group: consumer_group of the application.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show a group: its state, and its members with their partitions."""
    with open_cluster(broker, config, timeout) as cluster:
        found = cluster.admin.describe_group(group, timeout)
        if found is None:
            raise _make_unknown_error(cluster, group)
    if as_json:
        members = [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [each._asdict() for each in member.partitions],
            }
            for member in found.members
        ]
        print_json({**asdict(found.group), "members": members})
        return
    echo(f"{group}: {found.group.state}, protocol {found.group.protocol}")
    if found.members:
        rows = [
            [member.member_id, member.client_id, member.host, ", ".join(f"{t}[{p}]" for t, p in member.partitions)]
            for member in found.members
        ]
        print_table(["MEMBER", "CLIENT", "HOST", "PARTITIONS"], rows)


def lag(
    group: Annotated[str, typer.Argument(help="Name of the group: consumer_group of the application.")],
    broker: BrokerOption = None,
    config: ConfigOption = None,
    timeout: TimeoutOption = 10.0,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only this topic; may be repeated. By default all that the group has read.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far a group is behind the ends of its partitions.

    LAG is the number of offsets from the committed one to the end. It is an
    upper bound of the records to come: markers of transactions, records of
    aborted transactions, and records that compaction removed also have offsets.
    OPEN is the part of it that an open transaction holds back: it can be read
    when the transaction ends.
    """
    from streamrt.records import TopicPartition

    with open_cluster(broker, config, timeout) as cluster:
        if topic:
            counts = {name: settings.num_partitions or 0 for name, settings in cluster.configs_of(topic).items()}
        else:
            # All topics: an admin client of librdkafka 2.16 can crash when it reads all offsets of a group.
            found = cluster.admin.list_topics(timeout)
            counts = {name: len(each.partitions) for name, each in found.items() if not name.startswith("__")}
        every = [TopicPartition(name, number) for name in sorted(counts) for number in range(counts[name])]
        offsets = {place: found.offset for place, found in cluster.admin.committed_now(group, every, timeout).items()}
        known = set(topic or ()) | {place.topic for place, offset in offsets.items() if offset is not None}
        partitions = [place for place in every if place.topic in known]
        if not any(offsets[place] is not None for place in partitions):
            raise _make_unknown_error(
                cluster, group, "has committed no offset" + (f" of {', '.join(topic)}" if topic else "")
            )
        ends = cluster.admin.offset_bounds(partitions, timeout)
        stable = cluster.admin.offset_bounds(partitions, timeout, isolation_level="read_committed")
    rows = []
    for place in partitions:
        committed, end = offsets[place], ends[place][1]
        behind = None if committed is None else max(0, end - committed)
        rows.append(
            {
                **place._asdict(),
                "committed": committed,
                "end": end,
                "lag": behind,
                "open": max(0, end - max(stable[place][1], committed or 0)),
            }
        )
    total = sum(row["lag"] or 0 for row in rows)
    if as_json:
        print_json({"group": group, "total": total, "partitions": rows})
        return
    print_table(
        ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "OPEN"],
        [["none" if value is None else value for value in row.values()] for row in rows],
    )
    without = sum(row["lag"] is None for row in rows)
    more = f"; {plural(without, 'partition')} without a committed offset not counted" if without else ""
    echo(f"total lag of {group}: {plural(total, 'offset')}{more}")


def _make_unknown_error(cluster: Cluster, group: str, what: str = "does not exist") -> ConfigurationError:
    return ConfigurationError(
        f"group {group} {what} at {cluster.connection.bootstrap_servers}: `streamrt groups list` lists the groups"
    )
