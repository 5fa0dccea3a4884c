"""What `/status` and `/overview` answer: the state of an application, and everything that its dashboard shows, as data."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from streamrt.common.texts import one_line
from streamrt.control.controlled import Controlled, Inside, installed_version
from streamrt.runtime.driver.lag import LagSample
from streamrt.runtime.driver.meters import Meters
from streamrt.runtime.driver.stats import store_stats
from streamrt.runtime.report import RestoredPart
from streamrt.topology import TaskId

__all__ = ["described_overview", "described_status"]


def described_status(app: Controlled, inside: Inside) -> dict[str, Any]:
    """Return the state of an application.

    Args:
        app: the application.
        inside: its sources.
    """
    error = app.error
    return {
        "status": app.status.value,
        "desired_status": app.desired_status.value,
        "since": app.status_since.isoformat(),
        "error": None if error is None else {"error": type(error).__name__, "message": one_line(error)},
        "waiting_for": app.progress().waiting_for,
        "group": app.config.consumer_group,
        "paused_topics": sorted(app.paused_topics),
        "paused_sources": sorted(inside.definition.sources.paused),
        "version": installed_version(),
    }


def described_overview(app: Controlled, inside: Inside, sample: LagSample, reasons: Sequence[str]) -> dict[str, Any]:
    """Return the state, the progress and the recent past of an application.

    Args:
        app: the application.
        inside: its sources and its progress.
        sample: the last known lag.
        reasons: why it is not ready.
    """
    meters = inside.progress().meters
    return {
        "at": time.time(),
        "status": described_status(app, inside),
        "ready": not reasons,
        "reasons": list(reasons),
        "processing_mode": app.config.processing_mode,
        "processing_guarantee": app.config.processing_guarantee,
        "lag_at": sample.at,
        "partitions": _partitions(app, sample),
        "other_partitions": _other_partitions(app, sample),
        "sources": [
            {"name": process.name, "topic": process.topic.name, "running": process.is_alive()}
            for process in inside.definition.sources.processes
        ],
        **_counts(app, meters),
        **_recent(meters),
    }


def _partitions(app: Controlled, sample: LagSample) -> list[dict[str, Any]]:
    positions = app.progress().positions if app.status.is_active else {}
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
        for partition, other in (sorted(sample.others.items()) if app.status.is_active else ())
    ]


def _counts(app: Controlled, meters: Meters) -> dict[str, Any]:
    progress, counted = app.progress(), meters.snapshot()
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
        "restores": _restores(counted.restoring),
        "stores": [
            {"stream": stream, "store": store, "rows": numbers.rows, "bytes": numbers.bytes}
            for stream, stores in store_stats(counted).items()
            for store, numbers in stores.items()
            if numbers.partitions
        ],
        "event_times": _event_times(counted.event_times, counted.watermarks),
    }


def _restores(restoring: Mapping[tuple[TaskId, str], RestoredPart]) -> list[dict[str, Any]]:
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


def _recent(meters: Meters) -> dict[str, Any]:
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
