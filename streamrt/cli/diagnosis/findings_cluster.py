"""Checks of `streamrt doctor` on a cluster: whether it answers, its version, permissions, and its clock."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from streamrt.cli.broker import Cluster, open_cluster
from streamrt.cli.diagnosis.findings import Finding, ok, problem, warning
from streamrt.cli.output import plural, time_text
from streamrt.config import DEFAULT_CONSUMER_GROUP
from streamrt.errors import ConfigurationError, KafkaBrokerUnavailableError, StreamRTError

if TYPE_CHECKING:
    from streamrt.kafka.checks import ClusterChecks

__all__ = ["check_cluster"]

_TESTED = ("3.7", "3.9", "4.0", "4.1", "4.2 or 4.3", "4.4 or newer")
_OLDEST = _TESTED[0]
_FAST_CLOCK_MS = 2_000
"""A commit that lies further in the future shows that the clocks differ."""


def check_cluster(
    broker: str | None, config: Path | None, timeout: float, group: str | None, transactions: bool = False
) -> Iterator[Finding]:
    """Yield what the checks of a cluster find.

    Args:
        broker: the option `--broker`.
        config: the option `--config`.
        timeout: the option `--timeout`.
        group: a consumer group to check the permission for.
        transactions: whether to take a transactional id.
    """
    from streamrt.kafka.checks import ClusterChecks

    try:
        with open_cluster(broker, config, timeout) as cluster:
            checks = ClusterChecks(cluster.connection)
            try:
                yield from _check_cluster(cluster, checks, group, transactions)
            finally:
                checks.close()
    except ConfigurationError as error:
        if broker is None and config is None:
            yield warning("broker", "not checked, because no address is given", str(error))
        else:
            yield problem("broker", str(error), "correct the options --broker and --config, or their variables")
    except KafkaBrokerUnavailableError as error:
        yield problem(
            "broker", str(error), "check address, network and login; `streamrt dev kafka` starts one on this machine"
        )
    except StreamRTError as error:
        yield problem("broker", str(error), "check the logs of the brokers, and what the user may do")


def _check_cluster(
    cluster: Cluster, checks: "ClusterChecks", group: str | None, transactions: bool
) -> Iterator[Finding]:
    brokers = plural(cluster.admin.broker_count(cluster.timeout), "broker")
    yield ok(
        "broker",
        f"{cluster.connection.bootstrap_servers} answers: cluster {cluster.admin.cluster_id(cluster.timeout)}, {brokers}",
    )
    yield from _check_versions(cluster, checks)
    yield _create_topics(cluster, checks)
    if group is not None:
        yield _check_group(cluster, group)
    if transactions:
        yield _check_transactions(cluster, checks, group or DEFAULT_CONSUMER_GROUP)
    yield _check_clock(cluster, checks)


def _check_versions(cluster: Cluster, checks: "ClusterChecks") -> Iterator[Finding]:
    from streamrt.kafka.checks import has_newer_transactions, lacking, release_of

    versions = checks.api_versions(cluster.timeout)
    release = release_of(versions)
    if release is None:
        yield warning(
            "broker version",
            "the client does not show which requests the brokers support",
            f"make sure that the brokers run Kafka {_OLDEST} or newer",
        )
        return
    missing = lacking(versions, "always", "exactly-once")
    if missing:
        yield problem(
            "broker version",
            f"Kafka {release}, which lacks the requests {', '.join(missing)}",
            f"upgrade the brokers: StreamRT is tested with Kafka {_OLDEST} and newer",
        )
    elif release not in _TESTED:
        yield warning(
            "broker version",
            f"Kafka {release}",
            f"StreamRT is not tested with this release, but with {', '.join(_TESTED)}: test your applications",
        )
    else:
        yield ok("broker version", f"Kafka {release}")
    if not has_newer_transactions(versions):
        yield warning(
            "exactly-once",
            "brokers before Kafka 4.0 do not tell a transaction's late request from one of the next transaction (KIP-890)",
            "StreamRT takes a new producer after every error, which voids late requests; upgrade the brokers all the same, "
            "if other applications write in transactions",
        )
    missing = lacking(versions, "consumer")
    if missing:
        yield ok("group protocol", f"classic alone: group_protocol='consumer' needs {', '.join(missing)}")
    else:
        yield ok("group protocol", "classic and consumer")


def _create_topics(cluster: Cluster, checks: "ClusterChecks") -> Finding:
    permission = checks.may_create_topics(cluster.timeout)
    if permission.allowed:
        return ok("create topics", "allowed")
    if permission.allowed is None:
        return warning(
            "create topics",
            f"the brokers refuse a topic with the cluster's defaults: {permission.reason}",
            "set num_partitions and replication_factor of topics, or correct the defaults of the cluster",
        )
    return warning(
        "create topics",
        f"not allowed: {permission.reason}",
        "grant the user CREATE on topics; or create changelog and repartition topics in advance, and set "
        "auto_create_topics=False",
    )


def _check_transactions(cluster: Cluster, checks: "ClusterChecks", group: str) -> Finding:
    permission = checks.may_use_transactions(group, cluster.timeout)
    if permission.allowed:
        return ok("transactions", f"allowed for group {group}")
    if permission.allowed is None:
        return problem(
            "transactions",
            f"the brokers give no transactional id: {permission.reason}",
            "check the topic __transaction_state: its replication factor must not be above the number of brokers",
        )
    return problem(
        "transactions",
        f"not allowed for group {group}: {permission.reason}",
        "grant the user WRITE and DESCRIBE on TransactionalId, prefix streamrt; processing_guarantee='exactly-once' "
        "needs it",
    )


def _check_group(cluster: Cluster, group: str) -> Finding:
    from streamrt.records import TopicPartition

    name = f"group {group}"
    topics = {topic: found for topic, found in cluster.admin.list_topics(cluster.timeout).items() if found.partitions}
    if not topics:
        return warning(name, "not checked, because the user sees no topic", "create a topic, or grant DESCRIBE on it")
    try:
        cluster.admin.committed_now(group, [TopicPartition(min(topics), 0)], cluster.timeout)
    except StreamRTError as error:
        return problem(name, str(error), f"grant the user READ and DESCRIBE on the group {group}")
    return ok(name, "its offsets can be read")


def _check_clock(cluster: Cluster, checks: "ClusterChecks") -> Finding:
    newest = checks.newest_commit_ms(cluster.timeout)
    now = time.time() * 1000
    if newest is None:
        return ok("clock", "cannot be compared: no consumer group has committed, or the user may not look")
    ahead_s = (newest - now) / 1000
    if newest - now > _FAST_CLOCK_MS:
        return warning(
            "clock",
            f"a broker's clock is at least {ahead_s:.1f} s ahead of this machine's",
            "synchronize the clocks with NTP: windows, retention and timeouts compare times of several machines",
        )
    return ok("clock", f"not behind the brokers', as far as the last commit of a group shows ({time_text(newest)})")
