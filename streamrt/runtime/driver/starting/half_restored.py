"""The mark in committed offsets whose state a restore of a savepoint, or a repartition, has not finished."""

from collections.abc import Mapping

from streamrt.errors import ChangelogError
from streamrt.kafka.cluster.committed import CommittedOffset
from streamrt.records import TopicPartition
from streamrt.runtime.metadata import CommittedMetadata

__all__ = ["MARK", "refuse_half_restored"]

MARK = "restoring:"
"""Beginning of what such offsets have in place of the ids of changelogs."""


def refuse_half_restored(committed: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Raise if the state of committed offsets is not there yet.

    Where metadata have digests instead of names, the ids of changelogs do not fit, which is refused later.

    Raises:
        ChangelogError: if there are such offsets.
    """
    for partition, entry in committed.items():
        for named in CommittedMetadata.decode(entry.metadata).stores.values():
            if any(changelog is not None and changelog.startswith(MARK) for changelog in named.values()):
                raise ChangelogError(
                    f"the state of {partition} is incomplete, because a restore of a savepoint or a repartition ended in the "
                    "middle: run `streamrt savepoint restore` or `streamrt repartition` again"
                )
