"""Answers of `/status` and `/overview`: the state of an application, and everything that its dashboard shows, as data."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from streamrt.common.texts import one_line
from streamrt.control.controlled import Controlled, installed_version
from streamrt.control.tables import show_tables
from streamrt.errors import code_of
from streamrt.runtime.driver.observation.lag import LagSample
from streamrt.runtime.driver.observation.meters import Meters
from streamrt.runtime.driver.observation.stats import store_stats
from streamrt.runtime.report import RestoredPart
from streamrt.topology import TaskId

__all__ = ["described_overview", "described_status"]


def described_status(app: Controlled) -> dict[str, Any]:
    """Return the state of an application.

    Args:
        app: the application.
    """
    error = app.state.life.error
    return {
        "status": app.state.status.value,
        "desired_status": app.state.desired_status.value,
        "since": app.state.status_since.isoformat(),
        "error": None
        if error is None
        else {"error": type(error).__name__, "code": code_of(error), "message": one_line(error)},
        "waiting_for": app.state.progress.snapshot().waiting_for,
        "group": app.definition.config.consumer_group,
        "paused_topics": sorted(app.state.paused_topics),
        "paused_sources": sorted(app.definition.sources.paused),
        "version": installed_version(),
    }


def described_overview(app: Controlled, sample: LagSample, reasons: Sequence[str]) -> dict[str, Any]:
    """Return the state, the progress and the recent past of an application.

    Args:
        app: the application.
        sample: the last known lag.
        reasons: why it is not ready.
    """
    meters = app.state.progress.meters
    return {
        "at": time.time(),
        "status": described_status(app),
        "ready": not reasons,
        "reasons": list(reasons),
        "processing_mode": app.definition.config.processing_mode,
        "processing_guarantee": app.definition.config.processing_guarantee,
        "lag_at": sample.at,
        "partitions": _show_partitions(app, sample),
        "other_partitions": _other_partitions(app, sample),
        "sources": [
            {"name": process.name, "topic": process.topic.name, "running": process.is_alive()}
            for process in app.definition.sources.processes
        ],
        "tables": show_tables(app, sample, meters.snapshot()),
        **_show_counts(app, meters),
        **_show_recent(meters),
    }


def _show_partitions(app: Controlled, sample: LagSample) -> list[dict[str, Any]]:
    positions = app.state.progress.snapshot().positions if app.state.status.is_active else {}
    rows = []
    for partition, position in sorted(positions.items()):
        known = sample.lags.get(partition)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "position": position,
                "committed": None if known is None else known.committed,
                "end": None if known is None else known.end,
                "lag": None if known is None or known.committed is None else known.offsets,
            }
        )
    return rows


def _other_partitions(app: Controlled, sample: LagSample) -> list[dict[str, Any]]:
    """Return the partitions of other instances, with their owners."""
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "committed": other.lag.committed,
            "end": other.lag.end,
            "lag": None if other.lag.committed is None else other.lag.offsets,
            "owner": other.owner,
            "url": other.url,
        }
        for partition, other in (sorted(sample.others.items()) if app.state.status.is_active else ())
    ]


def _show_counts(app: Controlled, meters: Meters) -> dict[str, Any]:
    progress, counted = app.state.progress.snapshot(), meters.snapshot()
    return {
        # Of the current or last run.
        "run": {
            "records": progress.records,
            "rate": progress.rate,
            "produced": progress.produced,
            "batches": progress.batches,
            "skipped": progress.skipped,
            "dead_letters": progress.dead_letters,
        },
        # Of all runs of the process.
        "process": {
            "starts": counted.starts,
            "restarts": sum(counted.restarts.values()),
            "interruptions": sum(counted.interruptions.values()),
            "sink_pauses": sum(counted.sink_pauses.values()),
            "lock_waits": sum(counted.lock_waits.values()),
            "restores": sum(counted.restores.values()),
        },
        "restores": _show_restores(counted.restoring),
        "stores": [
            {"stream": stream, "store": store, "rows": numbers.rows, "bytes": numbers.bytes}
            for stream, stores in store_stats(counted).items()
            for store, numbers in stores.items()
            if numbers.partitions
        ],
        "event_times": _event_times(counted.event_times, counted.watermarks),
    }


def _show_restores(restoring: Mapping[tuple[TaskId, str], RestoredPart]) -> list[dict[str, Any]]:
    return [
        {"stream": task.stream, "partition": task.partition, "store": store, "done": part.done, "total": part.total}
        for (task, store), part in sorted(restoring.items(), key=lambda item: item[0])
    ]


def _event_times(
    times: Mapping[tuple[TaskId, str], int], watermarks: Mapping[tuple[TaskId, str], int]
) -> list[dict[str, Any]]:
    """Return event times and watermark of each store over its tasks, in seconds since the Unix epoch."""
    lowest: dict[tuple[str, str], int] = {}
    for (task, store), at in watermarks.items():
        lowest[task.stream, store] = min(at, lowest.get((task.stream, store), at))
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for (task, store), reached in times.items():
        found[task.stream, store].append(reached)
    return [
        {
            "stream": stream,
            "store": store,
            "tasks": len(reached),
            "lowest": min(reached) / 1_000,
            "highest": max(reached) / 1_000,
            "watermark": lowest[stream, store] / 1_000 if (stream, store) in lowest else None,
        }
        for (stream, store), reached in sorted(found.items())
    ]


def _show_recent(meters: Meters) -> dict[str, Any]:
    return {
        "seconds": [
            # Aborted work comes as negative counts.
            [each.at, each.batches, max(0, each.records), max(0, each.failed), round(each.longest_s, 4)]
            for each in meters.recent.seconds()
        ],
        "troubles": [
            {
                "at": each.at,
                "stream": each.task.stream,
                "partition": each.task.partition,
                "kind": each.kind,
                "reason": each.reason,
                "record": each.record,
                "operator": each.operator,
            }
            for each in meters.recent.troubles()
        ],
    }
