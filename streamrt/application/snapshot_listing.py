"""Finds the snapshots of its state that an application could restore now."""

import contextlib
from collections.abc import Mapping

from streamrt.records import TopicPartition
from streamrt.runtime.driver.starting.definition import ApplicationDefinition, Environment
from streamrt.runtime.driver.starting.planned import PlannedAdmin
from streamrt.runtime.driver.starting.state_setup import complete_spec, set_up_topics
from streamrt.runtime.placement import ChangelogSettings, StateSettings
from streamrt.runtime.tasks.stores.snapshot_rules import ANY_OFFSET, SnapshotRules
from streamrt.state import StoreIdentity

__all__ = ["StorePlace", "restore_rules"]

StorePlace = tuple[str, str, int]
"""Topic, store and partition."""


def restore_rules(
    definition: ApplicationDefinition, environment: Environment, now: int, timeout_s: float
) -> dict[StorePlace, SnapshotRules]:
    """Return, for each store partition with a changelog, which snapshots a restore would use. Nothing is changed.

    Args:
        definition: the application.
        environment: where it runs.
        now: wall clock in milliseconds.
        timeout_s: seconds to wait for a broker.

    Raises:
        KafkaBrokerUnavailableError: if no broker answers in time.
        StreamRTError: another subclass, if the application could not start.
    """
    config = definition.config
    with contextlib.closing(PlannedAdmin(environment.connection)) as admin:
        admin.wait_for_broker(timeout_s)
        topics = definition.topics.on_cluster(admin, create=config.auto_create_topics)
        set_up_topics(topics, definition.sources.changelog_topics(), create=config.auto_create_topics)
        base_dir = config.state_dir.absolute()
        spec = complete_spec(definition.task_spec(), topics, admin, base_dir, definition.rocksdb_options, config)
        state = spec.state
        if state is None:
            return {}
        logs = {
            (scope, store, number): log
            for scope, info in state.sources.items()
            for store, log in info.stores.items()
            if log is not None and log.topic not in admin.created
            for number in range(info.partitions)
        }
        changelogs = [TopicPartition(log.topic, number) for (_, _, number), log in logs.items()]
        bounds = admin.offset_bounds(changelogs, config.request_timeout)
        inputs = [
            TopicPartition(topic, number)
            for scope, info in state.sources.items()
            for topic in info.topics or (scope,)
            for number in range(info.partitions)
        ]
        found = admin.committed_now(config.consumer_group, inputs, timeout=config.request_timeout)
    committed = {partition: offset.offset for partition, offset in found.items() if offset.offset is not None}
    return {
        place: _rules(state, place, log, bounds, committed, now, transactional=spec.transactional)
        for place, log in logs.items()
    }


def _rules(
    state: StateSettings,
    place: StorePlace,
    log: ChangelogSettings,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    committed: Mapping[TopicPartition, int],
    now: int,
    *,
    transactional: bool,
) -> SnapshotRules:
    scope, store, number = place
    info = state.sources[scope]
    identity = StoreIdentity(state.group, scope, number, store, info.topic_id, log.id, info.partitions)
    inputs = [TopicPartition(topic, number) for topic in info.topics or (scope,)]
    # An input without a committed offset may begin anywhere.
    total = sum(committed.get(each, ANY_OFFSET) for each in inputs)
    changelog = TopicPartition(log.topic, number)
    return SnapshotRules(identity, bounds[changelog], total, transactional, now, log.longest_absence_ms, 0)
