"""Operators on tables in applications: rows by key that change, and what is computed from them.

Records between these operators have a `Change` as their value: what the row of their key was, and what it is now. See
decision 60.
"""

from streamrt.relations.add_rows import AddRows, UnionRows
from streamrt.relations.apply_changes import ApplyChanges, KeyChanges
from streamrt.relations.captured import ChangeEvents, ChangeKey, ChangeReader, ChangeRows, IsEventOf
from streamrt.relations.change import Change
from streamrt.relations.condense import Condense
from streamrt.relations.consolidate import Consolidate
from streamrt.relations.equal_rows import CombineRows, DistinctRows, NumberRows, RowDigest, RowSets
from streamrt.relations.exact_keys import ExactKey, GroupKey, KeyNulls
from streamrt.relations.exact_values import ExactDeserializer, ExactSerializer
from streamrt.relations.expand_changes import ExpandChanges
from streamrt.relations.foreign_key_join import (
    ForeignHow,
    ForeignKey,
    MatchForeignKeys,
    ResolveMatches,
    SendByKey,
    SendMatch,
    Subscribe,
)
from streamrt.relations.group_aggregate import GroupAggregate
from streamrt.relations.maintain import Maintain, find_request_topics, find_row_topics
from streamrt.relations.map_rows import MapRows
from streamrt.relations.map_versions import MapVersions
from streamrt.relations.materialize import Materialize
from streamrt.relations.merge_rules import RowMerger
from streamrt.relations.over import OverChanges
from streamrt.relations.present_row import PresentRow
from streamrt.relations.regroup import Regroup
from streamrt.relations.row_history import RowHistory
from streamrt.relations.row_join import Condition, JoinHow, JoinRows
from streamrt.relations.row_rules import END_AT, START_AT, RowRules
from streamrt.relations.stream_table_join import StreamTableHow, StreamTableJoin
from streamrt.relations.table_join import MergeWithKey, TableHow, TableJoin
from streamrt.relations.to_stream import StreamChanges, ToStream
from streamrt.relations.top import TopRows
from streamrt.relations.upserts import UpsertChanges, UpsertRows

__all__ = [
    "END_AT",
    "START_AT",
    "AddRows",
    "ApplyChanges",
    "Change",
    "ChangeEvents",
    "ChangeKey",
    "ChangeReader",
    "ChangeRows",
    "CombineRows",
    "Condense",
    "Condition",
    "Consolidate",
    "DistinctRows",
    "ExactDeserializer",
    "ExactKey",
    "ExactSerializer",
    "ExpandChanges",
    "ForeignHow",
    "ForeignKey",
    "GroupAggregate",
    "GroupKey",
    "IsEventOf",
    "JoinHow",
    "JoinRows",
    "KeyChanges",
    "KeyNulls",
    "Maintain",
    "MapRows",
    "MapVersions",
    "MatchForeignKeys",
    "Materialize",
    "MergeWithKey",
    "NumberRows",
    "OverChanges",
    "PresentRow",
    "Regroup",
    "ResolveMatches",
    "RowDigest",
    "RowHistory",
    "RowMerger",
    "RowRules",
    "RowSets",
    "SendByKey",
    "SendMatch",
    "StreamChanges",
    "StreamTableHow",
    "StreamTableJoin",
    "Subscribe",
    "TableHow",
    "TableJoin",
    "ToStream",
    "TopRows",
    "UnionRows",
    "UpsertChanges",
    "UpsertRows",
    "find_request_topics",
    "find_row_topics",
]
